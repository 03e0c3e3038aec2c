"""Where workers come from: the zygote's forks, or fresh interpreters where fork does not serve.

A placement starts a worker for an order and tells its birth and death; it knows nothing of links and servers.
"""

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from quarterdeck_protocol.spawning import Died, Forked, Report, SpawnOrder

NEEDED: Final = ("quarterdeck_worker", "quarterdeck_sandbox", "quarterdeck_protocol", "mcp", "msgspec", "psutil")
"""Packages whose folders an isolated interpreter is told, wherever they were installed."""

INHERITED: Final = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"),
)
"""All that a zygote's environment may hold; a server's comes with its `Open` order, past the zygote."""

EXIT_S: Final = 3.0
"""How long a zygote may take to kill its workers once its socket is closed."""

OnExit = Callable[[int], None]
"""Told a worker's return code: a status, or minus the signal."""


class Placement(Protocol):
    """Starts workers."""

    async def spawn(self, order: SpawnOrder, on_exit: OnExit) -> int:
        """Start a worker and return its pid; `on_exit` is called once, from the loop, when it is gone.

        Raises:
            OSError: none can be started now.
        """
        ...

    async def close(self) -> None:
        """End every worker that is left, and everything that they left."""
        ...


class ZygotePlacement:
    """One zygote process and its forks."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        """Start the zygote without waiting for it; `on_lost` is told when it dies unasked, and owes a `close`."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = isolated("quarterdeck_worker.zygote", str(theirs.fileno()), pass_fds=[theirs.fileno()])
        ours.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._control = ours
        self._births: dict[int, tuple[asyncio.Future[int], OnExit]] = {}
        self._exits: dict[int, OnExit] = {}
        self._pending = b""
        self._closed = False
        self._is_ready = False
        self._decoder = msgspec.json.Decoder(Report)
        self._loop.add_reader(ours, self._readable)

    async def spawn(self, order: SpawnOrder, on_exit: OnExit) -> int:
        """See `Placement`."""
        if self._closed:
            raise OSError("the zygote is gone")
        birth: asyncio.Future[int] = self._loop.create_future()
        self._births[order.generation] = birth, on_exit
        try:
            await self._loop.sock_sendall(self._control, msgspec.json.encode(order) + b"\n")
            return await birth
        except OSError:
            birth.cancel()
            self._lose()
            raise
        finally:
            self._births.pop(order.generation, None)

    async def close(self) -> None:
        """See `Placement`: closing the socket is the order; a zygote that does not obey is killed.

        One that is still importing would only notice when it is done; it has forked nothing, but may be trying what the
        machine can do, and has to tidy up.
        """
        self._hang_up()
        if not self._is_ready:
            self._process.terminate()
        await asyncio.to_thread(_wait_or_kill, self._process, EXIT_S)

    def _readable(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            match self._decoder.decode(line):
                case Forked(generation=0):
                    self._is_ready = True
                case Forked(generation=generation, pid=pid):
                    self._tell_birth(generation, pid)
                case Died(generation=generation, returncode=returncode):
                    self._tell_exit(generation, returncode)

    def _tell_birth(self, generation: int, pid: int) -> None:
        birth, on_exit = self._births.get(generation, (None, None))
        if birth is None or on_exit is None or birth.done():
            # Whoever ordered it has given up; it may have ended by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        else:
            self._exits[generation] = on_exit
            birth.set_result(pid)

    def _lose(self) -> None:
        if not self._closed:
            self._hang_up()
            self._on_lost()

    def _hang_up(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._control)
        self._control.close()
        for birth, _ in self._births.values():
            if not birth.done():
                birth.set_exception(OSError("the zygote died"))
        for generation in list(self._exits):
            self._tell_exit(generation, -signal.SIGKILL)

    def _tell_exit(self, generation: int, returncode: int) -> None:
        on_exit = self._exits.pop(generation, None)
        if on_exit is not None:
            on_exit(returncode)


class FreshPlacement:
    """A fresh interpreter for each worker: about two seconds and fifty megabytes more than a fork."""

    def __init__(self) -> None:
        self._workers: dict[int, tuple[subprocess.Popen[bytes], asyncio.Task[None]]] = {}

    async def spawn(self, order: SpawnOrder, on_exit: OnExit) -> int:
        """See `Placement`."""
        # Not in a thread: cancelled there, a process would be started that nobody knows of.
        process = isolated("quarterdeck_worker.main", stdin=subprocess.PIPE)
        assert process.stdin is not None
        # Left open: it closes when we die, and the worker hears of that.
        owner = process.stdin
        owner.write(msgspec.json.encode(order) + b"\n")
        owner.flush()

        async def watch() -> None:
            returncode = await asyncio.to_thread(process.wait)
            owner.close()
            del self._workers[process.pid]
            on_exit(returncode)

        self._workers[process.pid] = (process, asyncio.create_task(watch()))
        return process.pid

    async def close(self) -> None:
        """See `Placement`."""
        for process, _ in self._workers.values():
            process.kill()
        if self._workers:
            await asyncio.wait([task for _, task in self._workers.values()])


def isolated(
    module: str, *args: str, pass_fds: list[int] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a module of ours in an interpreter that trusts neither our directory nor our variables."""
    boot = _folder_of("quarterdeck_worker") / "quarterdeck_worker" / "boot.py"
    folders = dict.fromkeys(str(_folder_of(name)) for name in NEEDED)
    return subprocess.Popen(
        [sys.executable, "-I", str(boot), os.pathsep.join(folders), module, *args],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        pass_fds=pass_fds or [],
        env={name: os.environ[name] for name in INHERITED if name in os.environ},
        cwd="/",
        start_new_session=True,
    )


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0]).parent


def _wait_or_kill(process: subprocess.Popen[bytes], within_s: float) -> None:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
