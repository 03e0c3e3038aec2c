"""The token of the HTTP face."""

import json
from pathlib import Path

import pytest

from quarterdeck.cli.program import run


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    return state


def test_the_token_is_made_once_and_kept_private(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients would have to be configured anew after each start, or others could read it."""
    assert run(["token", "show"]) == 0
    token = capsys.readouterr().out.strip()
    assert len(token) >= 32
    assert run(["token", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"token": token, "path": str(state / "token")}
    assert (state / "token").stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700


def test_a_token_that_others_may_read_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be no secret any more."""
    state.mkdir(mode=0o700)
    path = state / "token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    assert run(["token", "show"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "others may read the token" in err


def test_a_state_directory_that_others_may_use_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another user could put a token of theirs there."""
    state.mkdir()
    state.chmod(0o777)
    assert run(["token", "show"]) == 2
    assert "chmod 700" in capsys.readouterr().err
