"""What is wrong with an address is told before anything listens; the token's file is private, and made once."""

import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from quarterdeck.host.http.options import (
    HttpOptions,
    TokenFileError,
    accepted_names,
    is_taken,
    listen,
    load_or_create_token,
    load_token,
    split_address,
)
from quarterdeck_protocol.faults import ProtocolFault


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("localhost:0", ("localhost", 0)),
        ("localhost", ("localhost", 8808)),
        ("9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("localhost:", ("localhost", 8808)),
        ("[::1]:9000", ("::1", 9000)),
        ("[::1]", ("::1", 8808)),
        ("0.0.0.0:65535", ("0.0.0.0", 65_535)),
    ],
)
def test_an_address_may_be_given_in_part(text: str, address: tuple[str, int]) -> None:
    """Users would have to look up what the rest is."""
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["::1", "::1:80", "a:b", "a:70000", "a:-1", "[::1", "[::1]80", "a:٣"])
def test_anything_else_is_no_address(text: str) -> None:
    """It would listen somewhere else than meant, or end in a traceback."""
    with pytest.raises(ValueError, match=r"is not HOST:PORT"):
        split_address(text)


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        (HttpOptions(bind="a" * 70), "the name 'aaaa", "such as 127.0.0.1"),
        (HttpOptions(bind="192.0.2.1", allow_remote=True, token="t"), "does not have the address", "of this machine"),
        (HttpOptions(hosts=("deck.example", "https://deck.example")), "deck.example' is not a host", "--allow-host"),
        (HttpOptions(bind="0.0.0.0"), "refusing to listen on 0.0.0.0", "--allow-remote"),
        (HttpOptions(bind="0.0.0.0", allow_remote=True), "no token is required", "leave --no-token out"),
    ],
)
def test_a_wrong_address_is_the_users_error_and_says_what_to_do(options: HttpOptions, said: str, fix: str) -> None:
    """A user would read `[Errno -2]`, and not know which part is wrong."""
    with pytest.raises(ProtocolFault) as refused:
        listen(options)
    assert refused.value.code == "config_invalid"
    assert said in refused.value.message
    assert "Errno" not in refused.value.message
    assert fix in (refused.value.remedy or "")


def test_a_name_without_an_address_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in the name would look like a fault of the network."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ProtocolFault, match=r"^cannot listen on nonsense:1: the name 'nonsense' has no address$"):
        listen(HttpOptions(bind="nonsense", port=1))


def test_a_port_that_another_program_has_is_no_error_of_the_command_line() -> None:
    """A script could not tell a typing error from a second start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProtocolFault, match="another program listens on this port") as refused:
            listen(HttpOptions(port=port))
    assert refused.value.code is None
    assert is_taken(refused.value)


def test_names_that_requests_may_have_are_accepted_with_and_without_a_port() -> None:
    """The clients that they are meant for would be locked out."""
    options = HttpOptions(bind="0.0.0.0", hosts=("deck.example", "deck.example:443", "::1", "[fd00::1]:80"))
    assert len(accepted_names(options)) == 3 + 4


def test_the_token_is_created_once_and_then_kept(tmp_path):
    """Clients are configured with it: a new one at each start would lock them out."""
    path = tmp_path / "state" / "token"
    token = load_or_create_token(path)
    assert len(token) >= 43
    assert load_or_create_token(path) == token == load_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["token"]


def test_all_who_create_it_at_once_get_the_same(tmp_path):
    """Two servers started together would refuse each other's clients."""
    path = tmp_path / "token"
    with ThreadPoolExecutor(8) as threads:
        tokens = set(threads.map(lambda _: load_or_create_token(path), range(32)))
    assert len(tokens) == 1


def test_there_is_none_before_it_was_created(tmp_path):
    """`token show` must not make one up."""
    with pytest.raises(FileNotFoundError):
        load_token(tmp_path / "token")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_may_read_is_refused(tmp_path, mode):
    """It may be known already."""
    path = tmp_path / "token"
    load_or_create_token(path)
    path.chmod(mode)
    with pytest.raises(TokenFileError, match="others may read"):
        load_or_create_token(path)


@pytest.mark.parametrize(
    "content", [b"", b"short\n", b"\xff" * 50, b"a" * 20 + b" " + b"b" * 20, b"a" * 40 + b"\n" + b"b"]
)
def test_a_file_without_a_token_is_refused(tmp_path, content):
    """An empty file would be an empty password."""
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(TokenFileError, match="contains no token"):
        load_token(path)


def test_a_link_is_not_followed(tmp_path):
    """It may point at somebody else's file."""
    (tmp_path / "real").write_text("a" * 40)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "token").symlink_to(tmp_path / "real")
    with pytest.raises(TokenFileError, match="cannot be read"):
        load_token(tmp_path / "token")
