"""One call that the session runs: every end is a result, only cancellation raises."""

import asyncio

import anyio
import pytest
from support.tools.tool_boxes import LiveBox, NativeBox, answer, hold
from support.waiting import PATIENCE_S

from quarterdeck.host.calls import PROGRESS_BACKLOG, ClientCall, alone, run_call
from quarterdeck.tools.results import ToolResult
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import CancelToken, Client, ProgressNote, ToolCall, ToolOutcome

pytestmark = pytest.mark.anyio


def call(name="s__t", arguments=None, **options):
    """A legacy client's call."""
    return ClientCall(id="1", name=name, is_modern=False, arguments=arguments or {}, **options)


def text_of(result):
    """The one text block."""
    (block,) = result["content"]
    return block["text"]


async def test_a_grafted_call_passes_arguments_and_meta_and_its_result_comes_whole():
    """Nothing is the host's to change."""
    box = LiveBox()
    box.graft("s__t", answer({"content": [], "x": None}))
    result = await run_call(box, call(arguments={"é": [None, 2**70, "\ud800"]}, meta=b'{"trace":1}'))
    assert result == {"content": [], "x": None}
    assert box.begun[0].arguments == b'{"\\u00e9":[null,1180591620717411303424,"\\ud800"]}'
    assert box.begun[0].meta == b'{"trace":1}'


async def test_every_call_says_who_asked():
    """The ledger could not name the client, nor one client's calls be told from another's."""
    asked = Client("ci", "token ci")
    box, seen = LiveBox(), []
    box.graft("s__t", answer({"content": []}))

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        seen.append(call.client)
        return ToolOutcome(call.id, "")

    box.native("ls", run)
    await run_call(box, call(client=asked))
    await run_call(box, call("ls", client=asked))
    assert [box.begun[0].client, *seen] == [asked, asked]


async def test_arguments_that_json_cannot_say_are_refused():
    """A server would get a line that is no JSON."""
    box = LiveBox()
    box.graft("s__t")
    result = await run_call(box, call(arguments={"n": float("nan")}))
    assert result["isError"]
    assert result["_meta"]["quarterdeck/fault"]["code"] == "bad_arguments"
    assert box.begun == []


async def test_a_tool_that_is_not_grafted_goes_to_the_runner():
    """No raw call begins of a name that nobody knows."""
    box = LiveBox()

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        return ToolOutcome(call.id, [call.name, call.input])

    box.native("ls", run)
    assert text_of(await run_call(box, call("ls", {"a": 1}, tell=forget))) == '["ls", {"a": 1}]'


async def test_a_native_tools_progress_is_told_before_its_result_and_in_order():
    """A person would wait for a long command without a sign, or see its notes after its end."""
    box, told = NativeBox(), []

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        assert call.report is not None
        for number in range(3):
            call.report(ProgressNote(number, 3, f"line {number}"))
        return ToolOutcome(call.id, "done")

    async def tell(note):
        await anyio.lowlevel.checkpoint()
        told.append((note.progress, note.total, note.message))

    box.native("t", run)
    assert text_of(await run_call(box, call("t", tell=tell))) == "done"
    assert told == [(0, 3, "line 0"), (1, 3, "line 1"), (2, 3, "line 2")]


async def test_a_native_tool_is_not_asked_for_progress_that_nobody_wants():
    """It would format notes to be thrown away."""
    box, reports = NativeBox(), []

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        reports.append(call.report)
        return ToolOutcome(call.id, "done")

    box.native("t", run)
    await run_call(box, call("t"))
    assert reports == [None]


async def test_a_native_tool_that_floods_with_notes_is_never_held_up():
    """A slow client would slow the tool down, or fill our memory."""
    box, told, may_tell = NativeBox(), [], anyio.Event()

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        for number in range(PROGRESS_BACKLOG * 3):
            call.report(ProgressNote(number))
        may_tell.set()
        return ToolOutcome(call.id, "done")

    async def tell(note):
        await may_tell.wait()
        told.append(note.progress)

    box.native("t", run)
    with anyio.fail_after(PATIENCE_S):
        assert text_of(await run_call(box, call("t", tell=tell))) == "done"
    assert told == list(range(len(told)))
    assert len(told) <= PROGRESS_BACKLOG + 1


