"""Run a server's tool for programs that want values: the result's blocks, in place of its bytes."""

import asyncio
from typing import TYPE_CHECKING, Final

from anyio.lowlevel import checkpoint_if_cancelled

from quarterdeck.fleet.workers.requests import arguments_json
from quarterdeck.tools.results import ContentBlock, JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.runner import guarded, unknown_name_text
from quarterdeck.tools.spec import coerce_input
from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import CallEnd, CancelToken, RawCall, ToolCall, ToolOutcome

if TYPE_CHECKING:
    from .router import Router

INLINE_DECODE_BYTES: Final = 256 * 1024
"""A larger result is decoded in a thread: it would hold up other calls for milliseconds."""


async def run_tool(router: "Router", call: ToolCall, cancel: CancelToken) -> ToolOutcome:
    """Run a tool on its server; every failure is an outcome with `is_error`.

    Cancelling, by token or task, tells the server.
    """
    name = call.name
    if (fault := router.refusal(name)) is not None:
        return ToolResult.of_error(fault_text(name, fault)).to_outcome(call.id)
    known = [each.name for each in router.descriptors()]
    if router.public(name) not in known:
        allowed = [each for each in known if call.client.allows(router.own(each))]
        return ToolResult.of_error(unknown_name_text(name, allowed)).to_outcome(call.id)
    return (await guarded(name, cancel, lambda: _invoke(router, call, cancel))).to_outcome(call.id)


async def _invoke(router: "Router", call: ToolCall, cancel: CancelToken) -> ToolResult:
    try:
        arguments = arguments_json(coerce_input(call.input))
    except ProtocolFault as fault:
        return ToolResult.of_error(fault_text(call.name, fault))
    arrived: asyncio.Future[CallEnd | None] = asyncio.get_running_loop().create_future()

    def take(end: CallEnd | None) -> None:
        if not arrived.done():
            arrived.set_result(end)

    running = router.begin(RawCall(call.name, arguments, client=call.client), take)
    if running is None:
        return ToolResult.of_error(unknown_name_text(call.name, [each.name for each in router.descriptors()]))
    forget = cancel.on_cancel(lambda: take(None))
    end: CallEnd | None = None
    try:
        end = await arrived
    finally:
        forget()
        if end is None:
            running.cancel("the caller gave up")
    if end is None:
        await checkpoint_if_cancelled()  # by its token and its task at once: the task ends
        return ToolResult.of_error(f"{call.name} was cancelled.")
    if isinstance(end, ProtocolFault):
        return ToolResult.of_error(fault_text(call.name, end))
    if len(end.body) > INLINE_DECODE_BYTES:
        return await asyncio.to_thread(project_answer, RemoteCallResult(end))
    return project_answer(RemoteCallResult(end))


def project_answer(answer: RemoteCallResult) -> ToolResult:
    """A server's result block by block: text as text, all else as JSON; `is_error` and the wire form go along."""
    return ToolResult(tuple(map(_project_block, answer.content)), answer.is_error, answer.wire)


def _project_block(block: object) -> ContentBlock:
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(text := block.get("text"), str):
        return TextContentBlock(text)
    return JsonContentBlock(block)


def fault_text(name: str, fault: ProtocolFault) -> str:
    """What a model is told when the tool `name` ended in `fault`: what happened, its code, what to do."""
    remedy = f". Fix: {fault.remedy}" if fault.remedy else ""
    return f"{name}: {fault.message} ({fault.code or fault.kind}){remedy}"
