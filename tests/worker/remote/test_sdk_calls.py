"""Calls through the SDK's session: results whole, errors told apart, and one call's trouble kept to itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from support.scripted import LEGACY, MODERN, PATIENCE_S, Answer, JsonObject, ScriptedServer, scripted_session

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import Call, ListChanged, Log, Progress
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.remote.sdk_calls import SdkCalls
from quarterdeck_worker.stdio.calls import Ended
from quarterdeck_worker.stdio.notifications import Newsroom

pytestmark = pytest.mark.anyio

OK: JsonObject = {"result": {"content": [{"type": "text", "text": "ä", "x-own": 1}], "structuredContent": {"n": None}}}


class Desk:
    """A caller: begins calls and waits for their ends."""

    def __init__(self, calls: SdkCalls) -> None:
        self.calls = calls
        self.ended: dict[int, SplitResult | FaultRecord] = {}
        self._moved = anyio.Event()

    def begin(self, request_id: int, arguments: bytes = b"{}", *, progress: bool = False, meta: bytes = b"") -> None:
        """Begin a call of `echo`."""

        def done(ended: Ended) -> None:
            assert request_id not in self.ended, "a call ended twice"
            self.ended[request_id] = ended.outcome
            self._moved.set()

        self.calls.begin(Call(request_id, 30.0, "echo", progress, meta), arguments, done)

    async def end_of(self, request_id: int) -> SplitResult | FaultRecord:
        """How it ended."""
        with anyio.fail_after(PATIENCE_S):
            while request_id not in self.ended:
                self._moved = anyio.Event()
                await self._moved.wait()
        return self.ended[request_id]


@asynccontextmanager
async def open_calls(
    answer: Answer, era: str = LEGACY, max_bytes: int = 10_000
) -> AsyncIterator[tuple[Desk, ScriptedServer, list[Progress | Log | ListChanged]]]:
    """Calls to a scripted server, and the news that it gives."""
    news: list[Progress | Log | ListChanged] = []

    def post(frame: Progress | Log | ListChanged) -> bool:
        news.append(frame)
        return True

    async with scripted_session({"tools/call": answer}, era) as (session, server), anyio.create_task_group() as tasks:
        newsroom = Newsroom(post, lambda: 0.0)
        yield Desk(SdkCalls(session, tasks, newsroom, max_bytes=max_bytes)), server, news
        tasks.cancel_scope.cancel()


async def test_a_result_comes_back_whole() -> None:
    """Members that the SDK does not know would be lost."""
    async with open_calls(OK) as (desk, server, _):
        desk.begin(1, b'{"a":[1,null]}', meta=b'{"k":{"deep":1}}')
        outcome = await desk.end_of(1)
        assert isinstance(outcome, SplitResult)
        assert msgspec.json.decode(outcome.body) == OK["result"]
        params = server.asked[0]["params"]
        assert (params["name"], params["arguments"], params["_meta"]) == ("echo", {"a": [1, None]}, {"k": {"deep": 1}})


async def test_a_modern_result_loses_its_envelope_only() -> None:
    """A legacy client would be shown another era's keys, or lose the server's own."""
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}, "own": 1}
    answer = {"result": {"resultType": "complete", "content": [], "isError": True, "_meta": meta}}
    async with open_calls(answer, MODERN) as (desk, _, _):
        desk.begin(1)
        outcome = await desk.end_of(1)
        assert isinstance(outcome, SplitResult)
        assert outcome.is_error
        assert msgspec.json.decode(outcome.body) == {"content": [], "isError": True, "_meta": {"own": 1}}


@pytest.mark.parametrize(
    ("answer", "kind", "code", "delivery", "words"),
    [
        (
            {"error": {"code": -32602, "message": "bad", "data": [1]}},
            FaultKind.TOOL_ERROR,
            "reply_error",
            Delivery.ANSWERED,
            "bad (JSON-RPC error -32602): [1]",
        ),
        (
            {"error": {"code": -32000, "message": "closed"}},
            FaultKind.TOOL_ERROR,
            "server_lost",
            Delivery.UNKNOWN,
            "closed",
        ),
        ({"result": {"content": "text"}}, FaultKind.TOOL_ERROR, "bad_output", Delivery.ANSWERED, "content"),
        (
            {"result": {"content": [], "structuredContent": {"n": float("nan")}}},
            FaultKind.TOOL_ERROR,
            "bad_output",
            Delivery.ANSWERED,
            "JSON",
        ),
        (
            {"result": {"content": [{"type": "text", "text": "x" * 20_000}]}},
            FaultKind.TOOL_ERROR,
            "bad_output",
            Delivery.ANSWERED,
            "limit",
        ),
        (
            {"result": {"content": [{"type": "text", "text": "\ud800"}]}},
            FaultKind.TOOL_ERROR,
            "bad_output",
            Delivery.ANSWERED,
            "surrogates",
        ),
    ],
    ids=["refusal", "closed", "bad shape", "NaN", "too large", "not Unicode"],
)
async def test_every_other_answer_is_a_fault_that_says_what_it_was(
    answer: Answer, kind: FaultKind, code: str, delivery: Delivery, words: str
) -> None:
    """A caller could not tell a refusal from a broken server, or would get bytes that break its stream."""
    async with open_calls(answer) as (desk, _, _):
        desk.begin(1)
        fault = await desk.end_of(1)
        assert isinstance(fault, FaultRecord)
        assert (fault.kind, fault.code, fault.delivery) == (kind, code, delivery)
        assert words in fault.message


async def test_a_cancelled_call_is_called_off_and_the_others_go_on() -> None:
    """The server would work for nobody, or one caller's cancel would end another's call."""
    async with open_calls(lambda params: OK if params["arguments"] else None) as (desk, server, _):
        desk.begin(1)
        await server.until("tools/call")
        assert desk.calls.cancel(1, "enough")
        note = await server.until("notifications/cancelled")
        assert note["params"]["requestId"] == server.asked[0]["id"]
        desk.begin(2, b'{"now":1}')
        assert isinstance(await desk.end_of(2), SplitResult)
        assert 1 not in desk.ended
        assert not desk.calls.cancel(1, "again")
        assert not desk.calls.cancel(2, "late")


async def test_a_call_cancelled_before_its_task_ran_is_never_sent() -> None:
    """The server would be asked for what nobody wants any more."""
    async with open_calls(OK) as (desk, server, _):
        desk.begin(1)
        assert desk.calls.cancel(1, "at once")
        desk.begin(2)
        await desk.end_of(2)
        assert server.methods == ["tools/call"]
        assert 1 not in desk.ended


@pytest.mark.parametrize("wanted", [True, False])
async def test_progress_is_passed_on_when_it_is_wanted(wanted: bool) -> None:
    """A client would not see how far its call is, or a server would tell it for nothing."""
    async with open_calls(None) as (desk, server, news):
        desk.begin(7, progress=wanted)
        request = await server.until("tools/call")
        token = request["params"].get("_meta", {}).get("progressToken")
        assert (token is not None) is wanted
        note = {"progressToken": token if wanted else 1, "progress": 1.0, "total": 2.0, "message": "half"}
        await server.say({"method": "notifications/progress", "params": note})
        await server.say({"id": request["id"], **OK})
        await desk.end_of(7)
        assert news == ([Progress(7, 1.0, 2.0, "half")] if wanted else [])


@pytest.mark.parametrize(
    ("arguments", "meta"),
    [(b"[1]", b""), (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b""), (b"{}", b'{"progressToken":[]}')],
    ids=["not an object", "too deep", "bad meta"],
)
async def test_arguments_that_the_sdk_refuses_end_that_call_alone(arguments: bytes, meta: bytes) -> None:
    """One caller's odd arguments would end every other call, and the session."""
    async with open_calls(OK) as (desk, _, _):
        desk.begin(1, arguments, meta=meta)
        desk.begin(2)
        assert isinstance(await desk.end_of(1), FaultRecord)
        assert isinstance(await desk.end_of(2), SplitResult)
