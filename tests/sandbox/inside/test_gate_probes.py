"""Looking around from inside: plain facts of this very process."""

import os
import resource
import socket
import subprocess
from pathlib import Path

import pytest
from support.sandbox.gates import GATES, order
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck_sandbox.inside import gate
from quarterdeck_sandbox.inside.order import encode
from quarterdeck_sandbox.run.spawn import gate_command

linux = LINUX_ONLY


def look(**task: object) -> dict[str, list[object]]:
    """Facts by key."""
    facts: dict[str, list[object]] = {}
    for key, value in gate.observe({"owner": os.getppid(), "secrets": [], "fixed": [], "rlimits": []} | task):
        facts.setdefault(key, []).append(value)
    return facts


@linux
def test_it_tells_who_it_is_and_where() -> None:
    """A receipt would be judged by somebody else's facts."""
    facts = look()
    assert facts["pid"] == [os.getpid()]
    assert facts["status.Uid"] == [str(os.getuid())]
    assert facts["ns.net"] == [os.readlink("/proc/self/ns/net")]
    assert facts["sees_owner"] == [1]
    assert {"status.NoNewPrivs", "status.Seccomp", "status.CapPrm", "status.CapEff"} <= set(facts)


def test_a_secret_that_opens_is_told_and_only_that(tmp_path: Path) -> None:
    """A file that should be hidden would count as hidden."""
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    secrets = [str(tmp_path / name) for name in ("file", "gone", "pipe")] + [str(tmp_path)]
    assert look(secrets=secrets)["opened"] == [secrets[0], secrets[2], secrets[3]]


def test_a_fixed_place_that_can_be_written_is_told_and_not_written(tmp_path: Path) -> None:
    """The root of a sandbox would count as closed."""
    assert look(fixed=[str(tmp_path), str(tmp_path / "gone")])["writable"] == [str(tmp_path)]
    assert list(tmp_path.iterdir()) == []


def test_an_owner_who_can_be_signalled_is_told() -> None:
    """A server that could kill us would count as kept in."""
    assert look(owner=os.getpid())["signals_owner"] == [1]
    assert look(owner=0x7FFF_FFFF)["signals_owner"] == [0]


def test_limits_are_what_is_in_force() -> None:
    """A limit that did not stick would be promised."""
    number = resource.RLIMIT_NOFILE
    assert look(rlimits=[number])[f"rlimit.{number}"] == [resource.getrlimit(number)[0]]


def test_a_socket_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that holds would not be seen to hold, or one that does not would."""

    class Sockets:
        """Internet sockets only."""

        SOCK_DGRAM = socket.SOCK_DGRAM

        @staticmethod
        def socket(family: int, kind: int) -> socket.socket:
            if family != socket.AF_INET:
                raise PermissionError(family)
            return socket.socket(family, kind)

    monkeypatch.setattr(gate, "_socket", Sockets)
    facts = look()
    assert (facts["socket.inet"], facts["socket.unix"], facts["socket.vsock"]) == ([1], [0], [0])


def test_without_proc_there_are_no_facts_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakest tier would not start on a Mac."""

    def nothing(*args: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(gate, "open", nothing, raising=False)
    monkeypatch.setattr(gate.os, "readlink", nothing)
    facts = look()
    assert not any(key.startswith("status.") for key in facts)
    assert facts["ns.net"] == [""]


def report_of(compiled: str, probes: dict[str, object]) -> list[str]:
    """All lines of what a gate tells, but for its own pid."""
    ours, theirs = socket.socketpair()
    data = encode(order("/bin/true", probes=probes))
    with ours, theirs:
        argv = gate_command(compiled, "gate", theirs.fileno())
        with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            ours.sendall(len(data).to_bytes(8, "big") + data)
            report = b""
            while not report.endswith(b"\n\n"):
                piece = ours.recv(65536)
                assert piece
                report += piece
            ours.close()
    return report.decode().replace(f"pid {process.pid}\n", "pid\n").split("\n")


@linux
@pytest.mark.parametrize("compiled", GATES[1:])
def test_the_compiled_gate_tells_line_by_line_what_the_interpreter_does(compiled: str, tmp_path: Path) -> None:
    """A receipt would depend on how quarterdeck was installed."""
    (tmp_path / "in two\nlines").write_text("")
    probes: dict[str, object] = {
        "owner": os.getpid(),
        "secrets": [str(path) for path in (tmp_path, tmp_path / "gone", tmp_path / "in two\nlines", "/etc/shadow")],
        "fixed": [str(tmp_path), "/", "/proc", "/gone"],
        "rlimits": [resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU],
    }
    found = report_of(compiled, probes)
    assert found == report_of("", probes)
    assert f"opened {tmp_path}/in two lines" in found
    assert f"rlimit.{resource.RLIMIT_CPU} -1" in found
