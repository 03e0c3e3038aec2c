"""What tests leave in their own process is named with the test, and what they put away is not."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from quarterdeck_pytest.leaks import VARIABLE, Watch, children_of

DAEMON = """
import os, sys, time
if not (pid := os.fork()):
    os.setsid()
    os.close(1)
    time.sleep(600)
print(pid)
"""
"""Starts a process that is nobody's child, and says which."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of locks and children"),
    pytest.mark.process,
]


def test_what_is_left_is_named_with_its_test(tmp_path: Path) -> None:
    """A suite that fills a machine would give no hint which of its tests does."""
    watch = Watch()
    watch.begin("test_a")
    folder = tempfile.mkdtemp(dir=tmp_path)
    listening = socket.create_server(("127.0.0.1", 0))
    file = (tmp_path / "lock").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    watch.end()
    watch.begin("test_b")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    watch.end()
    try:
        left = watch.left()
    finally:
        child.kill()
        child.wait()
        file.close()
        listening.close()
    assert [line.partition(" left ")[0] for line in left] == ["test_a", "test_a", "test_a", "test_b"]
    text = "\n".join(left)
    for part in (f"the temporary directory {folder}", "a socket that listens on", "a lock on", f"process {child.pid}"):
        assert part in text


def test_a_process_that_left_its_parent_is_named_with_the_test_that_started_it() -> None:
    """A daemon that a test starts would run for ever, on every machine, and nobody would know whose it is."""
    watch = Watch()
    watch.begin("test_a[\0]")
    try:
        pid = int(subprocess.check_output([sys.executable, "-c", DAEMON]))
    finally:
        watch.end()
    try:
        assert [line.rpartition(" (")[0] for line in watch.left()] == [f"test_a[(null)] left process {pid}"]
    finally:
        os.kill(pid, signal.SIGKILL)
    assert VARIABLE not in os.environ


def test_sockets_and_files_are_told_as_they_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 0, or a name relative to a folder that the test was in, says nothing."""
    monkeypatch.chdir(tmp_path)
    watch = Watch()
    watch.begin("test_a")
    descriptor, file = tempfile.mkstemp(dir=tmp_path)
    os.close(descriptor)
    closed = socket.socket(socket.AF_UNIX)
    closed.bind("s")
    closed.close()
    with (
        tempfile.NamedTemporaryFile(dir=tmp_path),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        datagrams.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{tmp_path}")
        watch.end()
        assert {line.removeprefix("test_a left ") for line in watch.left()} == {
            f"the temporary file {file}",
            f"the socket's file {tmp_path / 's'}",
            f"a socket that listens on 127.0.0.1, port {server.getsockname()[1]}",
            f"a socket that is bound to 127.0.0.1, port {datagrams.getsockname()[1]}",
            f"a socket that is bound to @{tmp_path}",
        }


@pytest.mark.parametrize("address", [bytearray(b"\0quarterdeck-a"), memoryview(b"\0quarterdeck-b"), "\0quarterdeck-c"])
def test_a_socket_is_bound_to_whatever_names_an_address(address: Any) -> None:
    """A test would fail by being watched."""
    watch = Watch()
    watch.begin("test_a")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(address)
        watch.end()
        name = bytes(address, "utf-8") if isinstance(address, str) else bytes(address)
        assert watch.left() == [f"test_a left a socket that is bound to @{name[1:].decode()}"]


def test_what_is_put_away_or_was_there_before_is_no_leak(tmp_path: Path) -> None:
    """A clean suite would fail."""
    before = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    watch = Watch()
    tempfile.mkdtemp(dir=tmp_path)
    watch.begin("test_a")
    shutil.rmtree(tempfile.mkdtemp(dir=tmp_path))
    socket.create_server(("127.0.0.1", 0)).close()
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    subprocess.run([sys.executable, "-c", ""], check=True)
    ending = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ending.terminate()  # and nobody waits for it
    tempfile.mkdtemp(prefix="pymp-", dir=tmp_path)
    resource_tracker.ensure_running()
    watch.end()
    tempfile.mkdtemp(dir=tmp_path)
    try:
        assert watch.left() == []
    finally:
        before.kill()
        before.wait()
        ending.wait()


def test_a_child_is_told_from_a_later_process_of_its_id() -> None:
    """A process of somebody else's would be named as left."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        [found] = [each for each in children_of(os.getpid()) if each.pid == child.pid]
        assert found.started.isdigit()
        child.send_signal(signal.SIGKILL)


def test_a_name_with_a_line_end_begins_no_line(tmp_path: Path) -> None:
    """A server would give orders to the CI in whose log the summary is."""
    watch = Watch()
    watch.begin("test_a")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("\0x\n::error::forged\u202e")
        watch.end()
        [line] = watch.left()
    assert line == "test_a left a socket that is bound to @x\\n::error::forged\\u202e"
