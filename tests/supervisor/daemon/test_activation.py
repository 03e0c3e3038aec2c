"""Sockets from a service manager: only what it really hands to us is taken, and nothing is passed on."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck.daemon import activation
from quarterdeck.daemon.activation import ActivationError, leave_service_group, take_sockets


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        os.set_inheritable(made.fileno(), True)  # noqa: FBT003 - takes no keyword
        monkeypatch.setattr(activation, "FIRST_FD", made.fileno())
        yield made
        made.detach()


def said(count: str = "1", names: str = "door", pid: int | None = None) -> dict[str, str]:
    """The variables of a service manager, and one of somebody else."""
    return {"LISTEN_PID": str(pid or os.getpid()), "LISTEN_FDS": count, "LISTEN_FDNAMES": names, "OTHER": "x"}


def test_a_socket_is_taken_by_its_name_and_no_program_inherits_it(listener: socket.socket) -> None:
    """Doors would find nobody; or a server could take doors in."""
    environ = said()
    with take_sockets(environ)["door"] as taken:
        assert taken.getsockname() == listener.getsockname()
        assert not os.get_inheritable(taken.fileno())
    assert environ == {"OTHER": "x"}


def test_what_was_handed_to_another_process_is_left_alone() -> None:
    """The variables are passed on by programs that take no sockets: a descriptor of ours would be taken for one."""
    environ = said(pid=1)
    assert take_sockets(environ) == {}
    assert environ == {"OTHER": "x"}
    assert take_sockets({}) == {}


@pytest.mark.parametrize(
    ("count", "names"),
    [("", "door"), ("-1", "door"), ("x", "door"), ("99999999", "door"), ("²", "door"), ("2", "door"), ("2", "a:a")],
)
def test_variables_that_do_not_fit_are_said(count: str, names: str) -> None:
    """Descriptors that are ours would be taken for sockets and closed."""
    with pytest.raises(ActivationError, match="LISTEN_FD"):
        take_sockets(said(count, names))


@pytest.mark.parametrize("what", ["file", "closed", "datagram", "connected"])
def test_a_descriptor_that_is_no_listening_socket_is_said(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon would start, and no door ever come in."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM if what == "datagram" else socket.SOCK_STREAM)
    with one, other, open(os.devnull) as file:
        fd = {"file": file.fileno(), "closed": 99_999}.get(what, one.fileno())
        monkeypatch.setattr(activation, "FIRST_FD", fd)
        with pytest.raises(ActivationError, match=f"descriptor {fd} \\(door\\)"):
            take_sockets(said())
        assert what == "closed" or os.fstat(fd)


def test_the_daemon_leaves_the_group_of_its_service_to_servers(tmp_path: Path) -> None:
    """A control group that holds processes can limit no others: no server would have a limit on its memory."""
    process, groups = tmp_path / "cgroup", tmp_path / "groups"
    (groups / "app.slice" / "quarterdeck.service").mkdir(parents=True)
    process.write_text("0::/app.slice/quarterdeck.service\n")
    leave_service_group(groups, process)
    moved = groups / "app.slice" / "quarterdeck.service" / "supervisor" / "cgroup.procs"
    assert moved.read_text() == str(os.getpid())


@pytest.mark.parametrize("text", ["0::/init.scope\n", "1:memory:/a.service\n", "0::/missing.service\n", ""])
def test_elsewhere_the_daemon_stays_where_it_is(text: str, tmp_path: Path) -> None:
    """A process would be moved out of a terminal's group, whose limits somebody set."""
    process = tmp_path / "cgroup"
    process.write_text(text)
    leave_service_group(tmp_path, process)
    leave_service_group(tmp_path, tmp_path / "none")
    assert os.listdir(tmp_path) == ["cgroup"]
