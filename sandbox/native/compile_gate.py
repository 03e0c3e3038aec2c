"""Compile the gate: `python sandbox/native/compile_gate.py [PLACE]`; without a place, where this checkout looks for it,
and the workers' library (`worker/native`) where it looks for that.

Any compiler that takes gcc's options will do: `$CC`, which may be several words, else cc, gcc or clang, else the one of
the package ziglang.  Both need neither a C library nor the kernel's headers.  For another architecture:

    CC="python -m ziglang cc -target aarch64-linux-musl" python sandbox/native/compile_gate.py build/quarterdeck-gate
"""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent / "quarterdeck_sandbox" / "gate"))
try:
    import program
finally:
    del sys.path[0]

IN_CHECKOUT: Final = Path(program.PROGRAM)  # where this checkout looks for it
PAGES: Final = HERE.parents[1] / "worker" / "native" / "pages.c"
PAGES_IN_CHECKOUT: Final = HERE.parents[1] / "worker" / "quarterdeck_worker" / "quarterdeck-pages.so"
"""The workers' library: its source, and where this checkout looks for it."""

COMPILERS: Final = ("cc", "gcc", "clang")

ZIG: Final = "ziglang==0.17.1"
"""A whole compiler as a package, of 100 MB: what a build requires where there is none (`requirements`)."""

FLAGS: Final = (
    *("-std=c11", "-O2", "-g0", "-ffreestanding", "-fno-pie", "-fno-asynchronous-unwind-tables"),
    *("-fstack-protector-strong", "-mstack-protector-guard=global", "-Wall", "-Wextra"),
)

STRICT: Final = ("-Werror", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla")
"""For ourselves: on a user's machine a compiler with new warnings is no reason to go without."""

LINKING: Final = ("-nostdlib", "-static", "-no-pie", "-s", "-Wl,-z,noexecstack", "-Wl,--build-id=none")

AS_LIBRARY: Final = (
    *("-std=c11", "-O2", "-g0", "-ffreestanding", "-fPIC", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables"),
    # No C library would supply what a protector calls.
    *("-fno-stack-protector", "-Wall", "-Wextra", "-shared", "-nostdlib", "-s"),
    *("-Wl,-z,noexecstack", "-Wl,--build-id=none"),
)

MACHINES: Final = {62: "x86_64", 183: "aarch64"}  # ELF's numbers of architectures
DEADLINE_S: Final = 120.0  # a second, but for a compiler that builds itself first


class NotBuiltError(Exception):
    """There is no compiler, or it failed, or what it made does not work; the text says which."""


def requirements() -> list[str]:
    """What has to be installed before anything can be compiled here: nothing, or `ZIG`."""
    is_possible = sys.platform == "linux" and platform.machine() in program.ARCHITECTURES
    return [ZIG] if is_possible and not _installed_compiler() else []


def compile_gate(place: Path, *, strict: bool = False) -> str:
    """Compile the program to `place`, at once or not at all; return its architecture.  Raise NotBuiltError."""
    sources = sorted(HERE.glob("*.c"))
    with _building(place) as (compiler, folder):
        flags = [*FLAGS, *(STRICT if strict else ()), f'-DSOURCES="{program.digest()}"']
        # One by one: zig compiles one at a time, and in one step with the linking without a stack protector.
        for source in sources:
            _run([*compiler, *flags, "-c", str(source), "-o", f"{source.stem}.o"], folder)
        _run([*compiler, *LINKING, "-o", "program", *(f"{source.stem}.o" for source in sources)], folder)
        made = folder / "program"
        runs_here, expected = _architecture_of(made) == platform.machine(), program.version(platform.machine())
        if runs_here and _run([str(made), "version"], folder).strip() != expected:
            raise NotBuiltError("what was built does not say that it is of these sources")
        return _put(made, place, 0o755)


def compile_pages(place: Path, *, strict: bool = False) -> str:
    """Compile the workers' library to `place`, as `compile_gate` does the program."""
    with _building(place) as (compiler, folder):
        _run([*compiler, *AS_LIBRARY, *(STRICT if strict else ()), str(PAGES), "-o", "library"], folder)
        return _put(folder / "library", place, 0o644)


@contextmanager
def _building(place: Path) -> Iterator[tuple[list[str], Path]]:
    if sys.platform != "linux":
        raise NotBuiltError(f"it is for Linux, and this is {sys.platform}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield _find_compiler(), Path(folder)
    except OSError as error:
        raise NotBuiltError(f"{place} could not be written: {error}") from error


def _architecture_of(made: Path) -> str:
    architecture = MACHINES.get(int.from_bytes(made.read_bytes()[18:20], "little"), "")
    if not architecture:
        raise NotBuiltError("the compiler makes programs for an architecture that has no gate")
    return architecture


def _put(made: Path, place: Path, mode: int) -> str:
    """Put it to its place, where one may be in use; the architecture that it is for."""
    architecture = _architecture_of(made)
    made.chmod(mode)
    new = place.with_name(f".{place.name}-{os.getpid()}")
    shutil.copy2(made, new)
    new.replace(place)
    return architecture


def _find_compiler() -> list[str]:
    if found := _installed_compiler():
        return found
    if importlib.util.find_spec("ziglang") is None:
        raise NotBuiltError(f"there is no C compiler (none of {', '.join(COMPILERS)}, CC names none, and no {ZIG})")
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-musl"]


def _installed_compiler() -> list[str]:
    """The command of the environment's or the system's compiler; empty where there is none."""
    if named := os.environ.get("CC"):
        return shlex.split(named)
    return [found for name in COMPILERS if (found := shutil.which(name))][:1]


def _run(argv: list[str], folder: Path) -> str:
    try:
        ended = subprocess.run(
            argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuiltError(f"{argv[0]} could not be run: {error}") from error
    if ended.returncode != 0:
        raise NotBuiltError(f"{argv[0]} failed: {ended.stderr.decode(errors='replace').strip()[-2000:]}")
    return ended.stdout.decode(errors="replace")


def main(*words: str) -> None:
    """Build it; what went wrong is the error."""
    place = Path(words[0]) if words else IN_CHECKOUT
    try:
        sys.stdout.write(f"{place}: for {compile_gate(place, strict=True)}\n")
        if not words:
            sys.stdout.write(f"{PAGES_IN_CHECKOUT}: for {compile_pages(PAGES_IN_CHECKOUT, strict=True)}\n")
    except NotBuiltError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
