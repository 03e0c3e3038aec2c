"""Files without a name."""

import os

import pytest

from quarterdeck_sandbox.run.spawn import unnamed_file


def test_its_reader_begins_at_its_beginning() -> None:
    """The program bwrap would find no arguments in it, and the gate no order."""
    fd = unnamed_file(b"words")
    try:
        assert os.read(fd, 100) == b"words"
    finally:
        os.close(fd)


def test_where_such_memory_is_refused_it_is_a_file_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`quarterdeck doctor` in a sandbox of ours would end with an unforeseen error: memory is refused there."""

    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    fd = unnamed_file(b"words")
    try:
        assert os.read(fd, 100) == b"words"
        assert os.fstat(fd).st_nlink == 0
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)
