"""What the first bytes of a file say about how the kernel will execute it."""

import os
import re
import struct
from dataclasses import dataclass
from typing import Final

from quarterdeck_sandbox.launch import LaunchError

HEAD_BYTES: Final = 4096
"""Read of a file: its first line, which the kernel cuts at 256, and an ELF file's program headers."""

MAX_LINE_BYTES: Final = 256
"""Of a first line the kernel reads no more (BINPRM_BUF_SIZE)."""

_MACH_O: Final = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PT_INTERP: Final = 3

_RUN_BY_SHELL: Final = re.compile(rb"\A[^\n]{0,256}\n(?:'''|\"true\" ''')exec' \"?(/[^\"\n]{1,1024}?)\"? \"\$0\"")
"""How installers of Python write a first line that is too long for the kernel: as one of the shell's, which is no
line of Python's."""


@dataclass(frozen=True, slots=True)
class Head:
    """What executes a file.

    Attributes:
        interpreter: the path in a script's first line, or an ELF file's loader; empty for none.
        argument: the rest of a script's first line.
        script: whether it is one.
        text: the beginning of a script.
    """

    interpreter: str = ""
    argument: str = ""
    script: bool = False
    text: str = ""


def read_head(path: str) -> Head:
    """Look at a file that is about to be executed.

    Raises:
        LaunchError: `not_executable`: it is no program, or may not be read.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except PermissionError:
        # Executable yet unreadable is legal for a binary; what it needs cannot be known.
        return Head()
    except OSError as error:
        raise LaunchError("not_executable", f"{path} cannot be read: {error.strerror}") from None
    if head.startswith(b"#!"):
        return _script(path, head)
    if head.startswith(b"\x7fELF"):
        return Head(interpreter=_loader(head))
    if head.startswith(_MACH_O) or _has_foreign_formats():
        return Head()
    raise LaunchError(
        "not_executable", f"{path} is not a program: it lacks a first line '#!…' or is for another machine"
    )


def _script(path: str, head: bytes) -> Head:
    line = head[2:MAX_LINE_BYTES].split(b"\n", 1)[0].strip(b" \t\r")
    interpreter, _, argument = os.fsdecode(line).replace("\t", " ").partition(" ")
    if not interpreter:
        raise LaunchError("not_executable", f"{path}: its first line has no interpreter")
    if long := _RUN_BY_SHELL.match(head):
        interpreter, argument = os.fsdecode(long[1]), ""
    return Head(interpreter, argument.strip(), script=True, text=head.decode(errors="replace"))


def _loader(head: bytes) -> str:
    """The path of an ELF file's dynamic loader; empty for a static one, or one that we cannot make sense of."""
    try:
        order = "<" if head[5] == 1 else ">"
        if head[4] == 2:
            [offset] = struct.unpack_from(order + "Q", head, 32)
            size, count = struct.unpack_from(order + "HH", head, 54)
            place, length = "QQ", (8, 32)
        else:
            [offset] = struct.unpack_from(order + "I", head, 28)
            size, count = struct.unpack_from(order + "HH", head, 42)
            place, length = "II", (4, 16)
        for index in range(count):
            start = offset + index * size
            if struct.unpack_from(order + "I", head, start)[0] == _PT_INTERP:
                [where] = struct.unpack_from(order + place[0], head, start + length[0])
                [span] = struct.unpack_from(order + place[1], head, start + length[1])
                return os.fsdecode(head[where : where + span].rstrip(b"\0"))
    except (struct.error, IndexError):
        pass
    return ""


def _has_foreign_formats() -> bool:
    """Whether the kernel was taught formats that we do not know: then it must judge."""
    try:
        return bool(set(os.listdir("/proc/sys/fs/binfmt_misc")) - {"register", "status"})
    except OSError:
        return False
