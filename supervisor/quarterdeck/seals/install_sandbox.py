"""The install sandbox: where installers run, and what they leave is read and taken from.

An installer sees none of the user's files, reaches only the configured registries, and is bounded in time, memory,
files and output.  All that it leaves is read as a stranger's: bounded, and without following a link.
"""

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from quarterdeck.common.words import printable, size
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck_protocol.policy_values import MAX_SEAL_BYTES, LimitValues, NetworkMode, PolicyValues
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox import (
    ConfinedProcess,
    Confinement,
    Excess,
    LaunchError,
    Machine,
    Places,
    Program,
    Requester,
    TreeMonitor,
    confine,
    known_machine,
    open_regular,
    plan_launch,
    remove_tree,
    resolve_program,
    start,
)

from . import npm, python
from .indexes import Indexes
from .manifest import KEEP_RUNNER, RAISE_BOUND, Bounds, SealError, too_large

MAX_LOCK_BYTES: Final = 32 * 1024 * 1024  # of a file that an installer wrote
MAX_OUTPUT_BYTES: Final = 32 * 1024 * 1024  # of one installer; one that says more is ended
KEPT_OUTPUT_BYTES: Final = 64 * 1024  # of the end of its output, in which its errors are looked for
STOP_GRACE_S: Final = 1.0
_READ_BYTES: Final = 64 * 1024
_WORK: Final = "work"


class InstallSettings(msgspec.Struct, frozen=True):
    """For whom is installed, and with which bounds.

    Attributes:
        environ: the user's environment: PATH for installers and interpreters, settings of npm, pip and uv.
        user_home: the user's home, whose settings are read, and which no installer sees.
        wall_s: seconds that an installation may take.
        machine: None to find out.
    """

    environ: Mapping[str, str]
    user_home: Path
    bounds: Bounds = Bounds()
    wall_s: float = 600.0
    memory_bytes: int = 4 << 30
    machine: Machine | None = None
    allow_unsandboxed: bool = False

    def grown_for(self, max_bytes: int) -> "InstallSettings":
        """Return these settings for a tree of so many bytes, with as much more of files and time."""
        times = max_bytes / MAX_SEAL_BYTES
        most_bytes, most_entries = int(self.bounds.total_bytes * times), int(self.bounds.entries * times)
        bounds = msgspec.structs.replace(self.bounds, total_bytes=most_bytes, entries=most_entries)
        return msgspec.structs.replace(self, bounds=bounds, wall_s=self.wall_s * times)


