"""What a door and the daemon say to one another: read whole, or refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.daemon.messages import (
    MAX_HANDOVER_BYTES,
    MAX_TEXT_BYTES,
    PROTOCOL,
    Ask,
    BadHandoverError,
    CommandRequest,
    Handover,
    NativeRequest,
    Order,
    ServeRequest,
    decode_request,
    encode_request,
    frame,
)

REQUEST = ServeRequest(
    cwd="/home/me",
    config=("/home/me/mcp.json",),
    native=NativeRequest("authoring", "/home/me/project", ("/x",), ("ls",)),
)
HANDOVER = Handover("key", "0.1.0", 12, REQUEST, {b"PATH": b"/bin", b"ODD": b"\xff"}, log_level=20, log_is_json=True)


@pytest.mark.parametrize("said", [HANDOVER, Ask("key", "0.1.0", Order.REPLACE)])
def test_what_is_sent_is_what_is_read(said: Handover | Ask) -> None:
    """A client would be served another configuration, or with another environment, than it asked for."""
    data = encode_request(said)
    assert int.from_bytes(data[:4]) == len(data) - 4
    assert decode_request(data[4:]) == said


def test_a_field_more_is_another_protocol() -> None:
    """An older daemon would pass over it, and serve a door of one group everything: count `PROTOCOL` up with it."""
    fields = [set(kind.__struct_fields__) for kind in (Handover, ServeRequest, NativeRequest, CommandRequest)]
    assert (PROTOCOL, *fields) == (
        4,
        {*("key", "version", "pid", "request", "environ", "log_level", "log_is_json", "is_resumed"), "holds_listener"},
        {
            *("cwd", "command", "config", "native", "name_budget", "settle_s", "lock_file", "portable_schemas"),
            *("allow_unsandboxed", "groups", "search", "user"),
        },
        {"profile", "workspace", "allow_dirs", "tools"},
        {"words", "sandbox", "trust", "env", "inherit_env"},
    )


def test_a_handover_that_is_too_large_is_refused_by_its_door() -> None:
    """The daemon would close the connection, and the client be told nothing."""
    environ = {b"HUGE": b"x" * MAX_HANDOVER_BYTES}
    with pytest.raises(BadHandoverError, match="too large"):
        encode_request(msgspec.structs.replace(HANDOVER, environ=environ))


def test_a_path_that_is_not_utf8_is_refused_by_its_door() -> None:
    """The daemon would read another file."""
    with pytest.raises(BadHandoverError, match="UTF-8"):
        encode_request(msgspec.structs.replace(HANDOVER, request=ServeRequest(cwd="/odd\udcff")))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """Whatever reaches the socket would end the daemon."""
    with pytest.raises(BadHandoverError):
        decode_request(data)


def test_a_frame_says_how_long_it_is_and_is_cut_where_it_is_too_long() -> None:
    """A door would read one text as the beginning of another."""
    assert frame(b"L", "für dich\n") == b"L\x00\x00\x00\x0af\xc3\xbcr dich\n"
    assert len(frame(b"L", "x" * (MAX_TEXT_BYTES + 1))) == MAX_TEXT_BYTES + 5
    assert frame(b"L", "half \ud800")[5:] == b"half ?"
