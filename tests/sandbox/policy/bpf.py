"""A machine for classic BPF as seccomp uses it: what a compiled filter says of one system call."""

import struct
from collections.abc import Sequence
from enum import IntEnum

WORD = 0xFFFF_FFFF


class Verdict(IntEnum):
    """What the kernel does with the call."""

    ALLOW = 0x7FFF_0000
    EPERM = 0x0005_0001
    ENOSYS = 0x0005_0026
    EOPNOTSUPP = 0x0005_005F
    ASK = 0x7FC0_0000
    KILL = 0x8000_0000


def judge(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> Verdict:
    """Run `program` on a call; a jump out of the program or an instruction that we do not know is an error.

    Args:
        program: an array of `struct sock_filter`.
        architecture: as in `seccomp_data.arch`.
        number: of the call, 32 bits.
        arguments: up to six, 64 bits each; the rest are zero.
    """
    six = [*arguments, *(6 - len(arguments)) * [0]]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *six)
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator = at = 0
    while True:
        code, then, otherwise, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                assert operand % 4 == 0
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                at += then if accumulator == operand else otherwise
            case 0x35:
                at += then if accumulator >= operand else otherwise
            case 0x06:
                return Verdict(operand)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")
