"""Install what a runner is asked for, once, as a tree that becomes a seal.

Everything that the network has a say in happens in the install sandbox: it sees none of the user's files, reaches only
the configured registries, runs no install script unless that was approved, and is bounded in time, memory, files and
output.  All that it leaves is read as a stranger's: bounded, and without following a link.

    resolve   the newest versions that fit, as a lock with a hash for each package; or the lock that is given
    fetch, install   exactly that lock
    clean     drop what names a place, a time or the installer
    adopt     the store hashes the tree and keeps it
"""

import asyncio
import json
import os
import platform
import re
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from quarterdeck.common.words import printable
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck_protocol.policy_values import LimitValues, PolicyValues
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox import (
    ConfinedProcess,
    Confinement,
    Excess,
    HostileTree,
    LaunchError,
    Machine,
    Places,
    Requester,
    TreeMonitor,
    confine,
    known_machine,
    open_regular,
    plan_launch,
    resolve_program,
    start,
)

from . import npm, python
from .indexes import Indexes, npm_indexes, python_indexes
from .manifest import Bounds, Manifest, Package, Program, SealError
from .request import PackageIndex, PackageRequest
from .store import Seal, SealStore

MAX_LOCK_BYTES: Final = 32 * 1024 * 1024
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


class Progress(msgspec.Struct, frozen=True):
    """How far an installation is; `step` is `resolve`, `fetch`, `install` or `hash`, `total` 0 if it is unknown."""

    step: str
    done: int = 0
    total: int = 0


Tell = Callable[[Progress], None]


async def seal(
    request: PackageRequest,
    store: SealStore,
    settings: InstallSettings,
    *,
    with_scripts: bool = False,
    lock: str = "",
    tell: Tell = lambda _: None,
) -> Seal:
    """Install what is asked for, or exactly `lock`, and return its seal.

    Cancelled or failed, it leaves no process and no file.  Raise SealError.
    """
    making = store.making()
    place = await anyio.to_thread.run_sync(making.__enter__)
    try:
        is_npm = request.index is PackageIndex.NPM
        indexes = await anyio.to_thread.run_sync(_indexes_of, request, settings)
        async with _open_sandbox(place, settings, indexes) as sandbox:
            make = _seal_npm if is_npm else _seal_python
            manifest = await make(request, sandbox, with_scripts, lock, tell)
        tell(Progress("hash"))
        return await anyio.to_thread.run_sync(store.adopt, place, manifest)
    except OSError as error:
        raise _os_error(error) from error
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(making.__exit__, None, None, None)


def _indexes_of(request: PackageRequest, settings: InstallSettings) -> Indexes:
    if request.index is PackageIndex.NPM:
        return npm_indexes(settings.environ, settings.user_home)
    return python_indexes(settings.environ, settings.user_home, is_pip_first=request.runner == "pipx run")


async def _seal_npm(
    request: PackageRequest, sandbox: "_InstallSandbox", with_scripts: bool, lock: str, tell: Tell
) -> Manifest:
    named = f"{request.name}@{request.spec or 'latest'}"
    sandbox.write("package.json", npm.package_text(request))
    tell(Progress("resolve"))
    if lock:
        npm.read_lock(lock)
        sandbox.write("package-lock.json", npm.portable_lock(lock))
    else:
        await sandbox.run(npm.RESOLVE, lambda output: npm.error_of(output, f"resolve {named}"))
        lock = sandbox.read("package-lock.json")
        npm.read_lock(lock)
        lock = npm.portable_lock(lock)  # npm goes on with its own, which has the addresses
    locked = npm.read_lock(lock)
    total = len(locked)
    tell(Progress("fetch", 0, total))
    await sandbox.run(
        npm.INSTALL_WITH_SCRIPTS if with_scripts else npm.INSTALL,
        lambda output: npm.error_of(output, f"install {named}"),
        npm.FETCHED,
        lambda count: tell(Progress("fetch", min(count, total), total)),
    )
    tell(Progress("install", total, total))
    tree = await anyio.to_thread.run_sync(sandbox.take, "node_modules", "tree/node_modules")
    return await anyio.to_thread.run_sync(_npm_manifest, request, tree, lock, locked, with_scripts)


