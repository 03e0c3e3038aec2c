"""The daemon's process: its log, its ledger, its decks and doors; and when it ends.

It ends when nobody has been there for a while, unless it was told to stay, at SIGTERM, or by an order; one order leaves
its doors waiting, which go through the next daemon.  Calls under way may end first; another SIGTERM hurries them.
"""

import argparse
import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from quarterdeck.app import COMMAND_WAIT_S, Shared, make_holder, open_quarterdeck
from quarterdeck.cli.configure.client_tokens import deck_names, tokens_path
from quarterdeck.cli.exits import CommandError, ExitCode, ledger_error
from quarterdeck.cli.log_setup import OURS, LineFormatter
from quarterdeck.cli.process import DRAIN_VARIABLE, MAX_DRAIN_S, collect_rarely, seconds_in
from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.imports import imported
from quarterdeck.common.local_socket import read_key
from quarterdeck.common.shielding import cancelled, carried_through
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.own_keys import NO_TELEMETRY
from quarterdeck.config.places.paths import UnsafePathError, configuration_digest, state_dir
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control.protocol import Answer, OpenPage, Refusal, Refused, Request
from quarterdeck.daemon.control.recording import Decisions
from quarterdeck.daemon.control.server import answering, open_control
from quarterdeck.daemon.decks import LINGER_S, Decks, RefusalError, current_deck, current_name
from quarterdeck.daemon.http_listening import HttpListening
from quarterdeck.daemon.messages import Order, ServeRequest
from quarterdeck.daemon.place import (
    KEY_NAME,
    SOCKET_NAME,
    StartTimeoutError,
    daemon_dir,
    remove,
    socket_mark,
    start_lock,
    tell_process,
    vacate,
)
from quarterdeck.daemon.server import DoorServer
from quarterdeck.daemon.start import log_path
from quarterdeck.fleet.shared_servers import on_behalf_of
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck.host.calls import GRACE_S, Drain
from quarterdeck.ledger.errors import LedgerError
from quarterdeck.ledger.open import LedgerWriter, open_recorder
from quarterdeck.ledger.store.lease import DAEMON, LeaseHeldError
from quarterdeck.running_product import Product
from quarterdeck.telemetry.faces import Telemetry
from quarterdeck_protocol.event_loop import new_event_loop
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_sandbox import give_back_large_blocks, raise_open_files_limit

from .daemon_http import keep_wish, kept_wish, make_options, own_wishes
from .request import read_found, read_lock, read_request
from .serve_watch import changes_logged, drifted, following, serve_locked

if TYPE_CHECKING:
    from quarterdeck.page.listener import Page
    from quarterdeck.trust.lock.lockfile import DeckLock

LINGER_VARIABLE: Final = "QUARTERDECK_LINGER"
"""Seconds that a deck, and with the last one the daemon, stays after its last client."""

IDLE_S: Final = 5.0
"""Seconds that a daemon without a deck waits for a client: the one that started it comes at once."""

RETRY_S: Final = 0.05
"""Before the next try to leave, while somebody starts a daemon and finds this one."""

REFUSE_S: Final = 2.0
"""Seconds in which a daemon that cannot serve tells its clients why."""

LOG_BYTES: Final = 4 * 1024 * 1024
"""Size of one file of the log; there are two."""

