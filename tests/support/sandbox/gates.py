"""The programs that stand between a spawn and a program: by an interpreter, and compiled, held to the same tests."""

import os
import platform
import shutil
from functools import cache
from typing import Any, Final

import pytest

from quarterdeck_sandbox.doctor.probe import try_gate


@cache
def compiled_gate() -> tuple[str, str]:
    """The path of the compiled one, or why there is none."""
    return try_gate(platform.machine())


COMPILERS: Final = tuple(filter(None, (os.environ.get("CC"), *filter(shutil.which, ("gcc", "clang")))))
"""What makes the compiled one here: that of the environment, and those of the system."""

COMPILER_ONLY: Final = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")

GATES: Final = [
    pytest.param("", id="interpreter"),
    pytest.param(
        compiled_gate()[0],
        id="compiled",
        marks=pytest.mark.skipif(not compiled_gate()[0], reason=f"no compiled gate: {compiled_gate()[1]}"),
    ),
]
"""For `parametrize`, as `gate_command` takes them."""


def order(*argv: str, **changes: Any) -> dict[str, Any]:
    """Execute this and nothing else."""
    return {
        "program": argv[0],
        "argv": list(argv),
        "env": {},
        "cwd": "/",
        "open_files": 0,
        "rlimits": [],
        "identity": None,
        "listen": [],
        "confine": None,
        "set_apart": False,
        "oom_score": None,
        "probes": {"owner": os.getpid(), "secrets": [], "fixed": [], "rlimits": []},
    } | changes
