"""Run one server from its start to its end: confine, connect, greet, list, call, notice its loss, stop it.

`run_server` is the whole run in one scope; whatever ends it early is a `ServerFault`, judged by where it was.
"""

import importlib.metadata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
import msgspec
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from quarterdeck_protocol.configs import CLOSE_GRACE_S, ServerConfig, SseServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import OpenOrder, ServerCard, ServerStart
from quarterdeck_sandbox import LaunchError, plan_launch, words_of

from .connection_faults import broken, not_greeted, refused_or_closed, root_cause, session_gone, unreachable
from .launch import Launcher, describe_start, sandboxed
from .notifications import Notifier, log_text
from .remote_connection import EndNotice, RemoteConfig, StatusRecorder, dial
from .sdk_requests import PageDispatcher, SdkCalls, greet, is_modern, list_tools, request_envelope
from .server_process import ServerProcess, first_of
from .tool_calls import CallPath, RawCalls

CLIENT: Final = types.Implementation(name="quarterdeck", version=importlib.metadata.version("quarterdeck"))
"""Who we say we are to servers."""

SERVER_CONFIG: Final[TypeAdapter[Any]] = TypeAdapter(ServerConfig)

RELISTEN_S: Final = 1.0
"""Before a lost subscription is asked for again."""


class ServerFault(Exception):  # noqa: N818 - a fault, as everywhere
    """A server that could not be reached, or is gone; `record` says it all."""

    def __init__(self, record: FaultRecord) -> None:
        super().__init__(record.message)
        self.record = record


@dataclass(frozen=True, slots=True)
class OpenServer:
    """A greeted server."""

    card: ServerCard
    calls: CallPath
    session: ClientSession
    refusal: Callable[[], FaultRecord | None] = lambda: None

    async def list_tools(self) -> bytes:
        """See `listing.list_tools`."""
        return await list_tools(self.session)


@dataclass(slots=True)
class ServerRun:
    """One run of a server, as whoever asked for it sees it.

    Attributes:
        notifier: takes its notifications.
        on_open: called once, when it has been greeted.
        on_lost: called once, when it is gone after that, before what is left of it is cleared away.
        on_started: called once, when its process was let go and is not greeted yet.
        stop: set it to end the run in good order.
        diagnose: what is known so far, for a deadline that passes outside.
        condemn: kill its process because of a limit, named as in the policy, and a sentence with the numbers.
    """

    notifier: Notifier
    on_open: Callable[[OpenServer], None]
    on_lost: Callable[[FaultRecord], None]
    on_started: Callable[[ServerStart], None] = lambda _: None
    stop: anyio.Event = field(default_factory=anyio.Event)
    diagnose: Callable[[], Dossier | None] = lambda: None
    condemn: Callable[[str, str], None] = lambda _limit, _detail: None


async def run_server(order: OpenOrder, run: ServerRun, launcher: Launcher | None = None) -> None:
    """Run one server; returns after `run.stop` was set and all of it is gone.

    Cancellation ends it too, leaving nothing.  Without a `launcher` its process is confined by its own policy.

    Raises:
        ServerFault: it ended by itself, or never began: `spawn_failed` or `transport` by its kind, with the dossier.
    """
    config = SERVER_CONFIG.validate_json(order.config)
    if isinstance(config, StdioServerConfig):
        await _run_stdio(config, order, run, launcher or sandboxed(config, order))
    else:
        await _run_remote(config, order, run)


async def adopt_session(session: ClientSession, run: ServerRun, max_bytes: int) -> None:
    """Serve on a session that somebody else connected, and will close; returns after `run.stop`."""
    info = session.server_info
    card = ServerCard(era=session.protocol_version or "", name=info.name if info else "")
    await _serve_sdk(session, card, run, max_bytes, session_gone)


