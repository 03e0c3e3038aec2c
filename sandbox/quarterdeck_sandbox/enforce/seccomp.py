"""Compile our rules for system calls to the classic BPF that the kernel runs on each of them.  Pure.

The program, in order: a foreign architecture (a 32-bit call, x32) kills; `clone3` does not exist, because its flags
lie in memory where no filter sees them, and every libc falls back to `clone`; denied calls fail with EPERM; calls that
are judged by their arguments each have a block of their own; the rest is allowed.  On kernels since 5.11 an always
allowed call costs nothing: the verdict is kept in a bitmap.
"""

import struct
from functools import cache
from typing import Final

from .syscall_rules import MISSING_WITHOUT_IDS, NUMBERS, Check, Filter, Rule, make_rules

__all__ = ["ARCHITECTURES", "Filter", "compile_filter"]

ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
"""What can be compiled for, as `uname -m` says it, and as `seccomp_data.arch` does."""

X32_BIT: Final = 0x4000_0000
NO_CALL: Final = 0xFFFF_FFFF
"""-1, which the kernel answers with ENOSYS itself; it has the x32 bit set."""

LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_GREATER_EQUAL: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
RETURN: Final = 0x06  # BPF_RET | BPF_K

RET_ALLOW: Final = 0x7FFF_0000
RET_ERRNO: Final = 0x0005_0000
RET_KILL_PROCESS: Final = 0x8000_0000
EPERM: Final = 1
ENOSYS: Final = 38

NUMBER_AT: Final = 0  # offsets in struct seccomp_data; both architectures are little endian
ARCHITECTURE_AT: Final = 4
ARGUMENTS_AT: Final = 16

_NEXT: Final = ""
"""The label of the instruction that follows."""


@cache
def compile_filter(filter: Filter, architecture: str) -> bytes:  # noqa: A002 - the kernel's word for it
    """Compile a filter to an array of `struct sock_filter`, for `bwrap --seccomp` or `prctl`.

    Raises:
        KeyError: `architecture` is none of `ARCHITECTURES`.
    """
    numbers = NUMBERS[architecture]
    rules = {numbers[name]: rule for name, rule in sorted(make_rules(filter).items()) if name in numbers}
    program = _Program()
    program.add(LOAD, ARCHITECTURE_AT)
    program.jump(JUMP_EQUAL, ARCHITECTURES[architecture], otherwise="kill")
    program.add(LOAD, NUMBER_AT)
    if architecture == "x86_64":
        program.jump(JUMP_EQUAL, NO_CALL, then="allow")
        program.jump(JUMP_GREATER_EQUAL, X32_BIT, then="kill")
    program.jump(JUMP_EQUAL, numbers["clone3"], then="missing")
    if not filter.sets_ids:
        program.jump(JUMP_EQUAL, numbers[MISSING_WITHOUT_IDS], then="missing")
    for number in sorted(number for number, rule in rules.items() if not rule):
        program.jump(JUMP_EQUAL, number, then="deny")
    for number, rule in sorted(rules.items()):
        if rule:
            _judge(program, number, rule)
    for label, verdict in (
        ("allow", RET_ALLOW),
        ("deny", RET_ERRNO | EPERM),
        ("missing", RET_ERRNO | ENOSYS),
        ("kill", RET_KILL_PROCESS),
    ):
        program.mark(label)
        program.add(RETURN, verdict)
    return program.assemble()


def _judge(program: "_Program", number: int, rule: Rule) -> None:
    """The block of one call.  It begins with the call's number loaded; past it, it is loaded still."""
    past = f"past {number}"
    program.jump(JUMP_EQUAL, number, otherwise=past)
    for index, checks in enumerate(rule):
        for check in checks:
            _test(program, check, failed=f"{number} {index}")
        program.add(RETURN, RET_ALLOW)
        program.mark(f"{number} {index}")
    program.add(RETURN, RET_ERRNO | EPERM)
    program.mark(past)


def _test(program: "_Program", check: Check, *, failed: str) -> None:
    program.add(LOAD, ARGUMENTS_AT + 8 * check.argument)
    if check.mask != 0xFFFF_FFFF:
        program.add(AND, check.mask)
    if check.negated:
        for value in check.values:
            program.jump(JUMP_EQUAL, value, then=failed)
        return
    held = f"{failed} {program.length}"
    for value in check.values[:-1]:
        program.jump(JUMP_EQUAL, value, then=held)
    program.jump(JUMP_EQUAL, check.values[-1], otherwise=failed)
    program.mark(held)


class _Program:
    """An assembler: instructions with jumps to labels further down."""

    def __init__(self) -> None:
        self._instructions: list[tuple[int, str, str, int]] = []
        self._labels: dict[str, int] = {}

    @property
    def length(self) -> int:
        return len(self._instructions)

    def add(self, code: int, operand: int) -> None:
        self._instructions.append((code, _NEXT, _NEXT, operand))

    def jump(self, code: int, operand: int, *, then: str = _NEXT, otherwise: str = _NEXT) -> None:
        self._instructions.append((code, then, otherwise, operand))

    def mark(self, label: str) -> None:
        self._labels[label] = self.length

    def assemble(self) -> bytes:
        """Packed; a jump further than the 255 instructions that its byte can say is a `struct.error`."""
        return b"".join(
            struct.pack("<HBBI", code, self._distance(at, then), self._distance(at, otherwise), operand)
            for at, (code, then, otherwise, operand) in enumerate(self._instructions)
        )

    def _distance(self, at: int, label: str) -> int:
        return 0 if label == _NEXT else self._labels[label] - at - 1