def _npm_manifest(
    request: PackageRequest, tree: Path, lock: str, locked: tuple[npm.LockedPackage, ...], with_scripts: bool
) -> Manifest:
    (tree / "node_modules" / npm.NO_PLACE).unlink(missing_ok=True)
    packages: list[Package] = []
    programs: list[Program] = []
    sizes = _sizes(tree, {package.folder for package in locked})
    wanted = {f"node_modules/{name}" for name in json.loads(npm.package_text(request))["dependencies"]}
    version = ""
    with HostileTree(tree) as hostile:
        for package in locked:
            steps = package.folder.split("/")
            file = npm.read_package_file(hostile.read(*steps, "package.json"))
            if not file.name and not file.version:
                continue  # an optional one, for another platform
            packages.append(npm.sealed_package(package, file, sizes.get(package.folder, 0)))
            if package.folder in wanted:
                version = package.version if package.name == request.name else version
                in_folder = hostile.names(*steps, *file.bin_folder.split("/")) if file.bin_folder else []
                programs += _npm_programs(tree, package, npm.bins_of(file, in_folder))
    if not any(package.name == request.name for package in packages):
        raise SealError("other_platform", f"{request.name} does not install on this platform", "")
    return Manifest(
        index=request.index,
        name=request.name,
        version=version,
        words=request.words,
        packages=tuple(packages),
        programs=tuple(programs),
        has_run_scripts=with_scripts,
        platform=_platform(),
        lock=lock,
        made_at=_now(),
    )


def _npm_programs(tree: Path, package: npm.LockedPackage, bins: Mapping[str, str]) -> list[Program]:
    found = []
    for name, path in bins.items():
        target = tree / package.folder / path
        real = os.path.realpath(target)
        if os.path.commonpath((real, os.path.realpath(tree))) != os.path.realpath(tree):
            raise SealError("hostile_tree", f"the program {name} of {package.name} lies outside of the tree", "")
        try:
            with open_regular(real) as file:
                head = file.read(1024)
        except OSError:
            continue  # it was not published, and npm does not start it either
        link = f"node_modules/.bin/{name}"
        # As `npx` starts it: some compare the path that they were started by.
        place = link if os.path.realpath(tree / link) == real else f"{package.folder}/{path}"
        found.append(Program(package.name, name, place, npm.words_of_first_line(head, path)))
    return found


async def _seal_python(
    request: PackageRequest, sandbox: "_InstallSandbox", with_scripts: bool, lock: str, tell: Tell
) -> Manifest:
    named = f"{request.name}{request.spec}"
    tell(Progress("resolve"))
    text = python.requirements_text(request)
    uv = sandbox.program("uv")
    interpreter = await _interpreter(request, sandbox, uv)
    sandbox.write(python.REQUIREMENTS, text)

    def refused(output: str) -> SealError:
        if not uv and "No module named pip" in output:
            return SealError("no_runner", f"{interpreter.executable} has no pip", "install uv, or pip for that Python")
        return python.error_of(output, f"install {named}")

    if lock:
        python.locked_names(lock)
    elif uv:
        await sandbox.run(python.uv_resolve(uv, interpreter.executable, with_scripts=with_scripts), refused)
        lock = sandbox.read(python.LOCK)
    else:
        await sandbox.run(python.pip_resolve(interpreter.executable, with_scripts=with_scripts), refused)
        lock = python.lock_of_report(sandbox.read(python.REPORT).encode())
    sandbox.write(python.LOCK, lock)
    total = len(python.locked_names(lock))
    tell(Progress("fetch", 0, total))
    words = (
        python.uv_install(uv, interpreter.executable, with_scripts=with_scripts)
        if uv
        else python.pip_install(interpreter.executable, with_scripts=with_scripts)
    )
    output = await sandbox.run(
        words, refused, python.FETCHED, lambda count: tell(Progress("fetch", min(count, total), total))
    )
    tell(Progress("install", total, total))
    built = python.built_names(output)
    await anyio.to_thread.run_sync(_clean_site, sandbox.work / python.SITE)
    # A file that another Python's syntax is in does not compile, which is no failure.
    await sandbox.run(python.compile_words(interpreter.executable), None)
    tree = await anyio.to_thread.run_sync(sandbox.take, python.SITE, f"tree/{python.SITE}")
    return await anyio.to_thread.run_sync(
        _python_manifest, request, tree / python.SITE, lock, interpreter, built, with_scripts
    )


