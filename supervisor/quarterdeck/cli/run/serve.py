"""`quarterdeck serve`: the servers of a configuration, and native tools, as one MCP server.

Over stdio, stdout belongs to the protocol from the first byte on, and the end of stdin is the end of it all.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error, cannot_serve
from quarterdeck.cli.log_setup import LogFormat, LogLevel, is_json, number_of, set_up_logging
from quarterdeck.cli.parameters import Argument, Combined, Option
from quarterdeck.cli.process import DRAIN_VARIABLE, MAX_DRAIN_S, closed_streams, collect_rarely, seconds_in
from quarterdeck.cli.process import run as run_work
from quarterdeck.cli.source import Served, start_product
from quarterdeck.common.tool_names import DEFAULT_LIMIT
from quarterdeck.common.working_directory import working_directory
from quarterdeck.daemon.messages import CommandRequest, ServeRequest
from quarterdeck_sandbox import raise_open_files_limit

from .request import read_found, read_lock, read_request
from .sandbox_options import Wish

if TYPE_CHECKING:
    from quarterdeck.common.http_wish import HttpWish
    from quarterdeck.config.settings import Settings
    from quarterdeck.daemon.place import OtherDaemonError
    from quarterdeck.host.calls import Drain
    from quarterdeck.host.journal import Interrupted
    from quarterdeck.host.provider import ProviderHostImpl
    from quarterdeck.trust.lock.lockfile import DeckLock
    from quarterdeck_protocol.tools import Client

    from .serve_http import HttpPlan

_ANOTHER_FOLDER: Final = "make it a folder of your own, or name another: --state-dir DIR, QUARTERDECK_RUNTIME_DIR"

_ALONE: Final = (
    "this client is served alone; what is found is not recorded, and what is decided from now on counts at its next "
    "start. `quarterdeck up --replace` starts a daemon of this version: start the client anew then"
)

_READ_ONLY: Final = (
    "the ledger is only read: what is found is not recorded, and what is decided from now on counts at the next start"
)

_EXPORTERS: Final = {"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"}
"""Variables that may have traces and metrics sent."""

_COME_BACK: Final = "from quarterdeck.cli import main; main()"

_log = logging.getLogger("quarterdeck.serve")
_config_log = logging.getLogger("quarterdeck.config")


Withhold = Callable[[Iterable[str]], None]
"""Sets up logging again, without these secrets."""


class Face(msgspec.Struct, frozen=True):
    """How clients reach a `serve` or `run`, as the options say."""

    no_token: options.NoToken = False
    allow_remote: options.AllowRemote = False
    allow_host: options.AllowHost = None
    own: options.WithoutDaemon = False
    read_only: options.ReadOnly = False
    json: options.JsonUrl = False
    metrics: options.Metrics = None

    def listens(self, http: bool, address: str | None) -> "HttpWish | None":
        """Return where to listen on HTTP; None for a client on stdio, whose streams are open.

        Raise CommandError if the options contradict each other, or if no client could be served.
        """
        alone = {"--no-token": self.no_token, "--json": self.json}
        wish = options.http_wish(http, address, self.allow_remote, self.allow_host, **alone)
        if self.read_only and not (self.own or wish is not None):
            raise UsageError("--read-only has no effect on the daemon", "add --own, or --http, or leave it out")
        if self.metrics and not (self.own or wish is not None):
            raise UsageError("--metrics has no effect on the daemon", "use it with up, or add --own or --http")
        if self.read_only:
            _log.info("%s", _READ_ONLY)
        if wish is None and (closed := closed_streams() & {0, 1}):
            names_closed = " and ".join(("stdin", "stdout")[fd] for fd in sorted(closed))
            raise UsageError(
                f"no client can be served: these streams were closed at the start: {names_closed}",
                "an MCP client starts it with pipes; for a server that keeps running use serve --http",
            )
        return wish


FaceOptions = Annotated[Face, Combined(Face)]


def serve(
    source: Served,
    face: FaceOptions,
    http: options.ServeHttp = False,
    address: options.HttpAddress = None,
    portable_schemas: Annotated[
        bool, Option(help="Publish simplified input schemas instead of the servers' own.")
    ] = False,
    settle: Annotated[
        float | None,
        Option(metavar="SECONDS", min=0.0, help="How long the first list waits for new servers, 20 by default."),
    ] = None,
    name_budget: options.Budget = None,
    client_prefix: options.Prefix = None,
    locked: Annotated[
        bool, Option(help="Offer only what is in deck.lock, and exit when a server offers anything else.")
    ] = False,
    lock_file: Annotated[Path, Option(metavar="FILE", help="With --locked: the file.")] = Path("deck.lock"),
    group: options.Group = None,
    search: options.Search = False,
    as_client: Annotated[
        str | None,
        Option("--as", metavar="NAME", help="The client's name at servers that each client has for itself."),
    ] = None,
) -> None:
    """Publish the tools of every server, and native ones, as one MCP server, on stdio or over HTTP.

    On stdio a daemon serves, which all clients of a user share; it starts with the first of them. The end of stdin,
    SIGTERM or SIGINT end it; it outlives its terminal (SIGHUP does nothing), and follows changes of its files by
    itself.
    """
    wish = face.listens(http, address)
    budget = options.name_budget(name_budget, client_prefix)
    if locked:
        read_lock(str(lock_file))  # which says now what is wrong with it
    options.check_search(is_wanted=search)
    user = options.client_name(as_client)
    if user and wish is not None:
        raise UsageError("--as is for a client on stdio: over HTTP a client is called as its token", "leave out --as")
    if source.native is not None:
        options.native_wish(source.native)  # which says now what is wrong with it
    request = ServeRequest(
        cwd=working_directory(),
        config=tuple(os.path.abspath(path) for path in source.config),
        native=source.native,
        name_budget=budget.limit if budget is not None else None,
        settle_s=settle,
        lock_file=os.path.abspath(lock_file) if locked else None,
        portable_schemas=portable_schemas,
        allow_unsandboxed=source.allow_unsandboxed,
        groups=tuple(group or ()),
        search=search,
        user=user,
    )
    begin(request, face, wish, source.log_level, source.log_format)


def begin(
    request: ServeRequest, face: Face, wish: "HttpWish | None", log_level: LogLevel, log_format: LogFormat
) -> None:
    """Serve over HTTP, alone on stdio, or by the daemon; raise CommandError if that is impossible."""
    withhold = partial(set_up_logging, log_level, log_format)
    withhold(())
    if wish is None and sys.stdin.isatty():
        _log.info("serving on stdin and stdout: this is meant to be started by an MCP client, not by hand")
    if wish is not None or face.own:
        _serve_here(request, withhold, face, wish)
    else:
        _serve_by_daemon(request, log_level, log_format, withhold)


def _serve_here(
    request: ServeRequest,
    withhold: Withhold,
    face: Face,
    wish: "HttpWish | None" = None,
    left: "Interrupted | None" = None,
) -> None:
    """Serve our client on stdio, or over HTTP as it is wished, within this process; or raise CommandError.

    No line of a client on stdio was read yet, except in a session that was `left`.
    """
    if wish is None and left is None:
        from quarterdeck.host.stdio.client_streams import expect_client

        expect_client()
    from quarterdeck.config.load.file import ConfigFileError

    lock = read_lock(request.lock_file)
    with as_command_error(ConfigFileError, remedy="correct that file, or name another with -c FILE"):
        settings, http = read_found(request, os.environ), None
    withhold(settings.secrets)
    for warning in settings.warnings:
        _config_log.warning("%s", warning)
    if wish is not None:
        from .serve_http import plan_http

        settings, http = plan_http(
            withhold, settings, wish, needs_token=not face.no_token, announce=face.json, request=request
        )
    raise_open_files_limit()
    from quarterdeck.host.calls import GRACE_S, Drain

    drain_s = min(seconds_in(DRAIN_VARIABLE, GRACE_S), MAX_DRAIN_S)
    drain = Drain(drain_s, drain_s)
    with http.listener if http is not None and http.listener is not None else nullcontext():
        run_work(
            lambda: _serve(request, settings, http, lock, withhold, face, left, drain),
            outlives_terminal=True,
            hurry=drain.hurry.cancel,
        )


def _visit(request: ServeRequest, withhold: Withhold, daemon: "OtherDaemonError") -> NoReturn:
    """Serve our client next to an unreachable daemon that has the ledger; never returns."""
    from quarterdeck.daemon.door import answer_left, take_left
    from quarterdeck.tools import session_notes

    signal.signal(signal.SIGHUP, lambda *_: None)  # what is ignored would be so in what we start
    _log.warning("%s: %s", daemon, _ALONE)
    found = take_left(os.environ)
    left, noted = found or (None, b"")
    notes = session_notes.SessionNotes(lambda _: None, noted)
    session_notes.current.set(notes)
    if notes.lost:
        _log.warning("the daemon before this one ended, and with it: %s", notes.lost)
    try:
        _serve_here(request, withhold, Face(read_only=True), left=left)
    except CommandError as error:
        if left is not None:
            answer_left(left, f"{error.message}; {error.remedy}")
        raise
    sys.exit(ExitCode.OK)


def _serve_by_daemon(request: ServeRequest, log_level: LogLevel, log_format: LogFormat, withhold: Withhold) -> NoReturn:
    """Have the daemon serve our client, and wait for the end of the session."""
    from quarterdeck.config.places.paths import UnsafePathError, UnusableDirectoryError
    from quarterdeck.daemon.door import EndedError, NotAcceptedError, enter
    from quarterdeck.daemon.place import OtherDaemonError
    from quarterdeck.daemon.start import program
    from quarterdeck.host.stdio.client_streams import expect_client

    # Not by a handler: the client is served from the handover on, and what waits is another program then.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    come_back = [*program(_COME_BACK), *sys.argv[1:]]
    try:
        enter(request, come_back, log_level=number_of(log_level), log_is_json=is_json(log_format))
    except EndedError as end:
        sys.exit(end.code)
    except OtherDaemonError as error:
        _visit(request, withhold, error)
    except (NotAcceptedError, UnsafePathError) as error:
        expect_client()  # to tell the client why, too
        match error:
            case NotAcceptedError():
                what, remedy = error.message, error.remedy
            case UnusableDirectoryError():
                what, remedy = error.what, error.remedy
            case _:
                what, remedy = str(error), _ANOTHER_FOLDER
        raise CommandError(ExitCode.NO_ANSWER, what, remedy) from error


async def _serve(
    request: ServeRequest,
    settings: "Settings",
    http: "HttpPlan | None",
    lock: "DeckLock | None",
    withhold: Withhold,
    face: Face,
    left: "Interrupted | None" = None,
    drain: "Drain | None" = None,
) -> None:
    """Serve until the client leaves."""
    from time import monotonic

    from quarterdeck.common.events import Bus
    from quarterdeck.common.imports import imported
    from quarterdeck.config.load.own_keys import NO_TELEMETRY
    from quarterdeck.config.places.paths import UnsafePathError
    from quarterdeck_protocol.faults import ProtocolFault
    from quarterdeck_protocol.tools import ANONYMOUS
    from quarterdeck_sandbox import give_back_large_blocks

    give_back_large_blocks()
    try:
        async with AsyncExitStack() as stack:
            bus, visits, is_http = Bus(), face.read_only, http is not None
            opening = start_product(settings, serves=not visits, visits=visits, lock=lock, http=is_http, bus=bus)
            product = await stack.enter_async_context(opening)
            # Only now: the zygote was started first.
            from quarterdeck.daemon.control.server import open_control

            from .serve_watch import changes_logged, following

            if not visits:  # commands are answered by the daemon
                await stack.enter_async_context(open_control(product))
            read = partial(read_request, request, os.environ)
            await stack.enter_async_context(following(product, read, withhold))
            if is_http or face.metrics or not os.environ.keys().isdisjoint(_EXPORTERS):
                from quarterdeck.telemetry.faces import Telemetry

                telemetry = Telemetry(bus, lambda: [("", "", product)])
                stack.push_async_callback(telemetry.close)
                await telemetry.send(NO_TELEMETRY, os.environ)
                if face.metrics:
                    await telemetry.listen(face.metrics)
                    if telemetry.problem:
                        raise UsageError(f"metrics cannot be served: {telemetry.problem}", "for example --metrics 9464")
            user = request.user
            client = msgspec.structs.replace(ANONYMOUS, name=user, is_searched=request.search, user=user)
            client = product.groups.narrow(client, request.groups)
            _log.info("serving (servers: %d, pid %d)", len(product.status()), os.getpid())
            if (native := settings.native) is not None:
                from quarterdeck.tools.catalogue import PROFILE_NAMES

                _log.info("native tools of the profile %s in %s", PROFILE_NAMES[native.profile], native.workspace)
            with changes_logged(product):
                # In a thread: the servers start meanwhile.
                await imported(f"quarterdeck.host.{'http' if is_http else 'stdio'}.serve")
                since = monotonic() if http is None else None
                host = product.create_host(portable_schemas=request.portable_schemas, greeted_at=since)
                stack.callback(host.close)
                collect_rarely()
                if http is None:
                    serving = _serve_stdio(host, left, client, drain)
                else:
                    from .serve_http import serve_over_http

                    serving = serve_over_http(product, host, http, drain, telemetry.scrape, has_ledger=not visits)
                if lock is None:
                    await serving
                else:
                    from .serve_watch import serve_locked

                    await serve_locked(product, lock, serving)
    except UnsafePathError as error:
        raise UsageError(str(error), _ANOTHER_FOLDER) from error
    except ProtocolFault as fault:
        raise cannot_serve(fault) from None


async def _serve_stdio(
    host: "ProviderHostImpl", left: "Interrupted | None", client: "Client", drain: "Drain | None"
) -> None:
    from quarterdeck.host.stdio.client_streams import client_is_served
    from quarterdeck.host.stdio.serve import serve_stdio

    client_is_served()
    await serve_stdio(host, interrupted=left, client=client, drain=drain)
    _log.info("the client has left")


def run(
    command: Annotated[list[str], Argument(metavar="-- COMMAND…", help="The server's command line.")],
    wish: Wish,
    face: FaceOptions,
    trust: Annotated[
        str, Option(metavar="MODE", help="When a tool may be called: baseline, strict or open.")
    ] = "baseline",
    http: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Serve streamable HTTP there in place of stdio, within this process; port 0 lets the system choose.",
        ),
    ] = None,
    allow_unsandboxed: options.Unsandboxed = False,
    log_level: options.Level = LogLevel.INFO,
    log_format: options.Format = LogFormat.AUTO,
) -> None:
    """Serve one MCP server by its command line, on stdio or over HTTP: isolated, its tools under their own names.

    Put it before a command in any client's configuration. Without options the server sees its own home, its program and
    the internet. Its id, by which logs, ps and trust know it, is the name of its package or program and six digits of
    its command line; what it keeps and what was approved of it last from start to start.
    """
    http_wish = face.listens(http is not None, http)
    options.check_inherited(wish.inherit_env)
    request = ServeRequest(
        cwd=working_directory(),
        command=CommandRequest(
            words=tuple(command), sandbox=wish.sandbox, trust=trust, env=dict(wish.env), inherit_env=wish.inherit_env
        ),
        name_budget=DEFAULT_LIMIT,
        allow_unsandboxed=allow_unsandboxed,
    )
    begin(request, face, http_wish, log_level, log_format)