_log = logging.getLogger("quarterdeck.daemon")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the daemon; the entry point of its process."""
    parser = argparse.ArgumentParser(prog="quarterdeck daemon")
    parser.add_argument("--listener", type=int, required=True)
    options = parser.parse_args(arguments)
    listener = socket.socket(fileno=options.listener)
    os.set_inheritable(listener.fileno(), False)  # noqa: FBT003 - takes no keyword
    serve(Entrance(listener, daemon_dir()))


def serve(entrance: "Entrance") -> NoReturn:
    """Be the daemon, from here to the end of the process."""
    signal.signal(signal.SIGHUP, lambda *_: None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    raise_open_files_limit()
    give_back_large_blocks()
    collect_rarely()
    with entrance.listener, asyncio.Runner(loop_factory=new_event_loop) as runner:
        sys.exit(runner.run(_run(entrance, seconds_in(LINGER_VARIABLE, LINGER_S))))


@dataclass(frozen=True, slots=True)
class Entrance:
    """The socket of the stdio clients, and its directory.

    Attributes:
        is_managed: whether a service manager started this daemon, which then stays.
        is_lent: whether the socket is the service manager's, and outlives this daemon.
    """

    listener: socket.socket
    directory: Path
    is_managed: bool = False
    is_lent: bool = False


class DaemonLog:
    """The daemon's log, a file that is kept small; each deck's clients get the lines that concern it."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._file = RotatingFileHandler(log_path(), maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        self._doors = _DoorHandler()
        root = logging.getLogger()
        root.handlers[:] = [self._file, self._doors]
        root.setLevel(logging.WARNING)
        logging.getLogger(OURS).setLevel(logging.INFO)
        logging.captureWarnings(capture=True)
        self.withhold(())

    def withhold(self, secrets: Collection[str]) -> None:
        """Keep these too out of every line from here on."""
        self._secrets.update(secrets)
        self._file.setFormatter(LineFormatter(is_json=True, secrets=self._secrets))
        self._doors.plain = LineFormatter(is_json=False, secrets=self._secrets)
        self._doors.as_json = LineFormatter(is_json=True, secrets=self._secrets)

    def follow(self, server: DoorServer) -> None:
        """Send the lines of a deck to its clients."""
        self._doors.server = server


class _DoorHandler(logging.Handler):
    server: DoorServer | None = None
    plain: LineFormatter
    as_json: LineFormatter

    def emit(self, record: logging.LogRecord) -> None:
        decks = {context.get(current_deck, "") for context in on_behalf_of()} - {""}
        if self.server is not None and decks:
            plain = cache(lambda: f"{self.plain.format(record)}\n")
            as_json = cache(lambda: f"{self.as_json.format(record)}\n")
            for deck in decks:
                self.server.log(deck, record.levelno, plain, as_json)


@dataclass(frozen=True, slots=True)
class ServedDeck:
    """An open deck; a session of a locked one ends if a server offers something that the lock does not name."""

    product: Product
    lock: "DeckLock | None"

    @property
    def problem(self) -> str:
        """The difference from the lock in words; empty for none."""
        error = drifted(self.product, self.lock) if self.lock is not None else None
        return f"{error.message}; {error.remedy}" if error is not None else ""

    async def guard(self, serving: Coroutine[None, None, None]) -> None:
        """Run `serving`, and end it with an error if a server of a locked deck differs from the lock."""
        if self.lock is None:
            await serving
        else:
            await serve_locked(self.product, self.lock, serving)


async def _run(entrance: Entrance, linger_s: float) -> int:
    task = asyncio.current_task()
    assert task is not None
    _on_signal(task.cancel)
    log = DaemonLog()
    with ExitStack() as leaving:
        try:
            tell_process(entrance.directory)
            await _serve(entrance, log, linger_s, leaving)
        except asyncio.CancelledError:
            _log.info("told to end")
        except Exception as error:
            refusal = to_refusal(error)
            if refusal is None:
                _log.exception("the daemon cannot go on")
                return ExitCode.INTERNAL
            _log.error("%s", ": ".join(filter(None, (refusal.message, refusal.remedy))))
            await _refuse_all(entrance, refusal)
            return refusal.code
        return ExitCode.OK


