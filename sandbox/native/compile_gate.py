"""Compile the gate: `python sandbox/native/compile_gate.py [PLACE]`; without a place, where this checkout looks for it.

Any compiler that takes gcc's options will do: `$CC`, which may be several words, else cc, gcc or clang.  The program
needs neither a C library nor the kernel's headers.  For another architecture:

    CC="python -m ziglang cc -target aarch64-linux-musl" python sandbox/native/compile_gate.py build/quarterdeck-gate
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent / "quarterdeck_sandbox" / "inside"))
try:
    import compiled
finally:
    del sys.path[0]

IN_CHECKOUT: Final = Path(compiled.PROGRAM)
"""Where this checkout looks for it."""

COMPILERS: Final = ("cc", "gcc", "clang")

FLAGS: Final = (
    *("-std=c11", "-O2", "-g0", "-ffreestanding", "-fno-pie", "-fno-asynchronous-unwind-tables"),
    *("-fstack-protector-strong", "-mstack-protector-guard=global", "-Wall", "-Wextra"),
)

STRICT: Final = ("-Werror", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla")
"""For ourselves: on a user's machine a compiler with new warnings is no reason to go without."""

LINKING: Final = ("-nostdlib", "-static", "-no-pie", "-s", "-Wl,-z,noexecstack", "-Wl,--build-id=none")

MACHINES: Final = {62: "x86_64", 183: "aarch64"}
"""ELF's numbers of architectures."""

DEADLINE_S: Final = 120.0
"""A second, but for a compiler that builds itself first."""


class NotBuiltError(Exception):
    """There is no compiler, or it failed, or what it made does not work; the text says which."""


def compile_gate(place: Path, *, strict: bool = False) -> str:
    """Compile the program to `place`, at once or not at all; the architecture that it is for.

    Raises:
        NotBuiltError: it could not be built.
    """
    if sys.platform != "linux":
        raise NotBuiltError(f"it is for Linux, and this is {sys.platform}")
    try:
        return _compile(place, strict=strict)
    except OSError as error:
        raise NotBuiltError(f"{place} could not be written: {error}") from error


def _compile(place: Path, *, strict: bool) -> str:
    compiler = _find_compiler()
    sources = sorted(HERE.glob("*.c"))
    flags = [*FLAGS, *(STRICT if strict else ()), f'-DSOURCES="{compiled.digest()}"']
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # One by one: zig compiles one at a time, and in one step with the linking without a stack protector.
        for source in sources:
            _run([*compiler, *flags, "-c", str(source), "-o", f"{source.stem}.o"], folder)
        _run([*compiler, *LINKING, "-o", "program", *(f"{source.stem}.o" for source in sources)], folder)
        made = folder / "program"
        architecture = MACHINES.get(int.from_bytes(made.read_bytes()[18:20], "little"), "")
        if architecture == platform.machine():
            _try(made)
        elif not architecture:
            raise NotBuiltError(f"{compiler[0]} makes programs for an architecture that has no gate")
        made.chmod(0o755)
        new = place.with_name(f".{place.name}-{os.getpid()}")
        shutil.copy2(made, new)
        new.replace(place)  # which may be running
    return architecture


def _find_compiler() -> list[str]:
    if named := os.environ.get("CC"):
        return shlex.split(named)
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise NotBuiltError(f"there is no C compiler (none of {', '.join(COMPILERS)}, and CC names none)")


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


def _try(program: Path) -> None:
    if _run([str(program), "version"], program.parent).strip() != compiled.version(platform.machine()):
        raise NotBuiltError("what was built does not say that it is of these sources")


def main(*words: str) -> None:
    """Build it; what went wrong is the error."""
    place = Path(words[0]) if words else IN_CHECKOUT
    try:
        sys.stdout.write(f"{place}: for {compile_gate(place, strict=True)}\n")
    except NotBuiltError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
