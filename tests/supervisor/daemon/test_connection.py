"""What the daemon tells a door comes whole and in order, however slowly that reads; who is no door is told why."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest
from support.waiting import PATIENCE_S

from quarterdeck.common.local_socket import Peer
from quarterdeck.daemon import connection as connection_module
from quarterdeck.daemon import place as place_module
from quarterdeck.daemon.connection import MAX_NAME_CHARS, Door, DoorError, NobodyError, client_of
from quarterdeck.daemon.messages import END, HOLD, LOG, Ask, Order, encode_request, frame
from quarterdeck.daemon.place import connect
from quarterdeck_protocol.tools import Client

KEY = "k"


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Door, socket.socket]]:
    ours, theirs = socket.socketpair()
    with Door(ours) as door, theirs:
        yield door, theirs


def frames(data: bytes) -> list[tuple[bytes, int]]:
    found = []
    while data:
        size = int.from_bytes(data[1:5])
        assert len(data) >= 5 + size, "a frame was cut"
        found.append((data[:1], size))
        data = data[5 + size :]
    return found


async def test_a_door_that_reads_late_gets_whole_frames_and_its_end(ends: tuple[Door, socket.socket]) -> None:
    """A frame that was sent in part would have the door wait for ever, or end with another code."""
    door, theirs = ends
    theirs.settimeout(PATIENCE_S)
    for _ in range(2000):
        door.log("x" * 1000)
    telling = asyncio.create_task(door.end(7))
    got = b""
    while not got.endswith(END + (1).to_bytes(4) + b"7"):
        got += await asyncio.to_thread(theirs.recv, 65536)
    await telling
    *logs, last = frames(got)
    assert set(logs) == {(LOG, 1000)}
    assert len(logs) < 2000
    assert last == (END, 1)


async def test_a_door_is_given_the_http_socket_behind_all_that_it_was_told(ends: tuple[Door, socket.socket]) -> None:
    """A descriptor that comes in the middle of a frame would be lost, and with it the clients that wait there."""
    door, theirs = ends
    theirs.settimeout(PATIENCE_S)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(200):
            door.log("x" * 1000)
        door.hold(listener)
        data, fds = b"", []
        while not data.endswith(frame(HOLD, "")):
            more, found, _, _ = await asyncio.to_thread(socket.recv_fds, theirs, 65536, 1)
            data, fds = data + more, fds + found
        [held] = fds
        with socket.socket(fileno=held) as same:
            assert same.getsockname() == listener.getsockname()
    door.hold(None)
    more, found, _, _ = await asyncio.to_thread(socket.recv_fds, theirs, 65536, 1)
    assert (more, found) == (frame(HOLD, ""), [])


async def test_a_door_that_holds_nothing_is_not_told_to_hold_nothing(ends: tuple[Door, socket.socket]) -> None:
    """Every door of a daemon without HTTP would be told of it."""
    door, theirs = ends
    door.hold(None)
    await door.end(0)
    assert await asyncio.to_thread(theirs.recv, 65536) == frame(END, "0")


@pytest.mark.process
@pytest.mark.parametrize("takes", [True, False])
async def test_a_socket_that_a_door_brings_is_taken_once_or_closed(
    ends: tuple[Door, socket.socket], takes: bool
) -> None:
    """Each restart would leave a descriptor open in the daemon."""
    door, theirs = ends
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ask = encode_request(Ask(KEY, "1", Order.STAY, holds_listener=True))
        socket.send_fds(theirs, [ask], [listener.fileno()])
        await door.receive(KEY)
        port = listener.getsockname()[1]
    taken = door.take_listener() if takes else None
    door.close()
    if taken is not None:
        with socket.create_connection(("127.0.0.1", port)):
            os.close(taken)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_a_door_that_never_reads_holds_nobody_up(
    ends: tuple[Door, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stopped editor would keep the daemon from ending, or fill its memory with log."""
    monkeypatch.setattr(connection_module, "SEND_S", 0.05)
    door, _ = ends
    for _ in range(10_000):
        door.log("x" * 1000)
    with anyio.fail_after(PATIENCE_S):
        await door.end(0)
    assert len(door._out) < 2 * connection_module.MAX_BEHIND_BYTES