async def _run_stdio(config: StdioServerConfig, order: OpenOrder, run: ServerRun, launcher: Launcher) -> None:
    try:
        plan = plan_launch(config.command, config.args, order.env, config.cwd or order.home)
        process = await launcher(plan)
    except LaunchError as error:
        raise ServerFault(FaultRecord(FaultKind.SPAWN_FAILED, str(error), error.code, Delivery.NOT_SENT)) from error
    try:
        server = ServerProcess(process, config, order, run.notifier)
    except OSError as error:
        await process.stop(CLOSE_GRACE_S)
        process.close_fds()
        message = f"what it writes on stderr cannot be kept ({words_of(error)}): make room there"
        fault = FaultRecord(FaultKind.SPAWN_FAILED, message, "directory_unusable", Delivery.NOT_SENT)
        raise ServerFault(fault) from error
    run.diagnose = server.dossier
    run.condemn = server.condemn
    run.on_started(describe_start(process, order))
    greeted = False
    try:
        async with server.lines.streams() as (read, write), _sdk_session(read, write, run.notifier) as session:
            card = msgspec.structs.replace(await greet(session, order.era, config.protocol), pid=server.pid)
            greeted = True
            calls = server.lines.raw_calls = RawCalls(
                server.lines.pipe.write, envelope=request_envelope(card.era, CLIENT), max_bytes=config.max_result_bytes
            )
            await _serve(OpenServer(card, calls, session, server.refusal), run, until_lost=server.lost)
    except (MCPError, RuntimeError, ExceptionGroup) as error:
        cause = root_cause(error)
        if isinstance(cause, ServerFault):
            raise cause from None
        if greeted:
            raise ServerFault(broken(cause)) from error
        await server.settle()
        raise ServerFault(not_greeted(cause, server)) from error
    finally:
        with anyio.CancelScope(shield=True):
            await server.close()


async def _run_remote(config: RemoteConfig, order: OpenOrder, run: ServerRun) -> None:
    recorder = StatusRecorder()
    ways = [False, True] if isinstance(config, SseServerConfig) else [False]
    if isinstance(config, SseServerConfig) and config.legacy_only:
        ways = [True]
    for legacy in ways:
        greeted = False
        recorder.status = None
        try:
            async with dial(config, recorder, legacy=legacy) as (read, write):
                watched = EndNotice(read)
                async with _sdk_session(watched, write, run.notifier) as session:
                    card = await greet(session, order.era, config.protocol)
                    greeted = True
                    recorder.expect(card.era, legacy=legacy)
                    gone = partial(refused_or_closed, config.url, recorder)
                    await _serve_sdk(
                        session, card, run, config.max_result_bytes, gone, recorder.rejected, watched.ended
                    )
                    return
        except Exception as error:
            cause = root_cause(error)
            if isinstance(cause, ServerFault):
                raise cause from None
            if greeted:
                raise ServerFault(broken(cause)) from error
            if legacy is ways[-1] or not recorder.is_another_transport:
                raise ServerFault(unreachable(config.url, cause, recorder)) from error


async def _serve_sdk(
    session: ClientSession,
    card: ServerCard,
    run: ServerRun,
    max_bytes: int,
    describe: Callable[[], FaultRecord],
    *signs_of_loss: anyio.Event,
) -> None:
    async with anyio.create_task_group() as tasks:
        calls = SdkCalls(session, tasks, run.notifier, signs_of_loss, max_bytes=max_bytes)

        async def lost() -> FaultRecord:
            await first_of(calls.lost.wait, *(sign.wait for sign in signs_of_loss))
            return describe()

        await _serve(OpenServer(card, calls, session), run, until_lost=lost)
        tasks.cancel_scope.cancel()


async def _serve(server: OpenServer, run: ServerRun, *, until_lost: Callable[[], Awaitable[FaultRecord]]) -> None:
    """Be open until told to stop.

    Raises:
        ServerFault: the server was lost, as `until_lost` says; `run.on_lost` has been told.
    """
    lost: FaultRecord | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal lost
            lost = await until_lost()
            tasks.cancel_scope.cancel()

        async def heed() -> None:
            await run.stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        tasks.start_soon(heed)
        if server.card.announces_tools and is_modern(server.card.era):
            tasks.start_soon(_subscribe, server.session, run.notifier)
        run.on_open(server)
    if lost is not None:
        run.on_lost(lost)
        raise ServerFault(lost)


async def _subscribe(session: ClientSession, notifier: Notifier) -> None:
    """Hear of changed tools from a modern server; the older ones just say so."""
    while True:
        try:
            async with listen(session, tools_list_changed=True) as events:
                async for _ in events:
                    notifier.tools_changed()
            return
        except SubscriptionLost:
            # No replay: whatever happened in between, the list must be asked for again.
            notifier.tools_changed()
            await anyio.sleep(RELISTEN_S)
        except MCPError:
            return


def _sdk_session(read: Any, write: Any, notifier: Notifier) -> ClientSession:
    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        notifier.log(params.level, params.logger, log_text(params.data))

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            notifier.tools_changed()

    return ClientSession(
        dispatcher=PageDispatcher(read, write),
        client_info=CLIENT,
        logging_callback=on_log,
        message_handler=on_message,
        log_level="info",
    )
