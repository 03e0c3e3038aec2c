"""Run one server behind a URL, from its start to its end, by the SDK: connect, greet, serve, notice its loss.

Sessions that somebody else made are served alike.  Whatever ends a run early is a `ServerFault`, judged by where it
was.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.shared.message import SessionMessage

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.link.frames import OpenOrder, RemoteServer, ServerCard
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import ServerFault, ServerRun, be_open, first_of

from .connection import EndNotice, dial
from .faults import broken, refused_or_closed, root_cause, session_gone, unreachable
from .handshake import card_of, greet, is_modern
from .recorder import StatusRecorder
from .requests import SdkServer, list_items
from .session import Session


async def run_server(order: OpenOrder, run: ServerRun) -> None:
    """See `RunServer`."""
    server = order.server
    assert isinstance(server, RemoteServer), "a row of another kind goes to another worker"
    recorder = StatusRecorder()
    for transport in server.transports:
        greeted = False
        recorder.restart()
        legacy = transport == "sse"
        try:
            async with dial(server, order.max_result_bytes, recorder, run.access, legacy=legacy) as (read, write):
                watched = EndNotice(read)
                async with Session(watched, write, run.notifier, order.capabilities.encode()) as session:
                    card = await greet(session, order.protocol)
                    session.let_ask()
                    greeted = True
                    recorder.greeted(has_session=legacy or not is_modern(card.era))
                    gone = partial(refused_or_closed, server.url, recorder)
                    signs = (recorder.rejected, watched.ended)
                    await _serve(session, card, run, order.max_result_bytes, gone, *signs, recorder=recorder)
                    return
        except Exception as error:
            cause = root_cause(error)
            if isinstance(cause, ServerFault):
                raise cause from None
            if greeted:
                raise ServerFault(broken(cause)) from error
            if transport == server.transports[-1] or not recorder.is_another_transport:
                raise ServerFault(unreachable(server.url, cause, recorder)) from error


async def run_streams(read: Any, write: Any, order: OpenOrder, run: ServerRun) -> None:
    """Greet and serve a server at the other end of two streams that somebody else closes; returns after `run.stop`."""
    watched = EndNotice(read)
    async with Session(watched, write, run.notifier, order.capabilities.encode()) as session:
        card = await greet(session, order.protocol)
        session.let_ask()
        await _serve(session, card, run, order.max_result_bytes, session_gone, watched.ended)


async def adopt_session(session: ClientSession, run: ServerRun, max_bytes: int) -> None:
    """Serve on a session that somebody else connected, and will close; returns after `run.stop`."""
    await _serve(session, card_of(session), run, max_bytes, session_gone)


async def _serve(
    session: ClientSession,
    card: ServerCard,
    run: ServerRun,
    max_bytes: int,
    describe: Callable[[], FaultRecord],
    *signs_of_loss: anyio.Event,
    recorder: StatusRecorder | None = None,
) -> None:
    async with anyio.create_task_group() as tasks:
        server = SdkServer(card, session, tasks, run.notifier, signs_of_loss, recorder, max_bytes=max_bytes)

        async def lost() -> FaultRecord:
            await first_of(server.lost.wait, *(sign.wait for sign in signs_of_loss))
            return describe()

        server.start_listening()
        await be_open(server, run, lost)
        tasks.cancel_scope.cancel()


# One session before the first fork: the SDK builds much on first use, six private megabytes in each worker (measured).

_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "warm-up", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {}}}]},
}


def warm_up() -> None:
    """Greet and list a scripted server in both ways that a real one is greeted."""
    asyncio.run(_run_session())


async def _run_session() -> None:
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    from_session, to_server = anyio.create_memory_object_stream[SessionMessage](1)
    async with to_session, from_server, from_session, to_server, anyio.create_task_group() as tasks:
        tasks.start_soon(_script_server, to_server, to_session)
        notifier = Notifier(lambda *_: True, lambda: 0.0)
        async with Session(from_server, from_session, notifier, b"{}") as session:
            await greet(session)
            await list_items(session, "tools")
        tasks.cancel_scope.cancel()


async def _script_server(
    requests: MemoryObjectReceiveStream[SessionMessage], answers: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    async for item in requests:
        request = item.message
        item.message.model_dump_json(by_alias=True, exclude_unset=True)
        if not isinstance(request, types.JSONRPCRequest):
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        if request.method in _ANSWERS:
            reply["result"] = _ANSWERS[request.method]
        else:
            reply["error"] = {"code": types.METHOD_NOT_FOUND, "message": "unknown"}
        await answers.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(reply, by_name=False)))
