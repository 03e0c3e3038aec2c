"""The daemon under a service manager that holds its socket, which is played here as systemd does it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, OURSELVES, command, forks, quarterdeck_json_forked
from support.processes.forks import Fork
from support.processes.leftovers import assert_gone, no_leftovers
from support.serves.daemons import door
from support.waiting import eventually

from quarterdeck.cli.run.daemon_commands import down
from quarterdeck.config.places.paths import make_private_dir
from quarterdeck.daemon import client
from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir, remove, service_dir

_PASS_ON: Final = """
import os, sys
os.dup2({fd}, 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="door")
"""

_EXEC: Final = "os.execv(sys.argv[1], sys.argv[1:])"

_FORK: Final = "sys.argv[1:] = 'service', 'run'; from quarterdeck import cli; cli.main()"


class Manager:
    """Holds the socket, and starts the daemon behind it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.daemon: subprocess.Popen[bytes] | Fork | None = None

    def start(self, *, is_forked: bool = True) -> int:
        """Start the daemon as systemd does: the socket is descriptor 3, and the variables name its process."""
        assert self.daemon is None or self.daemon.poll() is not None
        fd = self._listener.fileno()
        given = _PASS_ON.format(fd=fd)
        if is_forked:
            words = [given + _FORK]
            self.daemon = forks().start(OURSELVES, words, os.environ, pass_fds=[fd], stderr_fd=2, program="python")
            self.daemon.stdout.close()
        else:
            words = [sys.executable, "-S", "-c", given + _EXEC, *command("service", "run")]
            self.daemon = subprocess.Popen(words, pass_fds=[fd], stdin=subprocess.DEVNULL)
        return self.daemon.pid

    def wait(self) -> int:
        """Its exit status."""
        assert self.daemon is not None
        return self.daemon.wait(DEADLINE_S)


@contextmanager
def managing() -> Iterator[Manager]:
    """A service manager whose socket is where `service install` puts it."""
    directory = make_private_dir(service_dir())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "door.sock"))
        listener.listen()
        manager = Manager(listener)
        try:
            yield manager
        finally:
            if manager.daemon is not None and manager.daemon.poll() is None:
                manager.daemon.terminate()
                manager.wait()
    remove(directory)


@pytest.fixture(autouse=True)
def by_the_daemon(own_directories: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("QUARTERDECK_OWN", raising=False)
    with no_leftovers(DEADLINE_S):
        yield
    assert not daemon_dir().exists(), sorted(daemon_dir().iterdir())


@pytest.mark.nightly
def test_a_session_goes_on_under_a_service_manager_whatever_ends_its_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`down` would kill the service manager, or an order of it end the next daemon; each upgrade would end sessions."""
    config = write_config(tmp_path / "mcp.json", s=row("echo"))
    with ExitStack() as stack:
        window = stack.enter_context(door(config))
        window.initialize()
        first = quarterdeck_json_forked("status")["daemon"]

        def is_served(by: int) -> None:
            assert window.call("s__echo", text=f"{by}")["content"][0]["text"] == f"{by}"
            found = ask_daemon(service_dir(), Order.STATUS)
            assert (found.pid, found.stays, len(found.clients)) == (by, True, 1)

        # A daemon that a door had started makes room.
        manager = stack.enter_context(managing())
        pid = manager.start()
        assert_gone([first["pid"]], DEADLINE_S)
        is_served(pid)

        assert manager.daemon is not None
        manager.daemon.kill()
        manager.wait()
        is_served(manager.start())

        # Its queue outlives the daemon, and with it the order of who gave up waiting for an answer.
        stopped = manager.daemon.pid
        os.kill(stopped, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(client, "ANSWER_S", 0.5)
            down()
        manager.wait()
        assert f"it was killed (process {stopped})" in capsys.readouterr().err
        is_served(manager.start())

        window.close()
        down()
        assert manager.wait() == 0


@pytest.mark.nightly
def test_the_end_of_a_login_ends_a_service_with_all_that_it_runs_and_the_next_one_starts_it(tmp_path: Path) -> None:
    """Servers would outlive it until the manager kills them; or the next window meet a ledger that is still held."""
    config = write_config(tmp_path / "mcp.json", s=row("echo"))
    with managing() as manager:
        daemon = psutil.Process(manager.start(is_forked=False))  # what a fork starts is not below it
        with door(config) as window:
            window.initialize()
            window.list_tools()
            under_way = window.send("tools/call", {"name": "s__hang", "arguments": {}})
            eventually(
                lambda: [each.calls for each in ask_daemon(service_dir(), Order.STATUS).clients] == [1], DEADLINE_S
            )
            below = [process.pid for process in daemon.children(recursive=True)]
            window.process.send_signal(signal.SIGHUP)
            daemon.terminate()  # `KillMode=mixed`: the daemon alone, the others when it has ended
            assert window.reply(under_way)["result"]["isError"]
            assert (manager.wait(), window.process.wait(DEADLINE_S)) == (0, 0)
            assert_gone([daemon.pid, *below], DEADLINE_S)
        manager.start()
        with door(config) as window:
            window.initialize()
            assert window.call("s__echo", text="back")["content"][0]["text"] == "back"
