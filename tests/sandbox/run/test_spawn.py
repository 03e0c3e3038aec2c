"""Our side of the gate, with a gate that says whatever a test wants; files without a name; helpers that end with us."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.processes.leftovers import assert_gone
from support.processes.running import python_child
from support.sandbox.gates import GATE
from support.waiting import eventually

from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run.spawn import REPORT_BYTES, GateChannel, unnamed_file, with_death_signal

PATIENCE_S = 20.0


@pytest.fixture
def keeper() -> Iterator[GateChannel]:
    made = GateChannel()
    made.theirs.settimeout(PATIENCE_S)
    yield made
    made.close()


async def test_an_order_arrives_whole_however_large(keeper: GateChannel) -> None:
    """A server with a large environment would never start."""
    order = b"x" * 3_000_000 + b"\0\xff"

    def read() -> object:
        with keeper.theirs.makefile("rb") as stream:
            return stream.read(int.from_bytes(stream.read(8), "big"))

    received: list[object] = []

    async def receive() -> None:
        received.append(await anyio.to_thread.run_sync(read))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await keeper.send_order(order)
    assert received == [order]


async def test_a_report_is_read_by_key_with_the_senders_pid(keeper: GateChannel) -> None:
    """Properties would be judged by the wrong facts, and limits put on the wrong process."""
    keeper.theirs.sendall(b"opened /a\nopened /b c\nempty \npid 999999\n")
    keeper.theirs.sendall(b"last 1\n\n")
    with anyio.fail_after(PATIENCE_S):
        report = await keeper.receive_report()
    assert report is not None
    assert report.facts["opened"] == ("/a", "/b c")
    assert (report.one("opened"), report.one("empty"), report.one("missing")) == ("/a", "", "")
    # In its own process namespace its word would mean nothing: the kernel's counts.
    assert report.pid == os.getpid()


@pytest.mark.parametrize(
    "sent", [b"", b"half a report\n", b"x" * (REPORT_BYTES + 1)], ids=["nothing", "half", "too much"]
)
async def test_what_is_no_report_is_none(keeper: GateChannel, sent: bytes) -> None:
    """A gate that failed would be waited for, or fill our memory."""

    def speak() -> None:
        try:
            keeper.theirs.sendall(sent)
        except OSError:
            pass  # nobody listens any more
        keeper.theirs.close()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, speak)
            assert await keeper.receive_report() is None
            keeper._ours.close()


async def test_a_gate_that_ends_without_reading_its_order_has_no_report(keeper: GateChannel) -> None:
    """A user would read of a connection that was reset, not what bubblewrap had to say."""
    with anyio.fail_after(PATIENCE_S):
        await keeper.send_order(b"order")
        keeper.theirs.close()
        assert await keeper.receive_report() is None
        with pytest.raises(LaunchError, match="ended early"):
            await keeper.send_order(b"order")


async def test_listeners_come_in_their_order_in_as_many_messages_as_it_takes(keeper: GateChannel) -> None:
    """A connection would be carried to another host than it was made for."""
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in made]
    socket.send_fds(keeper.theirs, [b"l"], [made[0].fileno(), made[1].fileno()])
    socket.send_fds(keeper.theirs, [b"l"], [made[2].fileno()])
    keeper.theirs.sendall(b"pid 1\n\n")
    with anyio.fail_after(PATIENCE_S):
        received = await keeper.receive_listeners(3)
        report = await keeper.receive_report()
    assert [one.getsockname()[1] for one in received] == ports
    assert report is not None
    assert report.one("pid") == "1"
    for one in (*made, *received):
        one.close()


async def test_a_failure_instead_of_listeners_is_the_report(keeper: GateChannel) -> None:
    """A port that cannot be listened on would be a start that never ends."""
    keeper.theirs.sendall(b"failed 13 listen on ::1:80\n\n")
    with anyio.fail_after(PATIENCE_S):
        assert await keeper.receive_listeners(2) == []
        report = await keeper.receive_report()
    assert report is not None
    assert report.one("failed") == "13 listen on ::1:80: Permission denied"


async def test_a_gate_that_ends_among_its_listeners_leaves_none_open(keeper: GateChannel) -> None:
    """Each such start would cost descriptors."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        socket.send_fds(keeper.theirs, [b"l"], [one.fileno()])
    keeper.theirs.close()
    before = len(os.listdir("/dev/fd"))
    with anyio.fail_after(PATIENCE_S), pytest.raises(LaunchError, match="before it could listen"):
        await keeper.receive_listeners(2)
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize(("said", "number"), [(b"", 0), (b"2", 2), (b"junk", 0)])
async def test_letting_go_tells_whether_it_worked(keeper: GateChannel, said: bytes, number: int) -> None:
    """A program that cannot be executed would count as started."""
    keeper.theirs.sendall(said)
    keeper.theirs.shutdown(socket.SHUT_WR)
    with anyio.fail_after(PATIENCE_S):
        assert await keeper.release() == number
    assert keeper.theirs.recv(10) == b"g"


async def test_closing_refuses_whoever_waits(keeper: GateChannel) -> None:
    """A gate would wait for ever for a word of ours."""
    theirs = keeper.theirs.dup()
    theirs.settimeout(PATIENCE_S)
    keeper.close()
    keeper.close()
    assert theirs.recv(1) == b""
    theirs.close()


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


OWNER = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); sys.stdin.read()"
MACHINE = Machine("linux", gate=GATE)


def lose_the_owner(command: list[str], ready: Path) -> int:
    """Start it by a process that is killed when `ready` is there, and it was stopped; its pid."""
    with python_child(OWNER, *command) as owner:
        helper = int(owner.read_line())
        eventually(ready.exists)
        os.kill(helper, signal.SIGSTOP)
        owner.kill()
    return helper


@pytest.mark.process
def test_a_helper_that_is_stopped_is_killed_with_its_owner(tmp_path: Path) -> None:
    """After a crash users would find processes that nobody owns."""
    ready = tmp_path / "ready"
    command = ["/bin/sh", "-c", f"touch {ready}; exec sleep 1000"]
    assert_gone([lose_the_owner(with_death_signal(MACHINE, command), ready)])


@pytest.mark.process
def test_one_that_has_something_to_end_itself_is_woken(tmp_path: Path) -> None:
    """What it holds would stay with it."""
    ready, done = tmp_path / "ready", tmp_path / "done"
    command = ["/bin/sh", "-c", f"trap 'touch {done}; exit' CONT; touch {ready}; while :; do sleep 0.01; done"]
    assert_gone([lose_the_owner(with_death_signal(MACHINE, command, signal.SIGCONT), ready)])
    assert done.exists()
