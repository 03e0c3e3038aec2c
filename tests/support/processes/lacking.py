"""Run a command as on a kernel that lacks something: `lacking.py landlock,seccomp,listener,memory COMMAND …`.

A filter of system calls, kept by all that the command starts, answers as such a kernel does.
"""

import os
import struct
import sys
from pathlib import Path
from typing import Final

COMMAND: Final = (sys.executable, str(Path(__file__).resolve()))
"""To be followed by what is lacking, and the command."""

LANDLOCK: Final = (444, 445, 446)
READ_MEMORY: Final = {"x86_64": 310, "aarch64": 270}
SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
PRCTL: Final = {"x86_64": 157, "aarch64": 167}
PR_SET_SECCOMP: Final = 22

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ENOSYS, EINVAL = 0x7FFF_0000, 0x0005_0000 | 38, 0x0005_0000 | 22
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16


def program(lacks: set[str]) -> bytes:
    lines: list[tuple[int, int, int, int]] = []

    def refuse(number: int) -> None:
        lines.extend([(LOAD, 0, 0, NUMBER_AT), (EQUAL, 0, 1, number), (RETURN, 0, 0, ENOSYS)])

    machine = os.uname().machine
    if "landlock" in lacks:
        for number in LANDLOCK:
            refuse(number)
    if "memory" in lacks:
        refuse(READ_MEMORY[machine])
    if not lacks.isdisjoint(("seccomp", "listener")):
        refuse(SECCOMP[machine])
    if "seccomp" in lacks:
        lines += [(LOAD, 0, 0, NUMBER_AT), (EQUAL, 0, 3, PRCTL[machine])]
        lines += [(LOAD, 0, 0, FIRST_ARGUMENT_AT), (EQUAL, 0, 1, PR_SET_SECCOMP), (RETURN, 0, 0, EINVAL)]
    return b"".join(struct.pack("<HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def main(lacks: str, *command: str) -> None:
    """Never returns."""
    from quarterdeck_sandbox.doctor.kernel import load_seccomp

    load_seccomp(program(set(lacks.split(","))))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
