"""`quarterdeck secret` and `token`."""

import io
import json
import sys
from pathlib import Path

import pytest
from support.command_line import Said

from quarterdeck.cli.configure import secret
from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.parameters import make_group
from quarterdeck.config.secrets.store import SecretStore


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, and no keyring."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return tmp_path


def secret_command(*arguments: str) -> None:
    program = make_group("secret", secret.group)
    program(arguments, standalone_mode=False)


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.process
@pytest.mark.parametrize(("data", "value"), [(b"s3cret\n", "s3cret"), (b"a\nb\r\n", "a\nb"), (b"s3cret", "s3cret")])
def test_a_value_is_piped_in_and_never_shown(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes, value: str
) -> None:
    """A script could not keep a secret, or its log would publish it."""
    pipe(monkeypatch, data)
    secret_command("set", "GH")
    assert SecretStore().get("GH") == value
    said = capsys.readouterr()
    assert "GH is kept in a file that only you can read: a configuration may say ${keyring:GH}" in said.out
    assert "s3cret" not in said.out + said.err


def test_on_a_terminal_it_is_typed_without_echo(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever looks over the user's shoulder would read it."""
    pipe(monkeypatch, b"from the pipe")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(secret.getpass, "getpass", lambda prompt: f"typed at {prompt}")
    secret_command("set", "GH", "--file", "--json")
    assert SecretStore().get("GH") == "typed at GH: "
    assert json.loads(capsys.readouterr().out) == {"name": "GH", "place": "file"}


def test_a_terminal_that_cannot_hide_it_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secret would stand in the scrollback."""

    def getpass(prompt: str) -> str:
        import warnings

        warnings.warn("echo", secret.getpass.GetPassWarning, stacklevel=2)
        return "s3cret"

    pipe(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(secret.getpass, "getpass", getpass)
    with pytest.raises(CommandError, match="the terminal cannot hide the input"):
        secret_command("set", "GH")
    assert SecretStore().kept() == ()


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff", b"a\0b", b"x" * 70_000])
def test_what_cannot_be_kept_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """An empty pipe would replace a secret by nothing."""
    pipe(monkeypatch, data)
    with pytest.raises(CommandError, match="nothing was changed") as refused:
        secret_command("set", "GH")
    assert refused.value.code == ExitCode.USAGE
    assert SecretStore().kept() == ()


@pytest.mark.process
def test_names_are_listed_and_removed(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user could not find out what is kept, or get rid of it."""
    secret_command("list")
    assert "there are no secrets" in capsys.readouterr().err
    pipe(monkeypatch, b"s3cret")
    secret_command("set", "GH")
    capsys.readouterr()
    secret_command("list")
    shown = capsys.readouterr().out
    assert "GH" in shown
    assert "s3cret" not in shown
    secret_command("list", "--json")
    assert json.loads(capsys.readouterr().out) == [{"name": "GH", "place": "file"}]
    secret_command("remove", "GH")
    assert SecretStore().kept() == ()
    with pytest.raises(CommandError, match="there is no secret 'GH'") as refused:
        secret_command("remove", "GH")
    assert refused.value.code == ExitCode.NOT_FOUND


def test_a_store_that_others_may_use_is_refused(state: Path) -> None:
    """Another user could read what is kept."""
    (state / "secrets").mkdir()
    (state / "secrets").chmod(0o755)
    for arguments in (["list"], ["remove", "GH"]):
        with pytest.raises(CommandError, match="chmod 700"):
            secret_command(*arguments)


@pytest.fixture
def token_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    return state


def test_the_token_is_made_once_and_kept_private(token_state: Path, said: Said) -> None:
    """Clients would have to be configured anew after each start, or others could read it."""
    token = said(0, "token", "show").out.strip()
    assert len(token) >= 32
    assert said.json(0, "token", "show", "--json") == {"token": token, "path": str(token_state / "token")}
    assert (token_state / "token").stat().st_mode & 0o777 == 0o600
    assert token_state.stat().st_mode & 0o777 == 0o700


def test_a_token_that_others_may_read_is_refused(token_state: Path, said: Said) -> None:
    """It would be no secret any more."""
    token_state.mkdir(mode=0o700)
    path = token_state / "token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    out, err = said(2, "token", "show")
    assert out == ""
    assert "others may read the token" in err
