"""A stdio server's process with its three pipes: lines for the session, stderr kept, death noticed and explained."""

import asyncio
import os
import signal
from typing import Final

import anyio

from quarterdeck_protocol.configs import CLOSE_GRACE_S, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.frames import OpenOrder
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox.hints import infer_hints
from quarterdeck_sandbox.process import ConfinedProcess
from quarterdeck_sandbox.stderr import StderrKeeper
from quarterdeck_worker.news import Newsroom
from quarterdeck_worker.pipe import READ_BYTES
from quarterdeck_worker.stdio import StdioLines
from quarterdeck_worker.waiting import first_of

LAST_WORDS_S: Final = 0.2
"""How long the pipes of a dead server are still read: what it wrote before it died counts."""

EXIT_AFTER_EOF_S: Final = 1.0
"""How long a server that closed its stdout may take to exit before it is said to have hung up alive."""

FIRST_LOOK_S: Final = 0.005
"""Between the first two looks, then twice as long each time: one that dies young has a story too."""

LOOK_S: Final = 2.0
"""Between two looks at the server's memory, for its dossier."""

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
    """See the module.  `close` must be called in the end, whatever happened."""

    def __init__(
        self, process: ConfinedProcess, config: StdioServerConfig, order: OpenOrder, newsroom: Newsroom
    ) -> None:
        self._process = process
        self._limits = config.sandbox.limits
        self._condemned = ""
        self._loop = asyncio.get_running_loop()
        self._stderr = StderrKeeper(order.log_path, Redactor(order.secrets))
        longest = min(config.max_result_bytes, self._limits.line_bytes or config.max_result_bytes)
        self.lines = StdioLines(process.stdin_fd, process.stdout_fd, newsroom, max_line_bytes=longest)
        self.lines.on_junk = self._log_junk
        self._loop.add_reader(process.stderr_fd, self._read_stderr)
        self._watching = self._loop.create_task(self._watch())
        self._network_loss = ""
        self._watching_network = self._loop.create_task(self._watch_network())

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether it is known how it ended."""
        return self._process.returncode is not None

    @property
    def has_ended_well(self) -> bool:
        """Whether it has exited with status 0."""
        return self._process.returncode == 0

    def code_of_end(self, otherwise: str) -> str:
        """The code of what we ended it for; `otherwise` when it was not us."""
        return "network_lost" if self._network_loss else "limit_hit" if self._process.limit else otherwise

    def refusal(self) -> FaultRecord | None:
        """Why it cannot be sent a call now; None when it can."""
        pipe = self.lines.pipe
        if not pipe.is_heard:
            code, message = "server_lost", "the server has closed its stdin"
        elif not pipe.can_write:
            code, message = "busy", "the server does not read what it is sent"
        else:
            return None
        return FaultRecord(FaultKind.TOOL_ERROR, message, code, Delivery.NOT_SENT)

    async def lost(self) -> FaultRecord:
        """Wait until the server is gone, or as good as gone, and say why."""
        await first_of(self._process.wait, self.lines.ended.wait)
        if self.lines.overflow is not None:
            return self._record("result_too_large", f"a line on stdout exceeds {self.lines.overflow.max_bytes:,} bytes")
        if not self.lines.ended.is_set():
            with anyio.move_on_after(LAST_WORDS_S):
                await self.lines.ended.wait()
        await self.settle()
        code = self.code_of_end("exited" if self.has_exited else "server_lost")
        return self._record(code, self.describe_end())

    def condemn(self, limit: str, detail: str) -> None:
        """Kill the server because it passed a limit, which its dossier names."""
        self._condemned = detail
        self._process.condemn(limit)

    async def _watch(self) -> None:
        """Look at it now and then; what it says on stdout is judged here, its tree by the supervisor's monitor."""
        limits, lines, since, pause_s = self._limits, -1, 0.0, FIRST_LOOK_S
        while True:
            self._process.look()
            now = self._loop.time()
            if self.lines.sorted_lines != lines or not self.lines.pipe.waits_for_a_line:
                lines, since = self.lines.sorted_lines, now
            if limits.partial_line_s is not None and now - since > limits.partial_line_s:
                self.condemn("partial_line_s", f"a line had no end for {now - since:.0f} s")
            if limits.output_bytes is not None and self.lines.pipe.bytes_read > limits.output_bytes:
                self.condemn("output_bytes", f"it wrote {self.lines.pipe.bytes_read:,} bytes on stdout")
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)

    async def _watch_network(self) -> None:
        """End a server whose network is gone: it would answer every call with errors of its own, and look ready."""
        why = await self._process.network_lost()
        self._network_loss = why
        self._process.kill()

    async def settle(self) -> None:
        """Give a server that hung up a moment to exit, so that its end can be told."""
        if self.lines.ended.is_set() and self.lines.overflow is None:
            with anyio.move_on_after(EXIT_AFTER_EOF_S):
                await self._process.wait()
        self._read_stderr()

    async def close(self) -> None:
        """Stop the process and everything it started, release the pipes; see `ConfinedProcess.stop`."""
        self._watching.cancel()
        self._watching_network.cancel()
        self.lines.pipe.stop_writing()
        await self._process.stop(CLOSE_GRACE_S)
        self.lines.pipe.close()
        self._read_stderr()
        self._loop.remove_reader(self._process.stderr_fd)
        self._stderr.close()
        self._process.close_fds()

    def dossier(self) -> Dossier:
        """What is known of it by now."""
        code = self._process.returncode
        limit = self._process.limit
        hints = [HINTS[code]] if code in HINTS and limit is None and not self._network_loss else []
        if self.lines.junk_lines:
            hints.append(_describe_junk(self.lines.junk_lines))
        hints += infer_hints(self._stderr.tail, self._process.confinement)
        return Dossier(
            exit_status=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            limit=limit,
            stderr_tail=self._stderr.tail,
            peak_rss_bytes=self._process.peak_rss_bytes,
            peak_is_sampled=self._process.peak_is_sampled,
            cpu_s=self._process.cpu_s,
            uptime_s=self._process.uptime_s,
            hints=tuple(hints),
        )

    def describe_end(self) -> str:
        """How it ended, in a sentence's end."""
        code = self._process.returncode
        if self._network_loss:
            return f"the server was ended because its network was gone ({self._network_loss})"
        if (limit := self._process.limit) is not None:
            return f"the server hit its limit {limit}" + (f": {self._condemned}" if self._condemned else "")
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

    def _log_junk(self, line: bytes) -> None:
        if self.lines.junk_lines <= JUNK_LINES_LOGGED:
            self._stderr.feed(b"[quarterdeck] not MCP on stdout: %s\n" % line[:JUNK_LINE_BYTES])


def _describe_junk(count: int) -> str:
    if count == 1:
        return "it wrote 1 line on stdout that is not an MCP message"
    return f"it wrote {count:,} lines on stdout that are not MCP messages"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
