"""Finding the files that name servers."""

import json
import logging
from pathlib import Path

import pytest

from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.settings import load_mcp_config
from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path / "home"


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def servers(**commands: str) -> dict[str, object]:
    return {"servers": {name: {"command": command} for name, command in commands.items()}}


def load(home: Path, **environ: str) -> dict[str, str]:
    found = load_mcp_config(home.parent / "project", {"HOME": str(home), **environ})
    assert all(isinstance(config, StdioServerConfig) for config in found)
    return {config.id: config.command for config in found if isinstance(config, StdioServerConfig)}


def test_the_project_comes_before_the_user_and_the_user_before_what_was_before(home: Path) -> None:
    """An old file would decide what a project runs."""
    write(home.parent / "project/.indusvx/mcp.json", servers(a="project"))
    write(home / ".config/quarterdeck/mcp.json", servers(a="user", u="user"))
    write(home / ".config/indusvx/mcp.json", servers(a="former", u="former", b="former"))
    write(home / ".indusvx/agent/mcp.json", servers(b="old", c="old"))
    write(home / ".indusvx/agent/mcp-servers.json", servers(c="older", d="older"))
    assert load(home) == {"a": "project", "u": "user", "b": "former", "c": "old", "d": "older"}


def test_the_users_directory_is_where_the_variable_says(home: Path) -> None:
    """Who moved their configuration would start without it."""
    write(home / "elsewhere/quarterdeck/mcp.json", servers(a="moved"))
    write(home / ".config/indusvx/mcp.json", servers(a="unmoved"))
    assert load(home, XDG_CONFIG_HOME=str(home / "elsewhere")) == {"a": "moved"}
    assert load(home, XDG_CONFIG_HOME="") == {"a": "unmoved"}


@pytest.mark.parametrize("broken", ["{", "[]", '{"servers": 5}', '{"other": {}}', ""])
def test_a_broken_file_is_passed_over_and_told(home: Path, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    """One bad file would sink the session, or vanish without a word."""
    write(home.parent / "project/.indusvx/mcp.json", broken)
    write(home / ".config/indusvx/mcp.json", servers(a="user"))
    with caplog.at_level(logging.WARNING):
        assert load(home) == {"a": "user"}
    assert "project/.indusvx/mcp.json" in caplog.text


def test_a_broken_row_is_passed_over_and_told(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One bad row would sink its file."""
    rows = {"bad": {"nothing": 1}, "off": {"command": "off", "enabled": False}, "a": {"command": "good"}}
    write(home / ".config/indusvx/mcp.json", {"servers": rows})
    with caplog.at_level(logging.WARNING):
        assert load(home) == {"a": "good"}
    assert "bad" in caplog.text
    assert "off" not in caplog.text


def test_a_named_file_is_read_alone(home: Path) -> None:
    """A test's configuration would be mixed with the user's."""
    write(home / ".config/indusvx/mcp.json", servers(a="user"))
    write(home / "mine.json", {"mcpServers": {"b": {"url": "https://example.com/mcp"}}})
    [only] = load_mcp_config(home / "mine.json", {"HOME": str(home)})
    assert isinstance(only, SseServerConfig)


def test_a_named_file_that_is_broken_is_an_error(home: Path) -> None:
    """A user would wonder where their servers are."""
    write(home / "mine.json", "{")
    with pytest.raises(ConfigFileError, match=r"mine\.json"):
        load_mcp_config(home / "mine.json", {"HOME": str(home)})