async def test_a_door_that_has_left_is_told_nothing(ends: tuple[Door, socket.socket]) -> None:
    """A log line for a window that was closed would end the daemon."""
    door, theirs = ends
    theirs.close()
    door.log("hello")
    await door.end(0)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\0\0\0\x05abc", "left in the middle"),
        (b"\xff\xff\xff\xffabc", "a handover of"),
        (b"\0\0\0\0", "a handover of 0 bytes"),
        (b"\0\0\0\x01\xc1", "."),
        (encode_request(Ask("another", "1", Order.END)), "does not know the key"),
        (encode_request(Ask("", "1", Order.END)), "does not know the key"),
        (encode_request(Ask(KEY, "1", Order.END)) + b"more", "more than a handover"),
    ],
)
async def test_who_is_no_door_is_not_obeyed(ends: tuple[Door, socket.socket], sent: bytes, why: str) -> None:
    """A program that finds the socket would end everybody's sessions."""
    door, theirs = ends
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(DoorError, match=why):
        await door.receive(KEY)


async def test_who_only_looks_whether_a_daemon_listens_is_nobody(ends: tuple[Door, socket.socket]) -> None:
    """The log would say for each start that a door was not let in."""
    ends[1].close()
    with pytest.raises(NobodyError):
        await ends[0].receive(KEY)


async def test_who_says_nothing_is_not_waited_for(
    ends: tuple[Door, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that stay silent would take every door's place."""
    monkeypatch.setattr(connection_module, "HANDOVER_S", 0.05)
    with pytest.raises(DoorError, match="nothing whole came"):
        await ends[0].receive(KEY)


async def test_an_order_comes_without_descriptors(ends: tuple[Door, socket.socket]) -> None:
    """What is handed over by mistake would stay open for as long as the daemon runs."""
    door, theirs = ends
    reading, writing = os.pipe()
    socket.send_fds(theirs, [encode_request(Ask(KEY, "1", Order.STATUS))], [reading])
    with pytest.raises(DoorError, match="1 descriptors in place of 0"):
        await door.receive(KEY)
    os.close(reading)
    door.close()
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)


async def test_another_users_door_is_not_let_in(
    ends: tuple[Door, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be served with our rights."""
    monkeypatch.setattr(ends[0], "peer", Peer(1, os.geteuid() + 1))
    with pytest.raises(DoorError, match="another user"):
        await ends[0].receive(KEY)


@pytest.mark.process
async def test_a_socket_of_another_user_is_not_talked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever plants one would be handed a client's streams, and its environment with every secret in it."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind("door.sock")
        planted.listen()
        monkeypatch.setattr(place_module, "peer_of", lambda _: Peer(1, os.geteuid() + 1))
        with pytest.raises(PermissionError, match="another user"):
            connect(Path(), 1.0)


@pytest.mark.process
async def test_a_daemon_that_lets_nobody_in_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A door would fail at once where many come at the same time, or wait for ever before a daemon that is stopped."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as full:
        full.bind("door.sock")
        full.listen(0)
        with connect(Path(), PATIENCE_S):
            with pytest.raises(TimeoutError, match="lets nobody in"):
                connect(Path(), 0.2)
            waiting = asyncio.create_task(asyncio.to_thread(connect, Path(), PATIENCE_S))
            await asyncio.sleep(0.1)
            full.accept()[0].close()
            (await waiting).close()


def test_a_client_is_called_by_the_program_that_started_its_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every door is the same program: the ledger would not tell one editor from another."""
    me, parent = os.getpid(), os.getppid()
    assert client_of(me) == Client(f"door {me} of {psutil.Process(parent).exe()} (pid {parent})", f"door {me}")
    monkeypatch.setattr(psutil.Process, "exe", lambda _: "/x" * 500 + "\udcff")
    assert client_of(me).name.endswith(f"\ufffd (pid {parent})")
    assert len(client_of(me).name) < MAX_NAME_CHARS + 40


def test_where_the_system_does_not_tell_a_door_has_its_pid() -> None:
    """A client would not be served because its parent is gone, or hidden."""
    assert client_of(2**30) == Client(f"door {2**30}", f"door {2**30}")
