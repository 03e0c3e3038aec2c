"""A server that answers calls with what is no answer: the caller hears of it, the connection lives on if it can."""

from collections.abc import AsyncIterator

import anyio
import pytest
from support.processes.leftovers import is_running
from support.servers.real_endpoints import BACKSTOP_S, assert_fault, fault_of, hostile, opened, say, text_of
from support.waiting import eventually_async

from quarterdeck.interop import Delivery, ServerEndpointImpl

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

SHORT_S = 1.0
"""What these tests wait for an answer that never comes."""


async def still_adds(endpoint: ServerEndpointImpl) -> None:
    with anyio.fail_after(BACKSTOP_S):
        assert (await endpoint.invoke("add", {"a": 2, "b": 3})).structured_content == {"sum": 5}
    assert endpoint.phase == "ready"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("deep_json", "nested"),
        ("invalid_utf8", "utf-8"),
        ("smuggle", "not a JSON-RPC message"),
        ("smuggle_whitespace", "line break"),
        ("smuggle_behind", "not a JSON-RPC message"),
    ],
)
async def test_an_answer_that_may_not_be_passed_on_ends_its_call_alone(mode: str, words: str) -> None:
    """A client's parser would break on it, or take a second message for ours."""
    async with opened(hostile(mode)) as endpoint:
        fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
        assert_fault(fault, "tool_error", "bad_output", "answered", words)
        await still_adds(endpoint)


@pytest.fixture(scope="module")
async def misshapen(neighbour: ServerEndpointImpl) -> AsyncIterator[ServerEndpointImpl]:
    async with opened(hostile("bad_result_shape")) as endpoint:
        yield endpoint


@pytest.mark.parametrize("shape", ["number", "list", "null", "content_text", "both", "neither", "error_text"])
async def test_a_result_of_the_wrong_shape_ends_its_call_alone(misshapen: ServerEndpointImpl, shape: str) -> None:
    """Whoever reads `content` would fail far from the cause."""
    fault = await fault_of(misshapen.invoke("echo", {"text": shape}))
    assert_fault(fault, "tool_error", "bad_output", "answered")
    await still_adds(misshapen)


async def test_strange_content_blocks_are_passed_on_whole(misshapen: ServerEndpointImpl) -> None:
    """Blocks of the future are not ours to judge."""
    assert (await misshapen.invoke("echo", {"text": "content_numbers"})).content == (1, None)


async def test_a_line_beyond_the_limit_ends_the_server() -> None:
    """100 MB without a newline: what follows cannot be told apart from it any more."""
    async with opened(hostile("long_line")) as endpoint:
        pid = endpoint.status().pid
        assert pid is not None
        fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
        assert_fault(fault, "tool_error", "result_too_large", "unknown", "67,108,864 bytes")
        assert fault.dossier is not None
        await eventually_async(lambda: endpoint.phase == "faulted")
        loss = endpoint.status().fault
        assert loss is not None
        assert_fault(loss, "transport", "result_too_large", "unknown", "67,108,864 bytes")
        await eventually_async(lambda: not is_running(pid))
        after = await fault_of(endpoint.invoke("echo", {"text": "again"}))
        assert_fault(after, "not_connected", "not_connected", "not_sent", "is faulted")


@pytest.mark.parametrize("mode", ["half_line", "slow_drip"])
async def test_an_answer_that_never_ends_is_given_up_at_the_deadline(mode: str) -> None:
    """Half a line must not hold its caller for ever; the endpoint stays, for the fault is one call's."""
    async with opened(hostile(mode, call_timeout_s=SHORT_S)) as endpoint:
        fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
        assert_fault(fault, "timeout", "call_timeout", "unknown", "echo did not answer within 1 s")
        assert endpoint.phase == "ready"


async def test_a_server_that_closes_its_stdout_is_lost() -> None:
    """It can never answer again, though its process lives."""
    async with opened(hostile("closes_stdout")) as endpoint:
        fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
        assert_fault(fault, "tool_error", "server_lost", "unknown", "closed its stdout")
        await eventually_async(lambda: endpoint.phase == "faulted")


async def test_answers_to_what_nobody_asked_reach_nobody() -> None:
    """Ids of our own requests, of calls gone by and of calls to come must not confuse the correlation."""
    async with opened(hostile("forged_ids")) as endpoint:
        for n in range(5):
            await say(endpoint, f"call {n}")
        assert endpoint.phase == "ready"


async def test_the_first_of_two_answers_counts() -> None:
    """The second must not become the next call's."""
    async with opened(hostile("answers_twice")) as endpoint:
        for n in range(5):
            await say(endpoint, f"call {n}")


async def test_an_answer_after_its_cancel_is_dropped() -> None:
    """It must not become another call's, nor break the link."""
    async with opened(hostile("answer_after_cancel")) as endpoint:
        with anyio.move_on_after(0.05):
            await endpoint.invoke("echo", {"text": "too late"})
        await still_adds(endpoint)


async def test_an_answer_after_its_deadline_is_dropped() -> None:
    """As after a cancel: the server is told, and answers all the same."""
    async with opened(hostile("answer_after_cancel")) as endpoint:
        fault = await fault_of(endpoint.call("echo", b'{"text": "too late"}', timeout_s=0.1))
        assert_fault(fault, "timeout", "call_timeout", "unknown")
        await still_adds(endpoint)


async def test_a_server_that_asks_for_sampling_is_refused_and_answers() -> None:
    """We promised no such capability; a server that waits for it would hang its caller."""
    async with opened(hostile("sampling_request")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            answer = text_of(await endpoint.invoke("echo", {"text": "hello"}))
        assert '"error"' in answer


async def test_a_fault_says_whether_repeating_is_safe() -> None:
    """Only `not_sent` may be repeated; whoever reads the deliveries must be able to trust them."""
    async with opened(hostile("half_line", call_timeout_s=SHORT_S)) as endpoint:
        unsure = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
    closed = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
    assert (unsure.delivery, closed.delivery) == (Delivery.UNKNOWN, Delivery.NOT_SENT)
