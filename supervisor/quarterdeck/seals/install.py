"""Install what a runner is asked for, once, as a tree that becomes a seal.

Installers run in the install sandbox alone, and no install script runs unless that was approved.

    resolve   the newest versions that fit, as a lock with a hash for each package; or the lock that is given
    fetch, install   exactly that lock
    clean     drop what names a place, a time or the installer
    adopt     the store hashes the tree and keeps it
"""

import json
import os
import platform
import re
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from quarterdeck_sandbox import HostileTree, open_regular

from . import npm, python
from .indexes import Indexes, npm_indexes, python_indexes
from .install_sandbox import MAX_LOCK_BYTES, InstallSandbox, InstallSettings, open_install_sandbox
from .manifest import Manifest, Package, Program, SealError
from .request import PackageIndex, PackageRequest
from .store import Seal, SealStore


class Progress(msgspec.Struct, frozen=True):
    """How far an installation is; `step` is `resolve`, `fetch`, `install` or `hash`, `total` 0 if it is unknown."""

    step: str
    done: int = 0
    total: int = 0


Tell = Callable[[Progress], None]

AT_ONCE: Final = 4
"""Installations at the same time in one process: two cores and one network are busy with as many."""

_turns: Final[RunVar[anyio.Semaphore]] = RunVar("turns")
"""Of an event loop, as a semaphore is."""


async def seal(
    request: PackageRequest,
    store: SealStore,
    settings: InstallSettings,
    *,
    with_scripts: bool = False,
    lock: str = "",
    tell: Tell = lambda _: None,
) -> Seal:
    """Install what is asked for, or exactly `lock`, in its turn, and return its seal.

    Cancelled or failed, it leaves no process and no file.  Raise SealError.
    """
    if (turns := _turns.get(None)) is None:
        _turns.set(turns := anyio.Semaphore(AT_ONCE))
    async with turns:
        return await _seal(request, store, settings, with_scripts, lock, tell)


async def _seal(
    request: PackageRequest, store: SealStore, settings: InstallSettings, with_scripts: bool, lock: str, tell: Tell
) -> Seal:
    making, settings = store.making(), settings.grown_for(request.max_bytes)
    with anyio.CancelScope(shield=True):  # cancelled within, its folder would stay
        place = await anyio.to_thread.run_sync(making.__enter__)
    try:
        is_npm = request.index is PackageIndex.NPM
        indexes = await anyio.to_thread.run_sync(_indexes_of, request, settings)
        async with open_install_sandbox(place, settings, indexes) as sandbox:
            make = _seal_npm if is_npm else _seal_python
            manifest = await make(request, sandbox, with_scripts, lock, tell)
            await anyio.to_thread.run_sync(sandbox.discard)
        manifest = msgspec.structs.replace(manifest, bounds=settings.bounds)
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
    request: PackageRequest, sandbox: InstallSandbox, with_scripts: bool, lock: str, tell: Tell
) -> Manifest:
    named = f"{request.name}@{request.spec or 'latest'}"
    sandbox.write("package.json", npm.package_text(request))
    tell(Progress("resolve"))
    is_given = bool(lock)
    if not is_given:
        await sandbox.run(npm.RESOLVE, lambda output: npm.error_of(output, f"resolve {named}"))
        lock = sandbox.read("package-lock.json")
    locked = npm.read_lock(lock)
    sandbox.write("package.json", npm.package_text(request, {each.folder: each.version for each in locked}))
    sandbox.write("package-lock.json", npm.settled_lock(lock, with_addresses=not is_given))
    lock = npm.settled_lock(lock)
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
    request: PackageRequest, sandbox: InstallSandbox, with_scripts: bool, lock: str, tell: Tell
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
        try:
            await sandbox.run(python.uv_resolve(uv, interpreter.executable, with_scripts=with_scripts), refused)
        except SealError as error:
            # As uvx does, when the first Python is not one of those that the package is for.
            wanted = python.wanted_python(error.message)
            if error.code != "other_platform" or request.python or not wanted:
                raise
            interpreter = await _interpreter(msgspec.structs.replace(request, python=wanted), sandbox, uv)
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


async def _interpreter(request: PackageRequest, sandbox: InstallSandbox, uv: str) -> python.Interpreter:
    """Return the Python that the runner would take: the one that is asked for, else the first on the PATH."""
    asked = re.sub(r"^(?:cpython-?|python)(?=[\d.]*$)", "", request.python)
    names = ("python3", "python") if not asked else (f"python{asked}",)
    candidate = asked if "/" in asked else next((found for name in names if (found := sandbox.program(name))), "")
    if not candidate and uv:
        words = (uv, "python", "find", "--no-project", *((asked,) if asked else ()))
        lines = (await sandbox.run(words, None)).strip().splitlines()
        candidate = lines[-1] if lines and lines[-1].startswith("/") else ""
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
        distributions = _distributions_of(site, tree)
        scripts = _scripts_of(site, distributions)
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
            if text := _text_of(record):
                owner = os.lstat(record)
                record.unlink()
                record.write_text(python.clean_record(text, kept))
                if os.geteuid() == 0:
                    os.lchown(record, owner.st_uid, owner.st_gid)


def _distributions_of(site: Path, tree: HostileTree) -> list[str]:
    return [name for name in tree.names() if name.endswith(".dist-info") and not (site / name).is_symlink()]


def _scripts_of(site: Path, distributions: list[str]) -> set[str]:
    found: set[str] = set()
    for name in distributions:
        entry_points = _text_of(site / name / "entry_points.txt")
        found |= {program.name for program in python.programs_of(python.Distribution("", "", entry_points))}
    return found


def _text_of(path: Path) -> str:
    """Return a file of a `.dist-info`, which is no link; empty if it cannot be read.  Nothing runs there any more."""
    try:
        with open_regular(path, follow_link=False) as file:
            return file.read(MAX_LOCK_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


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
        for name in _distributions_of(site, tree):
            texts = [_text_of(site / name / each) for each in ("METADATA", "RECORD", "entry_points.txt")]
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
