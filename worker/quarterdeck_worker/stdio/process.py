"""A stdio server's process with its three pipes: an MCP connection, stderr kept, death noticed and explained."""

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

import anyio
import msgspec

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S, OpenOrder
from quarterdeck_protocol.mcp.client.events import GreetingFailed, with_hint
from quarterdeck_protocol.mcp.jsonrpc import SplitResult, texts_of, with_notice
from quarterdeck_protocol.moments import REST_S, last_moment
from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_protocol.secrets import Redactor, only_origins
from quarterdeck_sandbox import (
    HOME_NOTE,
    Caught,
    ConfinedProcess,
    Denial,
    HookGuard,
    StderrKeeper,
    find_denial,
    infer_hints,
    quarantine_notice,
    signal_name,
)
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.pages import give_back
from quarterdeck_worker.server import Outcome, ServerRun, first_of

from .pipe import READ_BYTES, ServerPipe

LAST_WORDS_S: Final = 0.2  # how long the pipes of a server that has ended are still read

MAX_PATH_CHARS: Final = 1024
"""Of a path among the arguments of a call; of a longer one no hint is given."""

MAX_ERROR_BYTES: Final = 4096
"""Of a result that may be an error though it is not marked as one."""

_SAYS_ERROR: Final = re.compile(
    r"does(?: not|n't) exist|[Nn]ot found|[Nn]o such file|[Pp]ermission denied|"
    r"[Cc](?:annot|ould not|an't) |[Ff]ailed to "
)

EXIT_AFTER_EOF_S: Final = 1.0
"""How long a server that closed its stdout may take to exit before it is said to have hung up alive."""

FIRST_LOOK_S: Final = 0.005
"""Between the first two looks, then twice as long each time: one that ends soon is measured, too."""

LOOK_S: Final = 2.0  # between two looks at the server's memory, for its dossier

QUIET_LOOK_S: Final = 2 * REST_S
"""The same, at most, while nothing is said to it or by it, and nothing is owed: the kernel keeps the most memory that
it held.  The first byte ends the quiet, so that what it writes is judged as soon as ever."""

JUNK_LINES_LOGGED: Final = 20
"""Lines on stdout that are no MCP, kept in the log for the server's author; the rest is only counted."""

JUNK_LINE_BYTES: Final = 300

HINTS: Final = {
    126: "its command found a program that is not executable",
    127: "its command could not find a program",
    -signal.SIGKILL: "it was killed from outside, perhaps by the system because memory ran out",
    -signal.SIGSEGV: "it crashed in native code",
    -signal.SIGABRT: "it aborted in native code",
}
"""What a return code says to who knows the system: a status of a shell's, or minus a signal."""