async def _serve(entrance: Entrance, log: "DaemonLog", linger_s: float, leaving: ExitStack) -> None:
    directory = entrance.directory
    async with AsyncExitStack() as stack:
        runtime = await Runtime.acquire(configuration_digest((state_dir(),)))
        stack.push_async_callback(carried_through, runtime.release)
        holder = make_holder(runtime.directory, command=DAEMON)
        opening = open_recorder(state_dir(), holder, must_write=True, wait_s=COMMAND_WAIT_S)
        recorder = await stack.enter_async_context(opening)
        assert isinstance(recorder, LedgerWriter)
        shared = Shared(recorder)
        stack.push_async_callback(carried_through, shared.servers.close)
        decks = Decks(read_found, partial(_open_deck, shared, log), linger_s=linger_s, names=deck_names())
        stack.push_async_callback(carried_through, decks.close)
        drain = Drain(min(seconds_in(DRAIN_VARIABLE, GRACE_S), MAX_DRAIN_S))
        telemetry = Telemetry(shared.bus, decks.products)
        stack.push_async_callback(carried_through, telemetry.close)
        options = partial(make_options, log.withhold)
        http = HttpListening(decks, options, to_refusal, partial(keep_wish, directory), drain, telemetry.scrape)
        stack.push_async_callback(carried_through, http.close)
        key = read_key(directory / KEY_NAME)
        server = DoorServer(entrance.listener, key, decks, to_refusal, http, drain, telemetry)
        commands = _Commands(shared, decks, server)
        stack.push_async_callback(carried_through, commands.close)
        await stack.enter_async_context(answering(runtime.directory, commands.answer))
        if entrance.is_managed:
            server.obey(Order.STAY)
        log.follow(server)
        mark = socket_mark(directory) if not entrance.is_lent else None
        _on_signal(lambda: server.obey(Order.END) if server.order is None else drain.hurry.cancel())
        serving = asyncio.create_task(server.run())
        _log.info("the daemon listens in %s (pid %d)", directory, os.getpid())
        opening_http = asyncio.create_task(_listen_first(server, http, telemetry, directory))
        try:
            while not (
                await _is_wanted_no_more(server, decks, commands) and await _has_left(server, directory, mark, leaving)
            ):
                pass
        finally:
            await cancelled(opening_http)
            if server.order is Order.REPLACE:
                http.hand_on()
            else:
                drain.begin()
            # Concurrently with the doors: both may wait for calls to end.
            closing_http = asyncio.create_task(http.close())
            await cancelled(serving)
            await carried_through(partial(asyncio.wait, [closing_http]))


async def _listen_first(server: DoorServer, http: HttpListening, telemetry: Telemetry, directory: Path) -> None:
    """Listen where no command has to ask for it."""
    own: HttpWish | RefusalError | None
    kept, told = await asyncio.to_thread(kept_wish, directory), NO_TELEMETRY
    try:
        own, told = await asyncio.to_thread(own_wishes)
    except ConfigFileError as error:
        own = RefusalError(ExitCode.USAGE, str(error), "correct that file: quarterdeck config check says more")
    await telemetry.send(told, os.environ)
    if told.metrics:
        await telemetry.listen(told.metrics)
    wish = kept.wish if kept is not None else own
    await http.begin(wish, succeeds=kept is not None and kept.was_there)
    server.changed.set()  # it may stay now


class _Commands:
    """Answers commands that are asked of the daemon, not of a deck, and has the page."""

    def __init__(self, shared: Shared, decks: Decks, server: DoorServer) -> None:
        self._shared = shared
        self._decks = decks
        self._server = server
        self._decisions = Decisions(shared.recorder, shared.common)
        self._page: Page | None = None

    @property
    def page_is_used(self) -> bool:
        return self._page is not None and self._page.is_used

    async def answer(self, request: Request) -> Answer:
        if not isinstance(request, OpenPage):
            return await self._decisions.answer(request)
        # Only now: what it takes is imported for those who look at it.
        await imported("quarterdeck.page.listener")
        from quarterdeck.page.listener import Page

        if self._page is None:
            self._page = Page(
                self._shared, self._decks, self._server.status, self._decisions.decide, to_refusal, tokens_path()
            )
        try:
            return await self._page.link(request)
        except OSError as error:
            return Refused(Refusal.INTERNAL, f"the page cannot listen on loopback: {error.strerror or error}")

    async def close(self) -> None:
        if self._page is not None:
            await self._page.close()


