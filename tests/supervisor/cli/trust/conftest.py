"""A ledger with a story, and the command that shows it."""

import shutil
from pathlib import Path

import pytest
from support.ledger.histories import fill
from support.ledger.ledger_shell import LedgerShell


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    monkeypatch.chdir(tmp_path)
    return state


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("written") / "state"
    state.mkdir(mode=0o700)
    fill(state)
    return state


@pytest.fixture
def state(empty: Path, written: Path) -> Path:
    shutil.copytree(written, empty, dirs_exist_ok=True)
    return empty


@pytest.fixture
def ledger(capsys: pytest.CaptureFixture[str]) -> LedgerShell:
    return LedgerShell(capsys)
