"""Requests one after another, and how often tasks are looked at."""

import pytest
from support.tools.offer_fleet import OfferServer
from support.waiting import turns

from quarterdeck.bridge.tasks.chain import LOOKS_A_SECOND, Chain, Pace
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, WireResult

pytestmark = pytest.mark.anyio

FIRST, SECOND = RawRequest("first", b"{}"), RawRequest("second", b"{}")


async def test_a_request_follows_another_and_the_last_end_is_the_chains() -> None:
    """A client would be told of a step, or twice."""
    server, ends = OfferServer("a", answers={"first": b"1", "second": b"2"}), list[CallEnd]()
    chain = Chain(server.forward, ends.append)
    chain.ask(FIRST, lambda _: (chain.ask(SECOND, chain.end), None)[1])
    await turns()
    chain.end(WireResult(b"3", "x"))
    assert [each.body for each in ends if isinstance(each, WireResult)] == [b"2"]


async def test_one_that_is_given_up_makes_no_further_request() -> None:
    """A client that is gone would be worked for."""
    server, ends = OfferServer("a", silent_to=frozenset({"first"})), list[CallEnd]()
    chain = Chain(server.forward, ends.append)
    chain.ask(FIRST, lambda _: (chain.ask(SECOND, chain.end), None)[1])
    assert chain.cancel("gone") is Delivery.UNKNOWN
    await turns()
    assert ([each.method for each in server.asked], server.cancelled, ends) == (["first"], ["first"], [])
    late = OfferServer("a")
    chain = Chain(late.forward, ends.append)
    chain.ask(FIRST, ends.append)
    chain.cancel()
    await turns()
    assert ends == []


async def test_what_a_step_cannot_read_is_a_fault() -> None:
    """A client would wait for ever for what raised."""
    ends = list[CallEnd]()

    def fail(_: CallEnd) -> None:
        raise BodyError("odd")

    Chain(OfferServer("a").forward, ends.append).ask(FIRST, fail)
    await turns()
    (fault,) = ends
    assert isinstance(fault, ProtocolFault)
    assert (fault.code, "odd" in fault.message) == ("bad_result", True)


def test_the_more_tasks_are_looked_at_the_more_seldom_each_is() -> None:
    """Thousands of held calls would be thousands of requests a second."""
    pace = Pace()
    pace.active = 1
    assert pace.delay_s(0.5) == 0.5
    pace.active = 10_000
    assert pace.delay_s(0.5) == 10_000 / LOOKS_A_SECOND