async def _interpreter(request: PackageRequest, sandbox: "_InstallSandbox", uv: str) -> python.Interpreter:
    """Return the Python that the runner would take: the one that is asked for, else the first on the PATH."""
    asked = request.python
    if "/" in asked:
        candidate = asked
    elif re.fullmatch(r"(?:cpython-?|python)?[\d.]*", asked):
        number = re.sub(r"^[a-z-]*", "", asked)
        names = (f"python{number}", "python3", "python") if not number else (f"python{number}",)
        candidate = next((found for name in names if (found := sandbox.program(name))), "")
        if not candidate and uv:
            output = await sandbox.run((uv, "python", "find", "--no-project", *([number] if number else [])), None)
            lines = output.strip().splitlines()
            candidate = lines[-1] if lines and lines[-1].startswith("/") else ""
    else:
        candidate = ""
    if not candidate:
        raise SealError("no_runner", f"no Python {asked} was found on the PATH", "install it, or name another one")
    output = await sandbox.run(
        (candidate, "-c", python.PROBE),
        lambda text: SealError("no_runner", f"{candidate} does not run: {text[-300:]}", "name another Python"),
    )
    try:
        return msgspec.json.decode(output.strip().splitlines()[-1], type=python.Interpreter)
    except (msgspec.MsgspecError, IndexError) as error:
        raise SealError("no_runner", f"{candidate} does not say what it is: {error}", "name another Python") from None


def _clean_site(site: Path) -> None:
    """Drop what names the installer or its place, so that every installer leaves the same bytes.  Blocking."""
    if not stat.S_ISDIR(os.lstat(site).st_mode):
        raise SealError("hostile_tree", "the installed packages are no folder", "")
    kept: set[str] = set()
    with HostileTree(site) as tree:
        distributions = [name for name in tree.names() if name.endswith(".dist-info")]
        scripts = _scripts_of(tree, distributions)
        for name in tree.names("bin"):
            path = site / "bin" / name
            try:
                with open_regular(path, follow_link=False) as file:
                    is_kept = name not in scripts and python.keeps_script(file.read(4096))
            except OSError:
                is_kept = False
            if is_kept:
                kept.add(name)
            elif path.is_symlink() or not path.is_dir():
                path.unlink()
        if not kept and (site / "bin").is_dir() and not (site / "bin").is_symlink() and not os.listdir(site / "bin"):
            (site / "bin").rmdir()
        (site / ".lock").unlink(missing_ok=True)
        for name in distributions:
            for dropped in [each for each in tree.names(name) if python.is_dropped(f"{name}/{each}")]:
                (site / name / dropped).unlink()
            record = site / name / "RECORD"
            text = _text_of(tree, name, "RECORD")
            owner = os.lstat(record) if text else None
            if owner is not None:
                record.unlink()
                record.write_text(python.clean_record(text, kept))
                if os.geteuid() == 0:
                    os.lchown(record, owner.st_uid, owner.st_gid)


def _scripts_of(tree: HostileTree, distributions: list[str]) -> set[str]:
    found: set[str] = set()
    for name in distributions:
        entry_points = _text_of(tree, name, "entry_points.txt")
        found |= {program.name for program in python.programs_of(python.Distribution("", "", entry_points))}
    return found


def _text_of(tree: HostileTree, *steps: str) -> str:
    return (tree.read(*steps) or b"").decode("utf-8", "replace")


def _python_manifest(
    request: PackageRequest,
    site: Path,
    lock: str,
    interpreter: python.Interpreter,
    built: frozenset[str],
    with_scripts: bool,
) -> Manifest:
    packages: list[Package] = []
    programs: list[Program] = []
    with HostileTree(site) as tree:
        for name in tree.names():
            if name.endswith(".dist-info"):
                texts = [_text_of(tree, name, each) for each in ("METADATA", "RECORD", "entry_points.txt")]
                distribution = python.Distribution(*texts)
                packages.append(python.sealed_package(distribution, python.total_size(texts[1]), built))
                programs += python.programs_of(distribution)
    packages.sort(key=lambda package: package.name)
    name = python.normal_name(request.name)
    version = next((package.version for package in packages if package.name == name), "")
    if not version:
        raise SealError("other_platform", f"{request.name} does not install on this platform", "")
    return Manifest(
        index=request.index,
        name=name,
        version=version,
        words=request.words,
        packages=tuple(packages),
        programs=tuple(sorted(programs, key=lambda program: (program.package, program.name))),
        has_run_scripts=with_scripts,
        platform=" ".join(filter(None, (_platform(), interpreter.tag, interpreter.libc))),
        interpreter=interpreter.executable,
        lock=lock,
        made_at=_now(),
    )


