"""The gate of this checkout and our side of it; compilers that make one, and orders for it."""

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from quarterdeck_sandbox.doctor.probe import try_gate
from quarterdeck_sandbox.gate.order import encode_start
from quarterdeck_sandbox.gate.program import command

GATE, WHY_NO_GATE = try_gate(platform.machine())
"""Its path, without which no test of the sandbox passes; and why there is none."""

COMPILERS: Final = tuple(filter(None, (os.environ.get("CC"), *filter(shutil.which, ("gcc", "clang")))))
"""What makes the gate here: that of the environment, and those of the system."""

PATIENCE_S: Final = 60.0

NO_COMPILER: Final = "there is no C compiler"

COMPILER_ONLY: Final = pytest.mark.skipif(not COMPILERS, reason=NO_COMPILER)


def order(*argv: str, **changes: Any) -> bytes:
    return encode_start(argv, **{"env": {}, "owner": os.getpid()} | changes)


class Owner:
    """Our side of one gate, byte by byte."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.control, self.process = control, process

    def say(self, data: bytes, entrances: Sequence[int] = ()) -> None:
        head = len(data).to_bytes(8, "big")
        sent = socket.send_fds(self.control, [head[:3]], entrances) if entrances else 0
        self.control.sendall(head[sent:] + data)

    def hear_report(self) -> dict[str, str]:
        return dict(line.partition(" ")[::2] for line in self.hear_lines())

    def hear_lines(self) -> list[str]:
        data = b""
        while b"\n\n" not in data:
            piece = self.control.recv(65536)
            assert piece, self.process.communicate()
            data += piece
        return [line for line in data.decode().splitlines() if line]

    def let_go(self) -> bytes:
        """The errno that it says, if it does."""
        self.control.sendall(b"g")
        return self.control.recv(16)

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert not err, err
        return self.process.returncode, out.decode()


@contextmanager
def gate(also: tuple[int, ...] = (), **options: Any) -> Iterator[Owner]:
    """A gate that waits for its order, and holds `also` these descriptors."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    with ours, theirs:
        argv = command(GATE, "gate", theirs.fileno())
        options = {"pass_fds": [theirs.fileno(), *also], "env": {}} | options
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
            theirs.close()
            try:
                yield Owner(ours, process)
            finally:
                process.kill()


def seen_through(data: bytes) -> str:
    """What a program writes that one order starts; it ends well."""
    with gate() as owner:
        owner.say(data)
        assert "failed" not in owner.hear_report()
        assert owner.let_go() == b""
        status, out = owner.end()
    assert status == 0, out
    return out
