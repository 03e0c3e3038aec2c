"""The compiled gate and reaper: where the program lies, and of which sources it is.

`sandbox/native/compile_gate.py` makes it where a wheel is built or a checkout is installed, if there is a C compiler.
What it answers to `version` names its architecture and the digest of its sources: in a checkout that has other sources
by now, it is not used.
"""

import hashlib
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))

PROGRAM = os.path.join(FOLDER, "quarterdeck-gate")

SOURCES = os.path.normpath(os.path.join(FOLDER, "../../native"))
"""Beside the package in a checkout; a wheel has none."""

ARCHITECTURES = ("x86_64", "aarch64")


def version(architecture: str) -> str:
    """What the program of these sources answers; where there are none, only how that begins."""
    return f"quarterdeck-gate {architecture} {digest()}"


def digest() -> str:
    """Of the names and contents of the C sources; empty where there are none."""
    try:
        names = sorted(name for name in os.listdir(SOURCES) if name.endswith((".c", ".h")))
    except OSError:
        return ""
    whole = hashlib.sha256()
    for name in names:
        with open(os.path.join(SOURCES, name), "rb") as file:
            whole.update(b"%s\0%s\0" % (name.encode(), file.read()))
    return whole.hexdigest()[:16]
