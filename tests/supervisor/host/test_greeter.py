"""The early answer to `initialize`: the same as the session's own, given once, and only when nothing is unusual."""

import json
import os
from collections.abc import Iterator

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from support.boxes import LiveBox
from support.stdio_pipes import served

from quarterdeck.host.greeter import HANDSHAKE_VERSIONS, EarlyGreeter, Head, answer_to
from quarterdeck.host.provider import ProviderHostInfo, create_provider_host
from quarterdeck.identity import CLIENT_NAME, CLIENT_VERSION

INFO = {"name": "raw", "version": "1"}


def initialize(**changes: object) -> bytes:
    """An ordinary first line, with members of the message replaced."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **changes}
    return json.dumps(message).encode() + b"\n"


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Two pipes: what the greeter reads, what feeds it; what the client reads, what the greeter writes."""
    greeter_in, client_out = os.pipe()
    client_in, greeter_out = os.pipe()
    yield greeter_in, client_out, client_in, greeter_out
    for fd in (greeter_in, client_in, greeter_out):
        os.close(fd)
    try:
        os.close(client_out)
    except OSError:
        pass  # a test closed it to be a client that leaves


def test_the_revisions_are_the_sdks() -> None:
    """A client of a revision that only the SDK knows would be told another one."""
    assert tuple(HANDSHAKE_VERSIONS) == tuple(HANDSHAKE_PROTOCOL_VERSIONS)


@pytest.mark.anyio
@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2026-07-28", "1999-01-01"])
async def test_the_answer_is_what_the_session_would_have_said(version: str) -> None:
    """A client would be promised what the session then does not keep."""
    params = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": INFO}
    _, early = answer_to(initialize(params=params).rstrip())
    host = create_provider_host(LiveBox(), ProviderHostInfo(CLIENT_NAME, CLIENT_VERSION))
    async with served(host) as client:
        own = await client.ask(1, "initialize", **params)
    assert json.loads(early) == own


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b"[" * 100_000,
        initialize(method="server/discover"),
        initialize(id=None),
        initialize(id=True),
        initialize(id=1.5),
        initialize(jsonrpc="1.0"),
        initialize(params={}),
        initialize(params={"protocolVersion": 5, "capabilities": {}, "clientInfo": INFO}),
        initialize(params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}),
        initialize(result={}),
    ],
)
def test_what_is_unusual_is_left_to_the_session(line: bytes) -> None:
    """A wrong message would get a right answer."""
    assert answer_to(line) == (None, b"")


def test_the_first_line_is_answered_at_once_and_kept(pipes: tuple[int, int, int, int]) -> None:
    """The session would never hear of a client that was greeted without it."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyGreeter(greeter_in, greeter_out)
    greeter.start()
    os.write(client_out, initialize(id="a"))
    answer = json.loads(os.read(client_in, 4096))
    assert answer["id"] == "a"
    assert greeter.finish() == Head(initialize(id="a"), "a")


def test_a_client_that_says_nothing_is_given_over_as_it_is(pipes: tuple[int, int, int, int]) -> None:
    """A slow client would hold up the start."""
    greeter = EarlyGreeter(pipes[0], pipes[3])
    greeter.start()
    assert greeter.finish() == Head()


def test_half_a_line_is_given_over_unanswered(pipes: tuple[int, int, int, int]) -> None:
    """Half of a client's first message would be lost."""
    greeter = EarlyGreeter(pipes[0], pipes[3])
    os.write(pipes[1], b'{"jsonrpc"')
    os.close(pipes[1])
    greeter.start()
    greeter._thread.join()
    assert greeter.finish() == Head(b'{"jsonrpc"', None)


@pytest.mark.anyio
async def test_the_session_goes_on_where_the_greeter_stopped() -> None:
    """A client that was greeted early would be greeted twice, or not be served."""
    async with served(create_provider_host(LiveBox()), head=Head(initialize(id=1), 1)) as client:
        await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer = await client.ask(2, "tools/list")
    assert answer["id"] == 2
    assert answer["result"] == {"tools": []}
