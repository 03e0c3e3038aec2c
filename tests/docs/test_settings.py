"""Every setting that the program knows stands on its page."""

import re
from typing import Final

import pytest

from quarterdeck.config.clients.known_clients import CLIENTS, Client
from quarterdeck.config.load.json_schema import config_schema
from quarterdeck.deck import cards_for_profile
from quarterdeck.tools.catalogue import PROFILE_NAMES
from quarterdeck_protocol.policy_values import Grant, NetworkMode, Preset, Property, Tier

from .documents import ROOT, text_of

DOCS: Final = ROOT / "docs"

KEYS: Final = {
    "stdio": "configuration.md",
    "sse": "configuration.md",
    "http": "configuration.md",
    "RestartPolicy": "configuration.md",
    "ToolFilter": "configuration.md",
    "SandboxPolicy": "sandbox.md",
    "Limits": "sandbox.md",
    "NativeSettings": "tools.md",
    "FetchPolicy": "tools.md",
}
"""Each object of a configuration, and the page that tells of its keys."""


def named(page: str) -> set[str]:
    return {
        word
        for code in re.findall(r"`([^`\n]+)`|```json\n(.*?)```", text_of(DOCS / page), re.DOTALL)
        for word in re.findall(r"[\w-]+", " ".join(code))
    }


@pytest.mark.parametrize(("definition", "page"), KEYS.items())
def test_every_key_of_a_configuration_is_told(definition: str, page: str) -> None:
    """A user would look a key up in vain."""
    properties = config_schema()["$defs"][definition]["properties"]  # type: ignore[index]
    ours = {
        key
        for key, schema in properties.items()
        if schema is not False and not schema.get("description", "").startswith("Another client's key")
    }
    assert ours - named(page) == set()


@pytest.mark.parametrize("values", [Preset, Tier, Property, Grant, NetworkMode])
def test_every_value_of_a_sandboxs_keys_is_told(values: type[Preset]) -> None:
    """A user would not know what to choose from."""
    assert {*map(str, values)} - named("sandbox.md") == set()


def test_every_profile_is_told_with_its_tools() -> None:
    """A user would offer a model tools that may change files, and believe that they only read."""
    text = text_of(DOCS / "tools.md")
    told: set[str] = set()
    for profile, name in PROFILE_NAMES.items():
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        told = (told if "those, and" in row else set()) | set(re.findall(r"`([^`]+)`", row)) - {name}
        assert told == {str(card.id) for card in cards_for_profile(profile)}
    former = " and ".join(f"`{profile}`" for profile in [*PROFILE_NAMES][:2])
    assert f"calls the first two {former}" in text


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_is_told_with_its_files(client: Client) -> None:
    """A user would look in vain for the name to link, or for the file that was changed."""
    [row] = [line for line in text_of(DOCS / "clients.md").splitlines() if line.startswith(f"| `{client.name}` |")]
    paths = {each.path for each in client.places if not each.is_spare} | set(client.project_files)
    cells = set(re.findall(r"`([^`]+)`", row)) - {client.name}
    assert client.title in row
    assert cells <= paths
    assert set(client.project_files) <= cells


def test_every_variable_that_a_user_may_set_is_told() -> None:
    """Who cannot pass options, as in a container, would not find the other way."""
    told = named("configuration.md") | named("files.md") | named("command-line.md")
    set_by_users = {"CONFIG", "STATE_DIR", "RUNTIME_DIR", "LOG_LEVEL", "LOG_FORMAT"}
    assert {f"QUARTERDECK_{name}" for name in set_by_users} - told == set()
