"""The ends of requests as a client with a budget gets them, and its reads of what was left out."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.waiting import until

from quarterdeck.host.budget import budgeted, kept_results
from quarterdeck.host.budget.budgeted import begin_read, named_result, new_uri, state_within_budget, within_budget
from quarterdeck.host.budget.kept_results import SCHEME, KeptResults
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.tools import CallEnd, WireResult

BODY = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * 500)
ERA = "2025-11-25"


def ended(results: KeptResults, end: CallEnd, method: str = "tools/call") -> CallEnd:
    ends: list[CallEnd] = []
    assert results.max_tokens is not None
    within_budget(results, results.max_tokens, "ada", method, lambda: True, ends.append)(end)
    [found] = ends
    return found


def text_of(end: CallEnd) -> str:
    assert isinstance(end, WireResult)
    said: str = json.loads(end.body)["content"][0]["text"]
    return said


async def read(results: KeptResults, client: str, uri: str) -> Any:
    ends: list[CallEnd] = []
    call = begin_read(results, client, uri, ends.append)
    assert ends == []  # never before it has begun
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    call.cancel()
    return ends[0] if ends else None


@pytest.mark.parametrize(
    ("max_tokens", "method", "end"),
    [
        (10, "tools/call", WireResult(BODY, ERA, result_type="input_required")),
        (1000, "tools/call", WireResult(b"x" * 500, ERA)),  # not even read
        (10, "tools/call", ProtocolFault(FaultKind.TOOL_ERROR, "x" * 500)),
        (10, "tasks/get", WireResult(b'{"status":"working","x":"%b"}' % (b"x" * 50), ERA)),
    ],
)
async def test_what_is_within_the_budget_or_no_result_of_a_tool_is_passed_as_it_is(
    max_tokens: int, method: str, end: CallEnd
) -> None:
    """A question or a short result would be changed, or cost a parse."""
    assert ended(KeptResults(max_tokens), end, method) is end


async def test_a_cut_result_names_a_resource_that_its_client_can_read() -> None:
    """What was left out would be lost, or another client's to read."""
    results = KeptResults(10)
    said = text_of(ended(results, WireResult(BODY, ERA)))
    uri = SCHEME + said.partition(SCHEME)[2].split("]")[0]
    assert named_result(json.dumps({"uri": uri}).encode()) == uri
    found = await read(results, "ada", uri)
    assert json.loads(found.body)["contents"] == [{"uri": uri, "mimeType": "text/plain", "text": "x" * 500}]
    for who, where in (("bob", uri), ("ada", f"{SCHEME}other")):
        refused = await read(results, who, where)
        assert (refused.code, refused.delivery) == ("unknown_resource", Delivery.NOT_SENT)
        assert "call the tool again" in refused.message
    again = text_of(ended(results, WireResult(BODY, ERA)))
    assert again != said


async def test_what_is_too_old_goes_though_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon whose clients have no sessions would hold what it kept for them for as long as it idles."""
    monkeypatch.setattr(budgeted, "LOOK_S", 0.0)
    results = KeptResults(10)
    ended(results, WireResult(BODY, ERA))
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    assert (results.total_bytes > 0, results.is_timed) == (True, True)
    monkeypatch.setattr(kept_results, "KEPT_S", -1.0)
    await until(lambda: not results.is_timed)
    assert results.total_bytes == 0


async def test_a_read_that_is_given_up_is_not_answered() -> None:
    """An answer would go to a request that its client has cancelled."""
    ends: list[CallEnd] = []
    begin_read(KeptResults(), "ada", f"{SCHEME}x", ends.append).cancel("why")
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    assert ends == []


async def test_a_result_too_large_to_keep_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice would name a resource that is not there."""
    monkeypatch.setattr(kept_results, "MAX_BYTES", 100)
    said = text_of(ended(KeptResults(10), WireResult(BODY, ERA)))
    assert "was not kept" in said
    assert SCHEME not in said


async def test_the_result_of_a_task_is_cut_too() -> None:
    """A tool would get past the budget by answering with a task."""
    results = KeptResults(10)
    assert len(text_of(ended(results, WireResult(BODY, ERA), "tasks/result"))) < 300
    state = WireResult(b'{"status":"completed","result":%b}' % BODY, "2026-07-28")
    found = ended(results, state, "tasks/get")
    value = json.loads(found.body)
    assert value["status"] == "completed"
    assert len(value["result"]["content"][0]["text"]) < 300
    short = WireResult(b'{"result":{"content":[]},"x":"%b"}' % (b"x" * 50), "2026-07-28")
    assert ended(results, short, "tasks/get") is short


async def test_the_state_of_a_task_is_cut_wherever_it_has_the_result() -> None:
    """A call that became a task with its result in it, or a stream that tells of one, would pass all of it on."""
    state, results = b'{"taskId":"1","status":"completed","result":%b}' % BODY, KeptResults(10)
    made = ended(results, WireResult(state, "2026-07-28", result_type="task"))
    assert made.result_type == "task"
    for body in (made.body, state_within_budget(results, "ada", state, lambda: True)):
        value = json.loads(body)
        assert (value["taskId"], len(value["result"]["content"][0]["text"]) < 300) == ("1", True)
    assert state_within_budget(KeptResults(None), "ada", state, lambda: True) is state
    assert state_within_budget(KeptResults(1000), "ada", state, lambda: True) is state
    with pytest.raises(BodyError):
        state_within_budget(results, "ada", state[:-1], lambda: True)


def test_the_next_uri_cannot_be_told_from_the_last() -> None:
    """A program that shares another's token could read what that was answered in the same millisecond."""
    uris = {new_uri() for _ in range(100)}
    assert len({uri[: len(SCHEME) + 6] for uri in uris}) == len(uris)


async def test_a_result_that_cannot_be_read_is_a_fault() -> None:
    """A server would get past the budget, or its caller wait for ever."""
    found = ended(KeptResults(10), WireResult(b'{"content":[{"type":"text","text":"\\ud800%b"}]}' % (b"x" * 60), ERA))
    assert found.code == "bad_result"


@pytest.mark.parametrize(
    ("params", "uri"),
    [
        (b'{"uri":"file:///a"}', ""),
        (b'{"uri":"file:///quarterdeck://results/x"}', ""),
        (b'{"uri":["quarterdeck://results/x"]}', ""),
        (b'{"uri":"quarterdeck:\\/\\/results\\/x"}', "quarterdeck://results/x"),
        (b'"quarterdeck://results/', ""),
    ],
)
def test_only_the_uri_of_a_kept_result_is_answered_here(params: bytes, uri: str) -> None:
    """A server's resource could not be read, or one of ours be asked of a server."""
    assert named_result(params) == uri
