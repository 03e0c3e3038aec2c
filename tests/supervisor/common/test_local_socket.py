"""Who is at the other end of a Unix socket, and the key beside it."""

import os
import socket
import stat
from pathlib import Path

import pytest

from quarterdeck.common.local_socket import MAX_KEY_BYTES, Peer, make_key, peer_of, read_key


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not tell")
def test_the_peer_is_told_by_the_system() -> None:
    """`status` would name a wrong process, and another user's would be let in."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours) == Peer(os.getpid(), os.geteuid())
        assert peer_of(ours).is_ours
    assert not Peer(os.getpid(), os.geteuid() + 1).is_ours


def test_where_the_system_does_not_tell_the_peer_is_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command and no door would get through there, although the directory keeps others out."""
    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours) == Peer(0, os.geteuid())


def test_a_key_is_new_each_time_and_can_be_read_by_its_user_alone(tmp_path: Path) -> None:
    """A confined program that reaches the socket would give orders with a key that it can guess, or read."""
    path = tmp_path / "key"
    first = make_key(path)
    second = make_key(path)
    assert len(first) >= 32
    assert first != second == read_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [None, b"\xff\n", b"k" * (MAX_KEY_BYTES + 1)], ids=["none", "no-text", "too-long"])
def test_what_is_no_key_is_read_as_none(tmp_path: Path, content: bytes | None) -> None:
    """A command would fail with an error of ours where a serve has just ended, or was never one."""
    path = tmp_path / "key"
    if content is not None:
        path.touch(0o600)
        path.write_bytes(content)
    assert read_key(path) == ""
