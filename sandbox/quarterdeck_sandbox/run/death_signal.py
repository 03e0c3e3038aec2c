"""Command lines of helper processes that the kernel ends, or wakes, when the thread that spawned them ends (Linux).

A helper hears of our end by a pipe of its own; but one that is stopped hears nothing, and would stay for ever.
"""

import signal
import sys
from collections.abc import Sequence
from typing import Final

from quarterdeck_sandbox.policy.machine import Machine

from .spawn import GATE_FOLDER, INTERPRETER

_TIE: Final = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); import prctl; "
    "prctl.tell_end_of_parent(int(sys.argv[2])); os.execv(sys.argv[3], sys.argv[3:])"
)
"""What `setpriv` does in a hundredth of the time, where there is one that can."""


def tethered(machine: Machine, argv: Sequence[str], number: signal.Signals = signal.SIGKILL) -> list[str]:
    """`argv` (its program by a path), as a command that gets `number` when whoever spawned it ends."""
    if sys.platform != "linux":
        return list(argv)
    if machine.setpriv:
        return [machine.setpriv, "--pdeathsig", number.name.removeprefix("SIG"), "--", *argv]
    return [INTERPRETER, "-I", "-S", "-c", _TIE, GATE_FOLDER, str(int(number)), *argv]