async def test_a_native_image_reaches_the_client_as_it_is():
    """A model that can see would be given base64 as text."""
    box = NativeBox()
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        return ToolResult.of_mcp({"type": "text", "text": "a.png"}, image).to_outcome(call.id)

    box.native("t", run)
    for is_modern in (False, True):
        result = await run_call(box, ClientCall(id="1", name="t", is_modern=is_modern, arguments={}))
        assert result["content"] == [{"type": "text", "text": "a.png"}, image]
        assert result["isError"] is False


async def forget(note):
    """Throw a progress note away."""


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("boom"), "boom"), (KeyError(), "KeyError"), (ProtocolFault("timeout", "slow"), "slow")],
)
async def test_a_runner_that_raises_is_an_error_result_in_its_own_words(error, text):
    """A model can only act on what it can read."""
    box = NativeBox()

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        raise error

    box.native("t", run)
    result = await run_call(box, call("t"))
    assert (text_of(result), result["isError"]) == (text, True)


async def test_cancelling_cancels_the_call_and_nothing_is_delivered_after():
    """A late answer must find nobody, and break nothing."""
    box = LiveBox()
    box.graft("s__t", hold)
    task = asyncio.create_task(run_call(box, call()))
    begun = await box.next_begun()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await begun.cancelled
    begun.settle({"content": []})


async def test_a_settled_call_is_not_cancelled():
    """The server would be told to stop what it has done."""
    box = LiveBox()
    box.graft("s__t")
    await run_call(box, call(tell=forget))
    assert not box.begun[0].cancelled.done()


async def test_a_slow_client_loses_notes_and_never_the_result():
    """Memory is finite; progress is not worth it."""
    box, told, may_tell = LiveBox(), [], anyio.Event()
    box.graft("s__t", hold)

    async def tell(note):
        await may_tell.wait()
        told.append(note.progress)

    async def settle():
        begun = await box.next_begun()
        for number in range(PROGRESS_BACKLOG * 3):
            begun.note(number)
        begun.settle({"content": []})
        begun.note(-1)
        may_tell.set()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(settle)
            assert await run_call(box, call(tell=tell)) == {"content": []}
    assert told == list(range(len(told)))
    assert len(told) <= PROGRESS_BACKLOG + 1


async def test_a_client_that_cannot_be_told_costs_its_own_call_only():
    """The call is given up, and its server told."""
    box = LiveBox()
    box.graft("s__t", hold)

    async def tell(note):
        raise ConnectionError("gone")

    async def note():
        (await box.next_begun()).note(1)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note)
            result = await run_call(box, call(tell=tell))
    assert (text_of(result), result["isError"]) == ("gone", True)
    assert await box.begun[0].cancelled


def test_an_exception_alone_in_its_groups_is_taken_out():
    """A group says nothing to a person."""
    error, other = ValueError("a"), ValueError("b")
    assert alone(ExceptionGroup("g", [ExceptionGroup("h", [error])])) is error
    group = ExceptionGroup("g", [error, other])
    assert alone(group) is group


@pytest.mark.parametrize("output", ["é" * 600, ["é" * 400, "é" * 200], {"a": "x" * 1_000}])
async def test_what_a_native_tool_found_is_held_for_its_client_as_a_servers_result_is(output):
    """A large file, read again and again and never taken, would fill the memory."""
    box, counted, room = NativeBox(), [], True

    async def find(asked: ToolCall, _cancel: CancelToken) -> ToolOutcome:
        parts = tuple(output) if isinstance(output, list) else ()
        return ToolOutcome(asked.id, output if not parts else "", parts=parts)

    def keep(client: Client, size: int) -> str:
        counted.append((client.name, size))
        return "" if room else "all is full"

    box.native("find", find)
    finding = call("find", client=Client("ci", "token ci"), hold=keep)
    assert not (await run_call(box, finding)).get("isError")
    [(name, size)] = counted
    assert (name, 1_000 <= size <= 1_200) == ("ci", True)
    room = False
    refused = await run_call(box, finding)
    assert (refused["isError"], "all is full" in text_of(refused)) == (True, True)
