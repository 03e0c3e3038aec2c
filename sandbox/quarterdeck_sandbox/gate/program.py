"""The gate's program: its path, the sources that it must be of, and the commands for its parts.

`sandbox/native/compile_gate.py`, which imports this module by its plain name, compiles it for a wheel or an installed
checkout.  Its `version` names its architecture and the digest of its sources: one of other sources is not used.
"""

import hashlib
import os

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quarterdeck-gate")

SOURCES = os.path.normpath(os.path.join(PROGRAM, "../../../native"))
"""Next to the package in a checkout; a wheel has none."""

ARCHITECTURES = ("x86_64", "aarch64")


def command(program: str, part: str, *words: int | str) -> list[str]:
    """Return the command for a part of the gate, one of those at the head of `main.c`."""
    return [program, part, *map(str, words)]


def version(architecture: str) -> str:
    """Return the answer of a program of these sources; without sources, only its beginning."""
    return f"quarterdeck-gate {architecture} {digest()}"


def digest() -> str:
    """Return the digest of the names and contents of the C sources; empty without sources."""
    try:
        names = sorted(name for name in os.listdir(SOURCES) if name.endswith((".c", ".h")))
    except OSError:
        return ""
    whole = hashlib.sha256()
    for name in names:
        with open(os.path.join(SOURCES, name), "rb") as file:
            whole.update(b"%s\0%s\0" % (name.encode(), file.read()))
    return whole.hexdigest()[:16]