class _InstallSandbox:
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
        self._home, self._tmp = place / "home", place / "tmp"
        self.work: Final = self._home / _WORK
        for folder in (self._home, self._tmp, self.work):
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
            raise SealError("too_large", f"{name} is larger than {MAX_LOCK_BYTES >> 20} MiB", "")
        return data.decode("utf-8", "replace")

    def program(self, name: str) -> str:
        """Return the path of a program on the user's PATH, behind a version manager's shim; empty if there is none."""
        try:
            plan = plan_launch(name, (), self._env(), str(self.work))
            return resolve_program(plan, self._settings.user_home, self._settings.environ).path
        except LaunchError:
            return ""

    def take(self, name: str, target: str) -> Path:
        """Move a folder out of the sandbox's home, make it ours, and return the tree that it is in.  Blocking."""
        source, place = self.work / name, self._place / target
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
        return self._place / "tree"

    async def run(
        self,
        words: tuple[str, ...],
        error_of: Callable[[str], SealError] | None,
        counted: re.Pattern[str] | None = None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> str:
        """Run an installer to its end, and return its output.

        Raise `error_of` its output if it fails, unless that is None.  Raise SealError in any case if it cannot be
        started, or passes a bound.
        """
        try:
            confinement = await anyio.to_thread.run_sync(self._confinement, words)
            process = await start(confinement)
        except LaunchError as error:
            kind = "no_runner" if error.code in {"command_not_found", "not_executable"} else "ended"
            raise SealError(kind, self._clean(str(error)), f"install {os.path.basename(words[0])}") from None
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
            detail = ended[0].detail if ended else f"the limit {limit} was hit"
            too_large = limit in {"scratch_bytes", "scratch_inodes", "file_size_bytes"}
            raise SealError("too_large" if too_large else "ended", f"the installer was ended: {detail}", "")
        if output.is_flood:
            message = f"the installer was ended: it wrote more than {MAX_OUTPUT_BYTES >> 20} MiB of output"
            raise SealError("ended", message, "")
        text = self._clean(output.text)
        if code < 0:
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
            file_size_bytes=bounds.file_bytes,
            # An installer keeps what it fetches beside what it installs.
            scratch_bytes=2 * bounds.total_bytes,
            scratch_inodes=2 * bounds.entries,
        )
        policy = PolicyValues(read=self._indexes.read, network=self._indexes.hosts, limits=limits)
        private = (str(self._place), str(self._place.parent.parent), str(state_dir()), str(runtime_dir()))
        places = Places(self._home, self._tmp, settings.user_home, private)
        requester = Requester(places, settings.environ, self._machine, allow_unsandboxed=settings.allow_unsandboxed)
        return confine(plan_launch(words[0], words[1:], self._env(), str(self.work)), policy, requester)


@asynccontextmanager
async def _open_sandbox(place: Path, settings: InstallSettings, indexes: Indexes) -> AsyncIterator[_InstallSandbox]:
    machine = settings.machine
    if machine is None:
        machine = await anyio.to_thread.run_sync(known_machine)
    monitor = TreeMonitor()
    watching = asyncio.ensure_future(monitor.run())
    try:
        sandbox = _InstallSandbox(place, settings, indexes, machine, monitor)
        try:
            async with asyncio.timeout(settings.wall_s):
                yield sandbox
        except TimeoutError:
            seconds = f"{settings.wall_s:g} s"
            raise SealError(
                "registry_away", f"the installation was not done within {seconds}", "check the network, then try again"
            ) from None
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


def _sizes(tree: Path, folders: set[str]) -> dict[str, int]:
    """Return the bytes of each package's own files, by its folder."""
    found = dict.fromkeys(folders, 0)
    owners: dict[str, str] = {}
    for folder, _, files, fd in os.fwalk(tree, follow_symlinks=False):
        relative = os.path.relpath(folder, tree)
        owner = relative if relative in found else owners.get(os.path.dirname(relative), "")
        owners[relative] = owner
        if owner:
            found[owner] += sum(os.stat(name, dir_fd=fd, follow_symlinks=False).st_size for name in files)
    return found


def _os_error(error: OSError) -> SealError:
    import errno

    words = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return SealError("no_space", f"there is no room for the seal: {words}", "make room: quarterdeck seals collect")
    return SealError("ended", f"the seal could not be made: {words}", "")


def _platform() -> str:
    return f"{platform.system().lower()} {platform.machine()}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
