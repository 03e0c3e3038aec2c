"""The key `registry`: what it may say, and in which file."""

from pathlib import Path

import pytest

from quarterdeck.config.load.document import JsonObject, parse_document
from quarterdeck.config.load.file import load_config_file
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.problems import Problem, RowError
from quarterdeck.config.load.project import ProjectBounds
from quarterdeck.config.load.registry_key import OFFICIAL, RegistryWish, read_registry
from quarterdeck.config.settings import Settings


def read(text: str) -> RegistryWish | None:
    document = parse_document(text)
    assert isinstance(document, JsonObject)
    return read_registry(document, lambda path: Path("/base") / path)


@pytest.mark.parametrize(
    ("text", "wish", "is_url"),
    [
        ('{"registry": "https://registry.example/mcp"}', RegistryWish("https://registry.example/mcp"), True),
        ('{"registry": "here.json"}', RegistryWish("/base/here.json"), False),
        ('{"registry": "/there.json"}', RegistryWish("/there.json"), False),
        ('{"registry": {"proxy": "http://proxy:3128"}}', RegistryWish(OFFICIAL, "http://proxy:3128"), True),
        ('{"registry": {"address": "here.json"}}', RegistryWish("/base/here.json"), False),
    ],
)
def test_it_says_where_servers_are_looked_for(text: str, wish: RegistryWish, is_url: bool) -> None:
    """A company's users would ask the public registry."""
    assert read(text) == wish
    assert wish.is_url is is_url


@pytest.mark.parametrize("text", ["{}", '{"registry": null}'])
def test_a_file_that_says_nothing_leaves_it_open(text: str) -> None:
    """The first file would decide for those behind it."""
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"registry": 1}', "registry: expected an address, a file or an object, got 1"),
        ('{"registry": ""}', "registry: is empty"),
        ('{"registry": "ftp://registry.example"}', "registry: is not a URL of http or https"),
        ('{"registry": "https://me:secret@registry.example"}', "without a login"),
        ('{"registry": "https://registry.example/?token=x"}', "without a login"),
        ('{"registry": {"adress": ""}}', "registry.adress: means nothing: did you mean 'address'"),
        ('{"registry": {"address": 1}}', "registry.address: expected a string"),
        ('{"registry": {"proxy": "socks5://x"}}', "registry.proxy: is not a proxy"),
        ('{"registry": {"proxy": "http://me:secret@x:1"}}', "registry.proxy: is not a proxy"),
    ],
)
def test_what_it_cannot_mean_is_refused_in_its_place(text: str, says: str) -> None:
    """A mistyped address would have the public registry be told what a company looks for."""
    with pytest.raises(RowError, match="registry") as raised:
        read(text)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_is_wrong_is_kept_and_not_replaced_by_the_public_registry(tmp_path: Path) -> None:
    """A search would go where nobody wanted it to."""
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}, "registry": 1}')
    assert isinstance(Settings.load([path]).registry, Problem)
    other = tmp_path / "other.json"
    other.write_text('{"registry": "mine.json"}')
    assert Settings.load([other, path]).registry == RegistryWish(str(tmp_path / "mine.json"))
    assert Settings.load([]).registry == RegistryWish()


def test_a_projects_file_may_not_say_it(tmp_path: Path) -> None:
    """A cloned repository would decide which servers a user is offered."""
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {}, "registry": "https://evil.example"}')
    loaded = load_config_file(path, {}, standing=Standing.PROJECT, bounds=ProjectBounds(tmp_path))
    assert loaded.registry is None
    assert any("registry: ignored" in warning for warning in loaded.warnings)
