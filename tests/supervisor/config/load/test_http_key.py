"""The key `http`: what it may say, and in which file."""

from pathlib import Path

import pytest

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.config.load.document import JsonObject, parse_document
from quarterdeck.config.load.file import load_config_file
from quarterdeck.config.load.http_key import read_http
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.load.project import ProjectBounds


def read(text: str) -> HttpWish | None:
    document = parse_document(text)
    assert isinstance(document, JsonObject)
    return read_http(document)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{}", None),
        ('{"http": null}', None),
        ('{"http": false}', None),
        ('{"http": true}', HttpWish()),
        ('{"http": "127.0.0.1:9000"}', HttpWish("127.0.0.1:9000")),
        ('{"http": {}}', HttpWish()),
        (
            '{"http": {"address": "[::1]", "allow_remote": true, "allow_hosts": ["a"]}}',
            HttpWish("[::1]", allow_remote=True, allow_hosts=("a",)),
        ),
    ],
)
def test_it_says_whether_and_where_the_daemon_listens(text: str, key: HttpWish | None) -> None:
    """Clients would look for it where it is not."""
    assert read(text) == key


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"http": 8808}', "http: expected true, an address, or an object, got 8808"),
        ('{"http": "127.0.0.1:0"}', "http: the port 0 is another one at each start"),
        ('{"http": {"address": ":0"}}', "http.address: the port 0"),
        ('{"http": {"adress": ""}}', "http.adress: means nothing: did you mean 'address'"),
        ('{"http": {"address": 1}}', "http.address: expected a string"),
        ('{"http": {"allow_remote": "yes"}}', "http.allow_remote: expected true or false"),
        ('{"http": {"allow_hosts": "a"}}', "http.allow_hosts: expected an array of names"),
    ],
)
def test_what_it_cannot_say_is_named(text: str, says: str) -> None:
    """The daemon would not listen, or for anybody, and nobody know why."""
    with pytest.raises(RowError) as told:
        read(text)
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("standing", "says"),
    [
        (Standing.USER, ""),
        (Standing.NAMED, "only your own file"),
        (Standing.PROJECT, "a project's file may not say this"),
    ],
)
def test_only_the_users_own_file_says_where_the_daemon_listens(tmp_path: Path, standing: Standing, says: str) -> None:
    """Whoever writes a project's file could open the user's tools to other machines."""
    path = tmp_path / "mcp.json"
    path.write_text('{"http": true, "mcpServers": {}}')
    bounds = ProjectBounds(str(tmp_path)) if standing is Standing.PROJECT else None
    warnings = load_config_file(path, {}, standing=standing, bounds=bounds).warnings
    assert [says in warning for warning in warnings] == ([True] if says else [])
