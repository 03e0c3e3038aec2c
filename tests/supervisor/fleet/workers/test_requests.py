"""A raw call in its caller's hands."""

import asyncio

from support.fleet.workers import PlayedSession

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.exchange.exchange import EndpointCall
from quarterdeck.fleet.workers.requests import RefusedCall
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.link.frames import Call
from quarterdeck_protocol.tools import RawCall


async def test_giving_up_tells_the_worker_which_call_and_why() -> None:
    """The server would go on working, or stop another call."""
    session = PlayedSession()
    endpoint = ServerEndpointImpl(StdioServerConfig(id="a", command="x"), session)
    await endpoint.open()
    first = endpoint.begin(RawCall("echo", b"{}"), lambda _: None)
    second = endpoint.begin(RawCall("echo", b"{}"), lambda _: None)
    await session.worker.next(Call)
    request, _ = await session.worker.next(Call)
    assert isinstance(first, EndpointCall)
    assert isinstance(second, EndpointCall)
    second.cancel("enough")
    cancel = await session.worker.next_cancel()
    assert (cancel.request_id, cancel.reason) == (request.request_id, "enough")
    await endpoint.close()


async def test_giving_up_a_refused_call_keeps_its_end_from_being_delivered() -> None:
    """A client would get an answer to what it cancelled."""
    delivered: list[str] = []
    loop = asyncio.get_running_loop()
    kept = RefusedCall(loop.call_soon(delivered.append, "kept"))
    given_up = RefusedCall(loop.call_soon(delivered.append, "given up"))
    given_up.cancel("enough")
    given_up.cancel()
    await asyncio.sleep(0)
    kept.cancel()
    assert delivered == ["kept"]