async def _is_wanted_no_more(server: DoorServer, decks: Decks, commands: _Commands) -> bool:
    """Wait for a change, or until idle for a while. Return whether the daemon may end."""
    server.changed = decks.changed = changed = asyncio.Event()
    if server.order is not None:
        return True
    is_idle = server.is_idle and not len(decks) and not server.stays and not commands.page_is_used
    try:
        async with asyncio.timeout(IDLE_S if is_idle else None):
            await changed.wait()
    except TimeoutError:
        return True
    return server.order is not None


def _on_signal(act: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, act)


async def _has_left(server: DoorServer, directory: Path, mark: tuple[int, int] | None, leaving: ExitStack) -> bool:
    """Take the socket's name away. Return whether no client came at the last moment.

    The lock is held until the process has ended: a new client waits, and starts another daemon.
    """
    if mark is None or socket_mark(directory) != mark:
        # Somebody removed it, or lent it to us: no door finds us by it, or it is another's.
        return server.order is not None or not server.take_waiting()
    with ExitStack() as locked:
        try:
            locked.enter_context(start_lock(directory, 0.0))
        except StartTimeoutError:
            await asyncio.sleep(RETRY_S)
            return False  # somebody is about to come
        hidden = directory / f".{SOCKET_NAME}"
        os.rename(directory / SOCKET_NAME, hidden)
        if server.order is None and server.take_waiting():
            os.rename(hidden, directory / SOCKET_NAME)
            return False
        leaving.push(locked.pop_all())
        # The next daemon listens on HTTP where this one did, whether a door or a command starts it.
        leaving.callback(vacate if server.order is Order.REPLACE else remove, directory)
        return True


@asynccontextmanager
async def _open_deck(
    shared: Shared, log: DaemonLog, request: ServeRequest, environ: Mapping[str, str], settings: Settings
) -> AsyncIterator[ServedDeck]:
    log.withhold(settings.secrets)
    for warning in settings.warnings:
        _log.warning("%s", warning)
    lock = read_lock(request.lock_file)
    async with (
        open_quarterdeck(settings, serves=True, lock=lock, shared=shared, deck=current_deck.get()) as product,
        open_control(product, current_name.get()),
        following(product, partial(read_request, request, environ), log.withhold),
    ):
        with changes_logged(product):
            yield ServedDeck(product, lock)


async def _refuse_all(entrance: Entrance, refusal: RefusalError) -> None:
    def read(*_: object) -> Settings:
        raise refusal

    @asynccontextmanager
    async def open_none(*_: object) -> AsyncIterator[ServedDeck]:
        raise refusal
        yield

    key = read_key(entrance.directory / KEY_NAME)
    server = DoorServer(entrance.listener, key, Decks(read, open_none), to_refusal)
    server.refusal = refusal.message
    serving = asyncio.create_task(server.run())
    await asyncio.sleep(REFUSE_S)
    serving.cancel()
    await asyncio.wait([serving])


def to_refusal(error: Exception) -> RefusalError | None:
    """Return what a user is told of this error; None for a bug of ours."""
    match error:
        case RefusalError():
            return error
        case CommandError():
            return RefusalError(error.code, error.message, error.remedy)
        case ConfigFileError():
            return RefusalError(ExitCode.USAGE, str(error), "correct that file, or name another with -c FILE")
        case LeaseHeldError():
            return RefusalError(ExitCode.USAGE, str(error), "")  # it says what to do
        case LedgerError():
            return to_refusal(ledger_error(error))
        case UnsafePathError() | OSError():
            return RefusalError(
                ExitCode.USAGE,
                plain_words(error),
                "make it a folder of your own that can be written, or name another: --state-dir DIR",
            )
        case _:
            return None
