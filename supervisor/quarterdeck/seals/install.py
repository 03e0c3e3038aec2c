"""Install what a runner is asked for, once, as a tree that becomes a seal.

Installers run in the install sandbox alone, and no install script runs unless that was approved.

    resolve   the newest versions that fit, as a lock with a hash for each package; or the lock that is given
    fetch, install   exactly that lock
    clean     drop what names a place, a time or the installer
    adopt     the store hashes the tree and keeps it
"""

import os
import platform
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from quarterdeck_sandbox import HostileTree, open_regular

from . import npm, python
from .indexes import npm_indexes, python_indexes
from .install_sandbox import MAX_LOCK_BYTES, InstallSandbox, InstallSettings, open_install_sandbox
from .manifest import Manifest, Package, Program, SealError
from .request import PackageIndex, PackageRequest, normal_name
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
        make, indexes_of = _seal_npm, npm_indexes
        if request.index is PackageIndex.PYPI:
            make, indexes_of = _seal_python, partial(python_indexes, is_pip_first=request.runner == "pipx run")
        indexes = await anyio.to_thread.run_sync(indexes_of, settings.environ, settings.user_home)
        async with open_install_sandbox(place, settings, indexes) as sandbox:
            manifest = await make(request, sandbox, with_scripts, lock, tell)
            await anyio.to_thread.run_sync(sandbox.discard)
        manifest = msgspec.structs.replace(manifest, has_run_scripts=with_scripts, bounds=settings.bounds)
        tell(Progress("hash"))
        return await anyio.to_thread.run_sync(store.adopt, place, manifest)
    except OSError as error:
        raise _os_error(error) from error
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(making.__exit__, None, None, None)


async def _seal_npm(
    request: PackageRequest, sandbox: InstallSandbox, with_scripts: bool, lock: str, tell: Tell
) -> Manifest:
    named = f"{request.name}@{request.spec or 'latest'}"
    sandbox.write("package.json", npm.package_text(npm.dependencies_of(request)))
    tell(Progress("resolve"))
    is_given = bool(lock)
    if not is_given:
        await sandbox.run(npm.RESOLVE, lambda output: npm.error_of(output, f"resolve {named}"))
        lock = sandbox.read("package-lock.json")
    locked = npm.read_lock(lock)
    wanted = npm.dependencies_of(request, locked)
    sandbox.write("package.json", npm.package_text(wanted))
    sandbox.write("package-lock.json", npm.settled_lock(lock, with_addresses=not is_given))
    words = npm.INSTALL_WITH_SCRIPTS if with_scripts else npm.INSTALL
    await _fetch(
        sandbox, words, lambda output: npm.error_of(output, f"install {named}"), npm.FETCHED, len(locked), tell
    )
    tree = await anyio.to_thread.run_sync(sandbox.take, "node_modules")
    return await anyio.to_thread.run_sync(_npm_manifest, request, tree, npm.settled_lock(lock), locked, wanted)


async def _fetch(
    sandbox: InstallSandbox,
    words: tuple[str, ...],
    error_of: Callable[[str], SealError],
    counted: re.Pattern[str],
    total: int,
    tell: Tell,
) -> str:
    """Install a lock of `total` packages, and return the installer's output."""
    tell(Progress("fetch", 0, total))
    output = await sandbox.run(
        words, error_of, counted, lambda count: tell(Progress("fetch", min(count, total), total))
    )
    tell(Progress("install", total, total))
    return output


def _npm_manifest(
    request: PackageRequest,
    tree: Path,
    lock: str,
    locked: Mapping[str, npm.LockedPackage],
    wanted: Collection[str],
) -> Manifest:
    (tree / "node_modules" / npm.NO_PLACE).unlink(missing_ok=True)
    packages: list[Package] = []
    programs: list[Program] = []
    sizes = _sizes(tree, locked)
    version = ""
    with HostileTree(tree) as hostile:
        for folder, package in locked.items():
            steps = folder.split("/")
            file = npm.read_package_file(hostile.read(*steps, "package.json"))
            if not file.name and not file.version:
                continue  # an optional one, for another platform
            packages.append(npm.sealed_package(package, file, sizes[folder]))
            if folder.removeprefix("node_modules/") in wanted:
                version = package.version if package.name == request.name else version
                in_folder = hostile.names(*steps, *file.bin_folder.split("/")) if file.bin_folder else []
                programs += _npm_programs(tree, folder, package.name, npm.bins_of(file, in_folder))
    return _manifest(request, version, packages, programs, lock)


