"""What the client of a door is called."""

import os
from pathlib import Path

import pytest

from quarterdeck.daemon.client_names import MAX_NAME_CHARS, client_of
from quarterdeck_protocol.tools import Client


def planted(proc: Path, stat: bytes, program: str = "/opt/an editor") -> Path:
    """What the system tells of the door 7 and its parent, 5."""
    for pid in ("7", "5"):
        (proc / pid).mkdir()
    (proc / "7" / "stat").write_bytes(stat)
    (proc / "5" / "exe").symlink_to(program)
    return proc


def test_a_client_is_called_by_the_program_that_started_its_door(tmp_path: Path) -> None:
    """Every door is the same program: the ledger would not tell one editor from another."""
    proc = planted(tmp_path, b"7 (py) (x) thon) S 5 7 7 0 -1")
    assert client_of(7, proc) == Client("door 7 of /opt/an editor (pid 5)", "door 7")
    (proc / "5" / "exe").unlink()
    (proc / "5" / "exe").symlink_to(os.fsencode("/x" * 500) + b"\xff")
    name = client_of(7, proc).name
    assert name.endswith("\ufffd (pid 5)")
    assert len(name) < MAX_NAME_CHARS + 30


@pytest.mark.parametrize("stat", [b"", b"7 (x) S", b"7 (x) S many", b"7 (x) S 1 0", b"7 (x) S 6 0"])
def test_where_the_system_does_not_tell_a_door_has_its_pid(tmp_path: Path, stat: bytes) -> None:
    """A client would not be served because its parent is gone, or hidden."""
    assert client_of(7, planted(tmp_path, stat)) == Client("door 7", "door 7")
    assert client_of(8, tmp_path) == Client("door 8", "door 8")


def test_the_program_of_a_real_door_is_found() -> None:
    assert f"(pid {os.getppid()})" in client_of(os.getpid()).name
