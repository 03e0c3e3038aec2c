"""Programs of ours that cost a fork and not a start: see `fork_server`.  For tests whose subject is what happens then.

They are processes of their own, under the user and with the descriptors that a test says.  What starting anew itself
must do is tried by the tests that start `quarterdeck` as everybody does.
"""

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self

from support.processes.forked import START_S, Forked, ask
from support.processes.identities import Identity

TESTS: Final = Path(__file__).resolve().parents[2]

CHUNK_BYTES: Final = 64 * 1024


class Fork(Forked):
    """A fork with streams.  At a block's end it is waited for."""

    def __init__(self, process: Forked, stdin: int | None, stdout: int, stderr: int | None) -> None:
        super().__init__(process.pid, process.answers)
        self.stdin = None if stdin is None else open(stdin, "wb", buffering=0)  # noqa: SIM115 - closed by the block
        self.stdout = open(stdout, "rb")  # noqa: SIM115
        self.stderr = None if stderr is None else open(stderr, "rb")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if kind is not None:
            self.kill()
        self.wait(START_S)

    def communicate(self, given: bytes = b"", timeout: float = START_S) -> tuple[bytes, bytes]:
        """Give it this input and take all its output, up to the end of both; then it is waited for.

        Raises:
            subprocess.TimeoutExpired: that has not come within `timeout` seconds.
        """
        assert self.stderr is not None
        until = time.monotonic() + timeout
        found = {self.stdout.fileno(): bytearray(), self.stderr.fileno(): bytearray()}
        rest = memoryview(given)
        with selectors.DefaultSelector() as selector:
            for fd in found:
                selector.register(fd, selectors.EVENT_READ)
            if self.stdin is not None:
                os.set_blocking(self.stdin.fileno(), False)
                selector.register(self.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
                for key, _ in ready:
                    if key.fd in found:
                        data = os.read(key.fd, CHUNK_BYTES)
                        found[key.fd] += data
                        ended = not data
                    else:
                        rest = rest[_write(key.fd, rest) :]
                        ended = not rest
                    if ended:
                        selector.unregister(key.fileobj)
                    if ended and self.stdin is not None and key.fileobj is self.stdin:
                        self.stdin.close()
        self.wait(max(0.001, until - time.monotonic()))
        stdout, stderr = map(bytes, found.values())
        return stdout, stderr


def _write(fd: int, data: memoryview) -> int:
    """How much of it is done with: all of it where nobody reads any more."""
    try:
        return os.write(fd, data[:CHUNK_BYTES])
    except BrokenPipeError:
        return len(data)


class Forks:
    """One server of forks for each identity, from its first command on to `close`."""

    def __init__(self) -> None:
        self._servers: dict[Identity, tuple[subprocess.Popen[bytes], socket.socket]] = {}
        self._lock = Lock()

    def close(self) -> None:
        for process, control in self._servers.values():
            control.close()
            process.wait(START_S)
        self._servers.clear()

    def start(
        self,
        identity: Identity,
        words: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path = Path("/"),
        pass_fds: Sequence[int] = (),
        gives_input: bool = False,
        stderr_fd: int | None = None,
        program: str = "quarterdeck",
        open_files: tuple[int, int] | None = None,
    ) -> Fork:
        """Start `PROGRAM WORDS`; its output comes through pipes, and so does its input if there is any.

        What it says on its standard error goes to `stderr_fd` where that is given.  `open_files` is its limit of
        descriptors, soft and hard.
        """
        with ExitStack() as theirs:
            nothing = os.open(os.devnull, os.O_RDONLY)
            theirs.callback(os.close, nothing)
            stdin, reads = _pipe(theirs, gives=True) if gives_input else (None, nothing)
            stdout, writes = _pipe(theirs)
            stderr, complains = (None, stderr_fd) if stderr_fd is not None else _pipe(theirs)
            fds = {0: reads, 1: writes, 2: complains, **{fd: fd for fd in pass_fds}}
            server = self.server(identity)
            process = ask(server, program, words, env=env, cwd=str(cwd), fds=fds, open_files=open_files)
        return Fork(process, stdin, stdout, stderr)

    def run(
        self,
        identity: Identity,
        words: Sequence[str],
        env: Mapping[str, str],
        *,
        given: bytes | None = None,
        timeout_s: float = START_S,
        **started: Any,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `PROGRAM WORDS` to its end; `started` goes to `start`.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and is dead now.
        """
        with self.start(identity, words, env, gives_input=given is not None, **started) as fork:
            stdout, stderr = fork.communicate(given or b"", timeout_s)
        assert fork.returncode is not None
        return subprocess.CompletedProcess(words, fork.returncode, stdout, stderr)

    def server(self, identity: Identity) -> socket.socket:
        sys.audit("quarterdeck.tests.fork")  # a test of the core asks for none: see `support.suite.tiers`
        with self._lock:
            known = self._servers.get(identity)
            if known is not None and known[0].poll() is None:
                return known[1]
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            tool = identity.quarterdeck
            paths = os.pathsep.join(filter(None, (tool.env.get("PYTHONPATH"), str(TESTS))))
            with theirs:
                process = subprocess.Popen(
                    [tool.argv[0], "-m", "support.processes.fork_server", str(theirs.fileno())],
                    env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **tool.env, "PYTHONPATH": paths},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    **identity.popen,
                )
            self._servers[identity] = (process, control)
            return control


def _pipe(theirs: ExitStack, *, gives: bool = False) -> tuple[int, int]:
    """Our end and the other one, which is closed by `theirs`; ours is the one that `gives`, or takes."""
    out, into = os.pipe()
    mine, other = (into, out) if gives else (out, into)
    theirs.callback(os.close, other)
    return mine, other
