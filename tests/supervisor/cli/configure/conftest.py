"""A home directory with MCP clients in it, and the commands that change their files."""

from pathlib import Path

import pytest

from quarterdeck.config.clients import link_entry

from .client_commands import Run, commands, home_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(link_entry, "own_command", lambda: ("/opt/quarterdeck",))
    return home_of(tmp_path, monkeypatch)


@pytest.fixture
def run() -> Run:
    return commands()
