"""The early answer to `initialize`: the same as the session's own, given once, and only when nothing is unusual."""

import json
import os
import select
import threading
from collections.abc import Iterator

import pytest
from support.tools.offer_fleet import OfferFleet
from support.tools.tool_boxes import LiveBox

from quarterdeck.host.provider import ProviderHostInfo, create_provider_host
from quarterdeck.host.stdio.early_reply import EarlyReply, FirstLine, answer_to
from quarterdeck.route.router import Router
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.mcp.server.methods import EVERYTHING, HANDSHAKE_VERSIONS

from .host_pipes import served

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


@pytest.mark.anyio
@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2026-07-28", "1999-01-01"])
async def test_the_answer_is_what_the_session_would_have_said(version: str) -> None:
    """A client would be promised what the session then does not keep."""
    params = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": INFO}
    _, early = answer_to(initialize(params=params).rstrip(), "", EVERYTHING)
    host = create_provider_host(LiveBox(), ProviderHostInfo(CLIENT_NAME, CLIENT_VERSION), offers=Router(OfferFleet()))
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
    ],
)
def test_what_is_unusual_is_left_to_the_session(line: bytes) -> None:
    """A wrong message would get a right answer."""
    assert answer_to(line, "", EVERYTHING) == (None, b"")


def test_a_client_is_greeted_once_it_is_sure_that_it_can_be_served(pipes: tuple[int, int, int, int]) -> None:
    """A client would be told that all is well by one that dies a moment later."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyReply(greeter_in, greeter_out)
    greeter.start()
    os.write(client_out, initialize(id="a"))
    assert not select.select([client_in], [], [], 0)[0]
    greeter.admit("1 tool is held.", EVERYTHING)
    answer = json.loads(os.read(client_in, 4096))
    assert (answer["id"], answer["result"]["instructions"]) == ("a", "1 tool is held.")
    head = greeter.finish()
    assert (head.data, head.greeted_id) == (initialize(id="a"), "a")
    assert head.greeted_at is not None


def test_a_client_that_comes_after_that_is_greeted_at_once(pipes: tuple[int, int, int, int]) -> None:
    """A client that is slower than our configuration would wait for all of our imports."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyReply(greeter_in, greeter_out)
    greeter.start()
    greeter.admit("", EVERYTHING)
    os.write(client_out, initialize(id=7))
    assert json.loads(os.read(client_in, 4096))["id"] == 7
    assert greeter.finish().greeted_id == 7


@pytest.mark.parametrize("is_admitted", [True, False])
def test_a_client_that_says_nothing_is_given_over_as_it_is(pipes: tuple[int, int, int, int], is_admitted: bool) -> None:
    """A slow client would hold up the start."""
    greeter = EarlyReply(pipes[0], pipes[3])
    greeter.start()
    if is_admitted:
        greeter.admit("", EVERYTHING)
    assert greeter.finish() == FirstLine()


def test_half_a_line_is_given_over_unanswered(pipes: tuple[int, int, int, int]) -> None:
    """Half of a client's first message would be lost."""
    greeter = EarlyReply(pipes[0], pipes[3])
    os.write(pipes[1], b'{"jsonrpc"')
    os.close(pipes[1])
    greeter.start()
    greeter.admit("", EVERYTHING)
    assert greeter.finish() == FirstLine(b'{"jsonrpc"', None)


def test_every_request_that_has_come_is_refused_with_the_reason(pipes: tuple[int, int, int, int]) -> None:
    """A client would wait for a process that is gone, or show its user an end without a cause."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyReply(greeter_in, greeter_out)
    greeter.start()
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    os.write(client_out, initialize(id="a") + note + b"garbage\n" + initialize(id=2, method="tools/list"))
    greeter.refuse("there is no configuration")
    answers = [json.loads(line) for line in os.read(client_in, 4096).splitlines()]
    assert [answer["id"] for answer in answers] == ["a", 2]
    for answer in answers:
        assert answer["error"] == {"code": -32603, "message": "quarterdeck cannot serve: there is no configuration"}


def test_a_request_that_is_still_on_its_way_is_refused_too(pipes: tuple[int, int, int, int]) -> None:
    """One that fails faster than its client writes would end without a word."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyReply(greeter_in, greeter_out)
    greeter.start()
    refusing = threading.Thread(target=greeter.refuse, args=("no",), kwargs={"within_s": 20.0})
    refusing.start()
    refusing.join(0.3)
    assert refusing.is_alive()  # nothing has come, and it waits
    os.write(client_out, initialize())
    assert json.loads(os.read(client_in, 4096))["error"]["message"] == "quarterdeck cannot serve: no"
    refusing.join()


def test_who_was_greeted_is_not_refused_afterwards(pipes: tuple[int, int, int, int]) -> None:
    """One request would have two answers."""
    greeter_in, client_out, client_in, greeter_out = pipes
    greeter = EarlyReply(greeter_in, greeter_out)
    os.write(client_out, initialize(id=1) + initialize(id=2, method="ping"))
    greeter.start()
    greeter.admit("", EVERYTHING)
    assert json.loads(os.read(client_in, 4096))["id"] == 1
    greeter.refuse("it broke")
    assert json.loads(os.read(client_in, 4096))["id"] == 2


@pytest.mark.parametrize("leaves", ["at once", "without reading"])
def test_refusing_a_client_that_has_left_is_quiet(pipes: tuple[int, int, int, int], leaves: str) -> None:
    """Its own end would be an error of ours."""
    greeter_in, client_out, client_in, greeter_out = pipes
    if leaves == "without reading":
        os.write(client_out, initialize())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, client_in)
        os.close(null)
    os.close(client_out)
    greeter = EarlyReply(greeter_in, greeter_out)
    greeter.start()
    greeter.refuse("no")


@pytest.mark.anyio
async def test_the_session_goes_on_where_the_greeter_stopped() -> None:
    """A client that was greeted early would be greeted twice, or not be served."""
    async with served(create_provider_host(LiveBox()), head=FirstLine(initialize(id=1), 1)) as client:
        await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer = await client.ask(2, "tools/list")
    assert answer["id"] == 2
    assert answer["result"] == {"tools": []}


def test_what_is_held_is_told_in_the_answer() -> None:
    """A model would not know why a tool is missing."""
    _, plain = answer_to(initialize().rstrip(), "", EVERYTHING)
    _, told = answer_to(initialize().rstrip(), "1 tool is held.", EVERYTHING)
    assert "instructions" not in json.loads(plain)["result"]
    assert json.loads(told)["result"]["instructions"] == "1 tool is held."