class InstallSandbox:
    """One attempt's private folders, and the runs of installers in them."""

    def __init__(
        self, place: Path, settings: InstallSettings, indexes: Indexes, machine: Machine, monitor: TreeMonitor
    ) -> None:
        self._place = place
        self._settings = settings
        self._indexes = indexes
        self._machine = machine
        self._monitor = monitor
        self._redactor = Redactor(indexes.secrets)
        # Not in the attempt's folder itself: its lock is the attempt's, and that of a home's folder who chooses a user.
        self._base = base = place / "install"
        self._home, self._tmp = base / "home", base / "tmp"
        self.work: Final = self._home / _WORK
        for folder in (base, self._home, self._tmp, self.work):
            folder.mkdir(mode=0o700)
        for name, text in indexes.files.items():
            path = self._home / name
            path.touch(mode=0o600)
            path.write_text(text)

    def write(self, name: str, text: str) -> None:
        """Write a file into the folder where the installer runs, in the place of any other."""
        path = self.work / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        owner = os.lstat(self.work)
        if owner.st_uid != os.geteuid():
            os.lchown(path, owner.st_uid, owner.st_gid)

    def read(self, name: str) -> str:
        """Return a file that the installer wrote there."""
        try:
            with open_regular(self.work / name, follow_link=False) as file:
                data = file.read(MAX_LOCK_BYTES + 1)
        except OSError as error:
            raise SealError("ended", f"the installer wrote no {name}: {error.strerror}", "") from None
        if len(data) > MAX_LOCK_BYTES:
            raise SealError("too_large", f"{name} is larger than {MAX_LOCK_BYTES >> 20} MiB", KEEP_RUNNER)
        return data.decode("utf-8", "replace")

    def program(self, name: str) -> str:
        """Return the path of a program on the user's PATH, behind a version manager's shim; empty if there is none."""
        try:
            return self._resolved(name).path
        except LaunchError:
            return ""

    def _resolved(self, name: str) -> Program:
        plan = plan_launch(name, (), self._env(), str(self.work))
        return resolve_program(plan, self._settings.user_home, self._settings.environ)

    def take(self, name: str) -> Path:
        """Move a folder out of the sandbox's home, make it ours, and return the tree that it is in.  Blocking."""
        source, place = self.work / name, self._place / "tree" / name
        try:
            is_folder = stat.S_ISDIR(os.lstat(source).st_mode)
        except FileNotFoundError:
            raise SealError("ended", "the installer ended well, and installed nothing", "") from None
        if not is_folder:
            raise SealError("hostile_tree", "what was installed is no folder", "")
        place.parent.mkdir(mode=0o700)
        source.rename(place)
        if os.geteuid() == 0:
            for _, folders, files, fd in os.fwalk(place, follow_symlinks=False):
                os.fchown(fd, 0, os.getegid())
                for each in (*folders, *files):
                    os.chown(each, 0, os.getegid(), dir_fd=fd, follow_symlinks=False)
        return place.parent

    def discard(self) -> None:
        """Remove all but what was taken.  Blocking.

        An installer's cache is as large as what it installs: the disk need not write it out with the seal.
        """
        remove_tree(str(self._base))

    async def run(
        self,
        words: tuple[str, ...],
        error_of: Callable[[str], SealError] | None,
        counted: re.Pattern[str] | None = None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> str:
        """Run an installer to its end, and return its output.

        Raise `error_of` its output if it fails, unless that is None: then it may.  Raise SealError in any case if it
        cannot be started, or passes a bound.
        """
        try:
            confinement = await anyio.to_thread.run_sync(self._confinement, words)
            process = await start(confinement)
        except LaunchError as error:
            if error.code in {"command_not_found", "not_executable"}:
                raise SealError("no_runner", self._clean(str(error)), f"install {os.path.basename(words[0])}") from None
            message = f"the install sandbox cannot be had: {self._clean(str(error))}"
            raise SealError("no_sandbox", message, "see what this machine lacks: quarterdeck doctor") from None
        output, ended = _Output(counted, tell), []
        try:
            tree = process.tree((str(self._home), str(self._tmp)))

            def on_excess(excess: Excess) -> None:
                ended.append(excess)
                process.kill_for(excess.limit)

            unwatch = self._monitor.watch(tree, confinement.limits, on_excess)
            try:
                async with anyio.create_task_group() as tasks:
                    for fd in (process.stdout_fd, process.stderr_fd):
                        tasks.start_soon(_collect, fd, output, process)
                    process.close_stdin()
                    code = await process.wait()
            finally:
                unwatch()
        finally:
            await process.stop(STOP_GRACE_S)
            process.close_fds()
        if ended or process.limit:
            limit = ended[0].limit if ended else str(process.limit)
            bounds = self._settings.bounds
            passed = {
                "scratch_bytes": f"installing it takes more than {size(2 * bounds.total_bytes)}",
                "scratch_inodes": f"installing it takes more than {2 * bounds.entries:,} files",
                "file_size_bytes": f"one file is larger than {size(bounds.total_bytes)}",
            }
            if limit in passed:
                raise too_large(passed[limit])
            detail = ended[0].detail if ended else f"the limit {limit} was hit"
            raise SealError("ended", f"the installer was ended: {detail}", KEEP_RUNNER)
        if output.is_flood:
            message = f"the installer was ended: it wrote more than {MAX_OUTPUT_BYTES >> 20} MiB of output"
            raise SealError("ended", message, KEEP_RUNNER)
        text = self._clean(output.text)
        if code < 0 and error_of is not None:
            raise SealError("ended", f"{os.path.basename(words[0])} was ended by signal {-code}", "try again")
        if code != 0 and error_of is not None:
            raise error_of(text)
        return text

    def _clean(self, text: str) -> str:
        return re.sub(r"(\w+://)[^/@\s]+@", r"\1", printable(self._redactor.clean_text(text)))

    def _env(self) -> dict[str, str]:
        own = {"HOME": str(self._home), "TMPDIR": str(self._tmp), "LANG": "C.UTF-8"}
        npmrc = {"npm_config_userconfig": str(self._home / ".npmrc"), "npm_config_globalconfig": "/dev/null"}
        path = {"PATH": self._settings.environ.get("PATH", os.defpath)}
        return {**path, **npm.QUIET, **npmrc, **python.UV_QUIET, **python.PIP_QUIET, **self._indexes.env, **own}

    def _confinement(self, words: tuple[str, ...]) -> Confinement:
        bounds, settings = self._settings.bounds, self._settings
        limits = LimitValues(
            memory_bytes=settings.memory_bytes,
            file_size_bytes=bounds.total_bytes,
            # An installer keeps what it fetches beside what it installs.
            scratch_bytes=2 * bounds.total_bytes,
            scratch_inodes=2 * bounds.entries,
        )
        # uv is told the path of a Python, which may lie in a home.
        named = (self._resolved(word) for word in words[1:] if os.path.isabs(word))
        shown = [prefix.path for program in named for prefix in program.prefixes if not prefix.said_by]
        policy = PolicyValues(
            read=(*self._indexes.read, *shown), network=self._indexes.hosts or NetworkMode.NONE, limits=limits
        )
        private = (str(self._place), str(self._place.parent.parent), str(state_dir()), str(runtime_dir()))
        places = Places(self._home, self._tmp, settings.user_home, private)
        requester = Requester(places, settings.environ, self._machine, allow_unsandboxed=settings.allow_unsandboxed)
        return confine(plan_launch(words[0], words[1:], self._env(), str(self.work)), policy, requester)


@asynccontextmanager
async def open_install_sandbox(
    place: Path, settings: InstallSettings, indexes: Indexes
) -> AsyncIterator[InstallSandbox]:
    """Open the sandbox of one attempt, in a private folder of its own.

    Raise SealError `registry_away` in the block once `wall_s` is over.
    """
    machine = settings.machine
    if machine is None:
        machine = await anyio.to_thread.run_sync(known_machine)
    monitor = TreeMonitor()
    watching = asyncio.ensure_future(monitor.run())
    try:
        sandbox = InstallSandbox(place, settings, indexes, machine, monitor)
        try:
            async with asyncio.timeout(settings.wall_s):
                yield sandbox
        except TimeoutError:
            seconds = f"{settings.wall_s:g} s"
            remedy = f"check the network, then try again; or {RAISE_BOUND}"
            raise SealError("registry_away", f"the installation was not done within {seconds}", remedy) from None
    finally:
        watching.cancel()


class _Output:
    """The end of an installer's output, and what is counted in it."""

    def __init__(self, counted: re.Pattern[str] | None, tell: Callable[[int], None]) -> None:
        self._counted = counted
        self._tell = tell
        self._count = 0
        self._kept = bytearray()
        self._line = b""
        self._total_bytes = 0

    def feed(self, data: bytes) -> None:
        self._total_bytes += len(data)
        self._kept += data
        del self._kept[:-KEPT_OUTPUT_BYTES]
        if self._counted is not None:
            *lines, self._line = (self._line[-4096:] + data).split(b"\n")
            found = sum(self._counted.search(line.decode("utf-8", "replace")) is not None for line in lines)
            if found:
                self._count += found
                self._tell(self._count)

    @property
    def is_flood(self) -> bool:
        return self._total_bytes > MAX_OUTPUT_BYTES

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


async def _collect(fd: int, output: _Output, process: ConfinedProcess) -> None:
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(fd)
            continue
        if not data:
            return
        output.feed(data)
        if output.is_flood:
            process.kill()
            return
