"""A wrong address is judged before anything listens, and told with what to do."""

import socket

import pytest

from quarterdeck.host.http.address import HttpOptions, is_taken, listen
from quarterdeck_protocol.faults import ProtocolFault


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        (HttpOptions(bind="a" * 70), "the name 'aaaa", "such as 127.0.0.1"),
        (HttpOptions(bind="192.0.2.1", allow_remote=True, token="t"), "does not have the address", "of this machine"),
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
