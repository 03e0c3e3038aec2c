"""A home directory with MCP clients in it, and the commands that change their files."""

import json
from pathlib import Path

import pytest


def home_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of our own, with nothing in it; the working directory is beside it."""
    home, work = tmp_path.resolve() / "home", tmp_path.resolve() / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "WSL_DISTRO_NAME", "USERPROFILE", "QUARTERDECK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("QUARTERDECK_STATE_DIR", "QUARTERDECK_DATA_DIR", "QUARTERDECK_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.chdir(work)
    return home


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return path