class ServerProcess:
    """A stdio server's process with its pipes.  Always `close` it."""

    def __init__(self, process: ConfinedProcess, limits: LimitValues, order: OpenOrder, run: ServerRun) -> None:
        self._process = process
        self._run = run
        self._limits = limits
        self._condemned = ""
        self._loop = asyncio.get_running_loop()
        self._stderr = StderrKeeper(order.log_path, Redactor(order.secrets))
        longest = min(order.max_result_bytes, limits.line_bytes or order.max_result_bytes)
        self._guard: HookGuard | None = None
        view = process.confinement.view
        if order.quarantine and (view.absent or view.repositories):
            self._guard = HookGuard(view, order.quarantine, order.server_id)
        self._allow = order.allow
        self._hint = ""
        self._failed: tuple[str, ...] = ()
        for line in view.shown:
            if line.startswith(HOME_NOTE):
                self._stderr.feed(f"[quarterdeck] {line}\n".encode("utf-8", "replace"))
        self.connection = Connection(order, run.notifier, self._end, self._log_junk, process.pid)
        self._pipe = ServerPipe(self.connection, process.stdin_fd, process.stdout_fd, max_line_bytes=longest)
        self.connection.begin(self._pipe)
        self._loop.add_reader(process.stderr_fd, self._read_stderr)
        self._network_loss = ""
        self._blindness = ""
        self._is_unwatched = asyncio.Event()
        self._watching = [
            self._loop.create_task(self._ending_loudly(watch)) for watch in (self._watch, self._watch_network)
        ]

    @property
    def returncode(self) -> int | None:
        """How it exited, as far as that is known."""
        return self._process.returncode

    def code_of_end(self, otherwise: str) -> str:
        """The code of what we ended it for; `otherwise` when it was not us."""
        if self._network_loss:
            return "network_lost"
        return "limit_hit" if self._process.limit else "worker_lost" if self._blindness else otherwise

    async def lost(self) -> FaultRecord:
        """Wait until the server is gone, or as good as gone, and say why."""
        await first_of(self._process.wait, self.connection.ended.wait, self._is_unwatched.wait)
        if (overflow := self._pipe.overflow) is not None:
            return self._record("result_too_large", f"a line on stdout exceeds {overflow.max_bytes:,} bytes")
        if not self.connection.ended.is_set():
            with anyio.move_on_after(LAST_WORDS_S):
                await self.connection.ended.wait()
        await self.settle()
        code = self.code_of_end("server_lost" if self.returncode is None else "exited")
        return self._record(code, self.describe_end())

    def condemn(self, limit: str, detail: str) -> None:
        """Kill the server because it passed a limit, which its dossier names."""
        self._condemned = detail
        self._process.kill_for(limit)

    async def _ending_loudly(self, watch: Callable[[], Awaitable[None]]) -> None:
        """End a server that nobody watches any more: it would be held to no limit, and look as if it were."""
        try:
            await watch()
        except Exception as error:
            self._blindness = f"{type(error).__name__}: {error}"
            self._stderr.feed(b"[quarterdeck] it cannot be watched any more: %s\n" % self._blindness.encode())
            self._is_unwatched.set()
            self._process.kill()

    async def _watch(self) -> None:
        """Look at it now and then; what it says on stdout is judged here, its tree by the supervisor's monitor."""
        limits, pipe, lines, since, pause_s = self._limits, self._pipe, -1, 0.0, FIRST_LOOK_S
        has_worked = True
        while True:
            self._process.look()
            self._look_for_hooks()
            self._look_for_failed_connections()
            now = self._loop.time()
            if self.connection.lines != lines or not pipe.waits_for_a_line:
                lines, since = self.connection.lines, now
            if limits.partial_line_s is not None and now - since > limits.partial_line_s:
                self.condemn("partial_line_s", f"a line had no end for {now - since:.0f} s")
            if limits.output_bytes is not None and pipe.bytes_read > limits.output_bytes:
                self.condemn("output_bytes", f"it wrote {pipe.bytes_read:,} bytes on stdout")
            is_quiet = self.connection.is_at_rest and not pipe.waits_for_a_line and not pipe.stirred.is_set()
            if pause_s == LOOK_S and is_quiet:
                if has_worked:
                    has_worked = False
                    give_back()
                with anyio.CancelScope(deadline=last_moment(now + QUIET_LOOK_S, os.getpid(), QUIET_LOOK_S / 2)):
                    await pipe.stirred.wait()
                if not pipe.stirred.is_set():
                    continue
            has_worked |= pipe.stirred.is_set()
            pipe.stirred.clear()
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)

    async def _watch_network(self) -> None:
        """End a server whose network is gone: it would answer every call with errors of its own, and look ready."""
        why = await self._process.network_lost()
        self._network_loss = why
        self._process.kill()

    def not_greeted(self, outcome: GreetingFailed | None) -> FaultRecord:
        """Why it is of no use: what came of the greeting, None when its pipes ended first; after `settle`."""
        connection, cause = self.connection, None
        if outcome is not None and outcome.is_echo:
            code, message = "not_mcp", "the program sent our own request back, as `cat` does: it is no MCP server"
        elif self._pipe.overflow is not None:
            code, message = "bad_output", str(self._pipe.overflow)
        elif connection.ended.is_set() or outcome is None:
            code = self.code_of_end("handshake_failed" if self.returncode is None else "exited_at_handshake")
            message = f"{self.describe_end()} before it answered the handshake"
            if self.returncode == 0:
                message += "; an MCP server runs until its stdin is closed, so this is probably none"
        else:
            code, message = "handshake_failed", f"the handshake failed: {only_origins(outcome.message)}"
            cause = RemoteCause("MCPError", only_origins(outcome.message))
        return FaultRecord(FaultKind.SPAWN_FAILED, message, code, Delivery.NOT_SENT, cause, self.dossier())

    async def settle(self) -> None:
        """Give a server that hung up a moment to exit, so that its end can be told."""
        if self.connection.ended.is_set() and self._pipe.overflow is None:
            with anyio.move_on_after(EXIT_AFTER_EOF_S):
                await self._process.wait()
        self._read_stderr()

    async def close(self) -> None:
        """Stop the process and everything it started, release the pipes; see `ConfinedProcess.stop`."""
        for watching in self._watching:
            watching.cancel()
        self._pipe.stop_writing()
        await self._process.stop(CLOSE_GRACE_S)
        self._look_for_hooks()
        self._pipe.close()
        self.connection.close()
        self._read_stderr()
        self._loop.remove_reader(self._process.stderr_fd)
        self._stderr.close()
        self._process.close_fds()

    def dossier(self) -> Dossier:
        """What is known of it by now."""
        code = self._process.returncode
        was_ended = self._process.limit is not None or self._network_loss or self._blindness
        hints = [HINTS[code]] if code in HINTS and not was_ended else []
        if self.connection.junk_lines == 1:
            hints.append("it wrote 1 line on stdout that is not an MCP message")
        elif self.connection.junk_lines:
            hints.append(f"it wrote {self.connection.junk_lines:,} lines on stdout that are not MCP messages")
        hints += infer_hints(self._stderr.tail, self._process.confinement)
        return self._process.dossier(self._stderr.tail, hints)

    def describe_end(self) -> str:
        """How it ended, in a sentence's end."""
        code = self._process.returncode
        if self._network_loss:
            return f"the server was ended because its network was gone ({self._network_loss})"
        if (limit := self._process.limit) is not None:
            return f"the server hit its limit {limit}" + (f": {self._condemned}" if self._condemned else "")
        if self._blindness:
            return f"the server was ended because it could not be watched any more ({self._blindness})"
        if code is None:
            return "the server closed its stdout and goes on running"
        if code >= 0:
            return f"the server exited with status {code}"
        return f"the server was killed by {signal_name(-code)}"

    def _record(self, code: str, message: str) -> FaultRecord:
        return FaultRecord(FaultKind.TRANSPORT, message, code=code, delivery=Delivery.UNKNOWN, dossier=self.dossier())

    def _read_stderr(self) -> None:
        for _ in range(16):
            try:
                data = os.read(self._process.stderr_fd, READ_BYTES)
            except (BlockingIOError, OSError):
                return
            if not data:
                self._loop.remove_reader(self._process.stderr_fd)
                return
            self._stderr.feed(data)

    def _end(self, request_id: int, outcome: Outcome) -> None:
        """Take away files that the server created for other programs to run, and say so in its answer.

        An error about a path which the user may grant gets a line with the command.
        """
        caught, arguments = self._look_for_hooks(), self.connection.take_arguments(request_id)
        if isinstance(outcome, SplitResult):
            if caught:
                outcome = with_notice(outcome, quarantine_notice(caught))
            if (error := _error_of(outcome, arguments)) and (denial := self._denial(error, arguments)):
                outcome = with_notice(outcome, self._hint_about(denial), is_last=True)
                outcome = msgspec.structs.replace(outcome, denied=str(denial))
        elif outcome.reply and (denial := self._denial(outcome.reply.message, arguments)):
            outcome = replace(with_hint(outcome, self._hint_about(denial)), denied=str(denial))
        self._run.on_end(request_id, outcome)

    def _denial(self, error: str, arguments: bytes) -> Denial | None:
        """Return what was denied to a call that failed, by the error's words; else by the paths that it was given."""
        return find_denial(error, self._process.confinement, _paths_of(arguments))

    def _hint_about(self, denial: Denial) -> str:
        """Return the hint for the caller; tell the supervisor and the log of it unless they were just told the same."""
        hint = denial.hint(self._allow)
        self._tell(hint)
        return hint

    def _tell(self, hint: str) -> None:
        if hint != self._hint:
            self._hint = hint
            self._run.notifier.hinted(hint)
            self._stderr.feed(f"[quarterdeck] {hint}\n".encode("utf-8", "replace"))

    def _look_for_failed_connections(self) -> None:
        """Tell why listed hosts were not reached; not its callers: whoever owns a name could learn addresses so."""
        failed = self._process.failed_connections
        if failed != self._failed:
            self._failed = failed
            self._tell(failed[-1])

    def _look_for_hooks(self) -> tuple[Caught, ...]:
        if self._guard is None:
            return ()
        caught = self._guard.look()
        for each in caught:
            self._run.notifier.quarantined(each)
            self._stderr.feed(f"[quarterdeck] {each.told}\n".encode("utf-8", "replace"))
        return caught

    def _log_junk(self, line: bytes) -> None:
        if self.connection.junk_lines <= JUNK_LINES_LOGGED:
            self._stderr.feed(b"[quarterdeck] not MCP on stdout: %s\n" % line[:JUNK_LINE_BYTES])


def _error_of(result: SplitResult, arguments: bytes) -> str:
    """Return what a tool's result says of an error; empty if there was none.

    Some servers return their errors as if nothing had failed: a short text counts that says so of what the call named.
    """
    if result.is_error:
        return texts_of(result)
    if len(result.body) > MAX_ERROR_BYTES or not (given := [*_paths_of(arguments)]):
        return ""
    text = texts_of(result)
    # Some name the folder that they miss.
    named = (path if path.count("/") == 1 else os.path.dirname(path) for path in given)
    return text if _SAYS_ERROR.search(text) and any(path in text for path in named) else ""


def _paths_of(arguments: bytes) -> Iterator[str]:
    """Yield what a call was given that is a path and nothing else."""
    try:
        given = msgspec.json.decode(arguments or b"{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for value in given.values():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str) and len(each) <= MAX_PATH_CHARS and each.startswith(("/", "~/", "file:///")):
                yield unquote(each.removeprefix("file://")) if each.startswith("file:") else each
