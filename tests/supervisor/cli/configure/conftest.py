"""A home directory with MCP clients in it, and the commands that change their files."""

from pathlib import Path

import pytest

from quarterdeck.cli.configure import clients

from .client_commands import home_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(clients, "own_command", lambda: ("/opt/quarterdeck",))
    return home_of(tmp_path, monkeypatch)
