"""A server's process that a test plays: real pipes, no process."""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping

import anyio
from support.sandbox.bare_confinements import bare_confinement
from support.servers.greetings import METHOD_NOT_FOUND, Answer, JsonObject

from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.policy_values import NetworkMode, Tier
from quarterdeck_sandbox.policy.limits import ProcessTree
from quarterdeck_sandbox.policy.promises import Receipt


class PlayedProcess:
    """Stands for a `ConfinedProcess`; `says`, `complains`, `hangs_up` and `dies` are the server's part."""

    pid = 4711
    confinement = bare_confinement(tier=Tier.LIMITS, network=NetworkMode.FULL)
    failed_connections: tuple[str, ...] = ()
    receipt = Receipt(Tier.LIMITS, {}, network="full", gaps=("it is played",))

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        """Make the pipes; with `answers` (see `scripted_session`) its requests are answered by themselves."""
        self._hears, self.stdin_fd = os.pipe()
        self.stdout_fd, self._says = os.pipe()
        self.stderr_fd, self._complains = os.pipe()
        for fd in (self._hears, self.stdin_fd, self.stdout_fd, self._says, self.stderr_fd):
            os.set_blocking(fd, False)
        self.answers = answers
        self.asked: list[JsonObject] = []
        self.returncode: int | None = None
        self.limit: str | None = None
        self.stopped: list[float] = []
        self.is_released = False
        self._ended = anyio.Event()
        self._network = anyio.Event()
        self._partial = b""
        self._loop = asyncio.get_running_loop()
        if answers is not None:
            self._loop.add_reader(self._hears, self._hear)

    def tree(self, scratch: tuple[str, ...]) -> ProcessTree:
        return ProcessTree(self.pid, self.pid, scratch=scratch)

    def kill_for(self, limit: str) -> None:
        if self.returncode is None:
            self.limit = limit
            self.dies(-9)

    async def network_lost(self) -> str:
        await self._network.wait()
        return "slirp4netns was killed by SIGKILL"

    def network_ends(self) -> None:
        self._network.set()

    def dossier(self, stderr_tail: str, hints: Iterable[str]) -> Dossier:
        has_ended, code = self.returncode is not None, self.returncode or 0
        return Dossier(
            exit_status=self.returncode if code >= 0 else None,
            signal=-code if code < 0 else None,
            limit=self.limit,
            stderr_tail=stderr_tail,
            peak_rss_bytes=1_000_000 if has_ended else None,
            peak_is_sampled=has_ended,
            cpu_s=0.25 if has_ended else None,
            uptime_s=1.5,
            hints=tuple(hints),
        )

    def kill(self) -> None:
        if self.returncode is None:
            self.dies(-9)

    def look(self) -> None:
        """See how much memory it uses: as much as the test said."""

    def says(self, *messages: JsonObject) -> None:
        for message in messages:
            self.writes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def writes(self, data: bytes) -> None:
        os.write(self._says, data)

    def complains(self, data: bytes) -> None:
        os.write(self._complains, data)

    def hangs_up(self) -> None:
        self._close("_says")

    def closes_stderr(self) -> None:
        self._close("_complains")

    def dies(self, returncode: int) -> None:
        """Its process is gone, and its ends of the pipes."""
        self.returncode = returncode
        self._ended.set()
        for name in ("_hears", "_says", "_complains"):
            self._close(name)

    def _close(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)
            setattr(self, name, -1)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def stop(self, grace_s: float) -> None:
        self.stopped.append(grace_s)
        if self.returncode is None:
            self.dies(0)

    def close_fds(self) -> None:
        self.is_released = True
        for name in ("stdin_fd", "stdout_fd", "stderr_fd"):
            self._close(name)

    def _hear(self) -> None:
        data = os.read(self._hears, 1 << 20)
        if not data:
            self._loop.remove_reader(self._hears)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            message: JsonObject = json.loads(line)
            self.asked.append(message)
            if "id" in message and "method" in message:
                self._answer(message)

    def _answer(self, message: JsonObject) -> None:
        assert self.answers is not None
        answer = self.answers.get(message["method"], METHOD_NOT_FOUND)
        reply = answer(message.get("params") or {}) if callable(answer) else answer
        if reply is not None and self._says >= 0:
            self.says({"id": message["id"], **reply})
