"""`quarterdeck secret` and `token`."""

import getpass
import io
import sys
import warnings
from pathlib import Path

import pytest
from support.command_line import Said

from quarterdeck.config.secrets.store import SecretStore


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, and no keyring."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return tmp_path


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.process
@pytest.mark.parametrize(("data", "value"), [(b"s3cret\n", "s3cret"), (b"a\nb\r\n", "a\nb")])
def test_a_value_is_piped_in_and_never_shown(
    state: Path, monkeypatch: pytest.MonkeyPatch, said: Said, data: bytes, value: str
) -> None:
    """A script could not keep a secret, or its log would publish it."""
    pipe(monkeypatch, data)
    told = said.all(0, "secret", "set", "GH")
    assert SecretStore().get("GH") == value
    assert "GH is kept in a file that only you can read: a configuration may say ${keyring:GH}" in told
    assert "s3cret" not in told


def test_on_a_terminal_it_is_typed_without_echo(state: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """Whoever looks over the user's shoulder would read it."""
    pipe(monkeypatch, b"from the pipe")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: f"typed at {prompt}")
    assert said.json(0, "secret", "set", "GH", "--file", "--json") == {"name": "GH", "place": "file"}
    assert SecretStore().get("GH") == "typed at GH: "


def test_a_terminal_that_cannot_hide_it_is_refused(state: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secret would stand in the scrollback."""

    def echo(prompt: str) -> str:
        warnings.warn("echo", getpass.GetPassWarning, stacklevel=2)
        return "s3cret"

    pipe(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(getpass, "getpass", echo)
    assert "the terminal cannot hide the input" in said(2, "secret", "set", "GH").err
    assert SecretStore().kept() == ()


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff", b"a\0b", b"x" * 70_000])
def test_what_cannot_be_kept_is_refused(state: Path, said: Said, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """An empty pipe would replace a secret by nothing."""
    pipe(monkeypatch, data)
    assert "nothing was changed" in said(2, "secret", "set", "GH").err
    assert SecretStore().kept() == ()


@pytest.mark.process
def test_names_are_listed_and_removed(state: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A user could not find out what is kept, or get rid of it."""
    assert "there are no secrets" in said(0, "secret", "list").err
    pipe(monkeypatch, b"s3cret")
    said(0, "secret", "set", "GH", "--file")
    assert SecretStore().get("GH") == "s3cret"
    shown = said(0, "secret", "list").out
    assert "GH" in shown
    assert "s3cret" not in shown
    assert said.json(0, "secret", "list", "--json") == [{"name": "GH", "place": "file"}]
    said(0, "secret", "remove", "GH")
    assert SecretStore().kept() == ()
    assert "there is no secret 'GH'" in said(3, "secret", "remove", "GH").err


def test_a_store_that_others_may_use_is_refused(state: Path, said: Said) -> None:
    """Another user could read what is kept."""
    (state / "secrets").mkdir()
    (state / "secrets").chmod(0o755)
    for arguments in (["list"], ["remove", "GH"]):
        assert "chmod 700" in said(2, "secret", *arguments).err


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


@pytest.mark.process
def test_a_clients_secret_is_kept_and_shown_as_its_own(
    state: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A colleague's secret would take the place of one's own, or nobody see whose is missing."""
    for words in ((), ("--client", "anna"), ("--client", "owner")):
        pipe(monkeypatch, f"of {words}".encode())
        said(0, "secret", "set", "GH", "--file", *words)
    assert (SecretStore().get("GH"), SecretStore(client="anna").get("GH")) == (
        "of ('--client', 'owner')",
        "of ('--client', 'anna')",
    )
    own = {"name": "GH", "place": "file"}
    assert said.json(0, "secret", "list", "--json") == [own, {**own, "client": "anna"}]
    for name in ("../anna", "a b", ".", "", "a" * 65, "\u0430nna", "x/y", "-x"):
        assert "cannot be a token's name" in said(2, "secret", "set", "GH", f"--client={name}").err
    assert said.json(0, "secret", "remove", "GH", "--client", "anna", "--json") == {**own, "client": "anna"}
    assert said(3, "secret", "remove", "GH", "--client", "anna").err
    assert SecretStore().get("GH")