def _npm_programs(tree: Path, folder: str, package: str, bins: Mapping[str, str]) -> list[Program]:
    found = []
    for name, path in bins.items():
        target = tree / folder / path
        real = os.path.realpath(target)
        if os.path.commonpath((real, os.path.realpath(tree))) != os.path.realpath(tree):
            raise SealError("hostile_tree", f"the program {name} of {package} lies outside of the tree", "")
        try:
            with open_regular(real) as file:
                head = file.read(1024)
        except OSError:
            continue  # it was not published, and npm does not start it either
        link = f"node_modules/.bin/{name}"
        # As `npx` starts it: some compare the path that they were started by.
        place = link if os.path.realpath(tree / link) == real else f"{folder}/{path}"
        found.append(Program(package, name, place, npm.words_of_first_line(head, path)))
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

    options = () if with_scripts else python.WHEELS_ONLY
    if lock:
        python.locked_names(lock)
    elif uv:
        try:
            await sandbox.run(python.resolve_words(uv, interpreter.executable, options), refused)
        except SealError as error:
            # As uvx does, when the first Python is not one of those that the package is for.
            wanted = python.wanted_python(error.message)
            if error.code != "other_platform" or request.python or not wanted:
                raise
            interpreter = await _interpreter(msgspec.structs.replace(request, python=wanted), sandbox, uv)
            await sandbox.run(python.resolve_words(uv, interpreter.executable, options), refused)
        lock = sandbox.read(python.LOCK)
    else:
        await sandbox.run(python.resolve_words("", interpreter.executable, options), refused)
        lock = python.lock_of_report(sandbox.read(python.REPORT).encode())
    sandbox.write(python.LOCK, lock)
    words = python.install_words(uv, interpreter.executable, options)
    output = await _fetch(sandbox, words, refused, python.FETCHED, len(python.locked_names(lock)), tell)
    built = python.built_names(output)
    await anyio.to_thread.run_sync(_clean_site, sandbox)
    # A file that another Python's syntax is in does not compile, which is no failure.
    output = await sandbox.run((interpreter.executable, *python.COMPILE), None)
    if (problem := python.error_of(output, f"compile {named}")).code in {"no_space", "too_large"}:
        raise problem
    tree = await anyio.to_thread.run_sync(sandbox.take, python.SITE)
    return await anyio.to_thread.run_sync(_python_manifest, request, tree / python.SITE, lock, interpreter, built)


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


def _clean_site(sandbox: InstallSandbox) -> None:
    """Drop what names the installer or its place, so that every installer leaves the same bytes.  Blocking."""
    site = sandbox.work / python.SITE
    if not stat.S_ISDIR(os.lstat(site).st_mode):
        raise SealError("hostile_tree", "the installed packages are no folder", "")
    kept: set[str] = set()
    with HostileTree(site) as tree:
        found = _distributions_of(site, tree)
        scripts = {program.name for each in found.values() for program in python.programs_of(each)}
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
        with suppress(OSError):  # it is not empty, or not there
            (site / "bin").rmdir()
        (site / ".lock").unlink(missing_ok=True)
        for name, distribution in found.items():
            for dropped in [each for each in tree.names(name) if python.is_dropped(f"{name}/{each}")]:
                (site / name / dropped).unlink()
            if distribution.record:
                record = python.clean_record(distribution.record, kept)
                sandbox.write(f"{python.SITE}/{name}/RECORD", record)


def _distributions_of(site: Path, tree: HostileTree) -> dict[str, python.Distribution]:
    """Return the installed packages by the names of their folders."""
    names = [name for name in tree.names() if name.endswith(".dist-info") and not (site / name).is_symlink()]
    texts = {name: [_text_of(site / name / each) for each in python.DISTRIBUTION_FILES] for name in names}
    return {name: python.Distribution(*each) for name, each in texts.items()}


def _text_of(path: Path) -> str:
    """Return a file of a `.dist-info`, which is no link; empty if it cannot be read.  Nothing runs there any more."""
    try:
        with open_regular(path, follow_link=False) as file:
            return file.read(MAX_LOCK_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _python_manifest(
    request: PackageRequest, site: Path, lock: str, interpreter: python.Interpreter, built: frozenset[str]
) -> Manifest:
    with HostileTree(site) as tree:
        distributions = _distributions_of(site, tree).values()
    packages = sorted((python.sealed_package(each, built) for each in distributions), key=lambda each: each.name)
    programs = [program for each in distributions for program in python.programs_of(each)]
    programs.sort(key=lambda program: (program.package, program.name))
    name = normal_name(request.name)
    version = next((package.version for package in packages if package.name == name), "")
    return _manifest(request, version, packages, programs, lock, interpreter)


def _manifest(
    request: PackageRequest,
    version: str,
    packages: Sequence[Package],
    programs: Sequence[Program],
    lock: str,
    interpreter: python.Interpreter | None = None,
) -> Manifest:
    if not version:
        raise SealError("other_platform", f"{request.name} does not install on this platform", "")
    of_python = (interpreter.tag, interpreter.libc) if interpreter is not None else ()
    return Manifest(
        index=request.index,
        name=normal_name(request.name) if request.index is PackageIndex.PYPI else request.name,
        version=version,
        words=request.words,
        packages=tuple(packages),
        programs=tuple(programs),
        platform=" ".join(filter(None, (platform.system().lower(), platform.machine(), *of_python))),
        interpreter=interpreter.executable if interpreter is not None else "",
        lock=lock,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _sizes(tree: Path, folders: Iterable[str]) -> dict[str, int]:
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
