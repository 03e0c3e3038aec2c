"""The system's keyring, asked in a process of its own through the real library."""

import json
from pathlib import Path

import pytest

from quarterdeck.config.secrets.os_keyring import KeyringError, NoKeyringError, OsKeyring

from .keyrings import install_keyring

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in install_keyring(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
    return tmp_path


@pytest.mark.nightly
def test_values_are_kept_found_and_forgotten(folder: Path) -> None:
    """A secret would be lost, or stay when it was removed."""
    ring = OsKeyring()
    assert ring.get("GH") is None
    ring.set("GH", "s3cret ä\n")
    assert json.loads((folder / "ring.json").read_text()) == {"quarterdeck/GH": "s3cret ä\n"}
    assert ring.get("GH") == "s3cret ä\n"
    ring.remove("GH")
    ring.remove("GH")
    assert ring.get("GH") is None


def test_a_keyring_that_does_not_answer_holds_nobody_up_twice(folder: Path) -> None:
    """A locked keyring on a screen that nobody sees would hang every start, for each secret anew."""
    (folder / "ring.json.hangs").touch()
    ring = OsKeyring(get_deadline_s=0.5)
    with pytest.raises(KeyringError, match=r"did not answer within 0\.5 s: unlock it") as caught:
        ring.get("GH")
    assert caught.value.__context__ is None or "input" not in repr(caught.value.__context__)
    (folder / "ring.json.hangs").unlink()
    with pytest.raises(KeyringError, match="did not answer"):
        ring.get("OTHER")
    assert OsKeyring().get("GH") is None


def test_what_a_keyring_says_of_a_failure_is_not_repeated(folder: Path) -> None:
    """Its message might hold the value."""
    (folder / "ring.json.fails").touch()
    with pytest.raises(KeyringError, match=r"it refused \(RuntimeError\)") as caught:
        OsKeyring().set("GH", "s3cret")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "backend", ["keyring.backends.fail.Keyring", "keyring.backends.null.Keyring", "no.such.Ring", ""]
)
def test_one_that_keeps_nothing_or_plain_files_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    if backend:
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    else:
        (folder / "plain").mkdir()
        for name, value in install_keyring(folder / "plain", priority=0.5).items():
            monkeypatch.setenv(name, value)
    with pytest.raises(NoKeyringError):
        OsKeyring().set("GH", "s3cret")
