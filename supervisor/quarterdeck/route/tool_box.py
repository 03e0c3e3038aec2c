"""Run a server's tool for programs that want values: the result's blocks, in place of its bytes."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from quarterdeck.fleet.workers.requests import arguments_json, ended
from quarterdeck.tools.results import ContentBlock, JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.runner import guarded, unknown_name_text
from quarterdeck.tools.spec import coerce_input
from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import CancelToken, RawCall, ToolCall, ToolOutcome

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
        raw = RawCall(call.name, arguments_json(coerce_input(call.input)), client=call.client)
        answer = await _unless_cancelled(cancel, ended(partial(router.begin, raw)))
    except ProtocolFault as fault:
        return ToolResult.of_error(fault_text(call.name, fault))
    if answer is None:
        await anyio.lowlevel.checkpoint_if_cancelled()  # the task, too: then there is nobody to tell
        if not cancel.cancelled:
            return ToolResult.of_error(unknown_name_text(call.name, [each.name for each in router.descriptors()]))
        return ToolResult.of_error(f"{call.name} was cancelled.")
    if len(answer.body) > INLINE_DECODE_BYTES:
        return await anyio.to_thread.run_sync(project_answer, answer)
    return project_answer(answer)


async def _unless_cancelled(
    cancel: CancelToken, calling: Awaitable[RemoteCallResult | None]
) -> RemoteCallResult | None:
    """Wait for `calling`; the token's cancellation cancels it, and the result is None.

    As `asyncio.timeout` does it; a scope of its or of anyio's costs several times as much, on every call's way.
    """
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()

    def stop() -> None:
        task.cancel()

    forget = cancel.on_cancel(stop)
    try:
        return await calling
    except asyncio.CancelledError:
        if not cancel.cancelled or task.cancelling() > asked_before + 1:
            raise  # the task was cancelled by another, with or without the token
        return None
    finally:
        forget()
        if cancel.cancelled:
            task.uncancel()


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
