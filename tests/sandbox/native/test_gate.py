"""The last steps between a spawn and a program's first instruction, without a sandbox around them."""

import array
import errno
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sandbox.gates import gate, order
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck_sandbox.policy.tiers import Rules

pytestmark = pytest.mark.process


def seen_by_a_program(name: str, options: dict[str, Any] | None = None, **changes: Any) -> str:
    """What a program (no Python, which has ideas of its own about signals) sees of itself in `/proc`."""
    with gate(**(options or {})) as owner:
        owner.say(order("own-name", f"/proc/self/{name}", program="/bin/cat", **changes))
        owner.hear_report()
        assert owner.let_go() == b""
        status, out = owner.end()
    assert status == 0
    return out


def ignored_signals(status: str) -> set[int]:
    """The signals that a process ignores, from its `/proc` status."""
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_program_begins_as_it_would_under_a_shell() -> None:
    """It would dump core with its secrets, see our variables, or never die of a closed pipe."""
    limits = seen_by_a_program("limits", rlimits=[(resource.RLIMIT_CORE, 0)])
    limit = next(line for line in limits.splitlines() if "core" in line)
    assert limit.split()[4:6] == ["0", "0"]
    assert seen_by_a_program("cmdline").split("\0")[:2] == ["own-name", "/proc/self/cmdline"]
    assert seen_by_a_program("environ", env={"ONLY": "this"}) == "ONLY=this\0"
    assert not ignored_signals(seen_by_a_program("status")) & {signal.SIGPIPE, signal.SIGXFSZ}


def test_it_joins_what_comes_with_its_order_before_it_reports_and_says_how(tmp_path: Path) -> None:
    """A server would run outside of the groups that limit it, or hold what leads into them."""
    place = tmp_path / "tasks"
    place.touch()
    with open(place, "ab") as entrance, open(place, "rb") as closed, gate() as owner:
        owner.say(order("ls", "/proc/self/fd", program="/bin/ls"), [entrance.fileno(), closed.fileno()] * 3)
        lines = owner.hear_lines()
        assert lines[:6] == ["joined 0", f"joined {errno.EBADF}"] * 3
        assert place.read_text() == "000"
        assert owner.let_go() == b""
        status, out = owner.end()
    assert (status, out.split()) == (0, ["0", "1", "2", "3"])  # the last is its own, of the listing


def test_its_report_tells_what_can_be_seen_and_done_from_inside(tmp_path: Path) -> None:
    """A receipt would be judged by the wrong facts; or a look would change what it looks at."""
    (tmp_path / "in two\nlines").touch()
    os.mkfifo(tmp_path / "pipe")
    secrets = [str(tmp_path / name) for name in ("in two\nlines", "gone", "pipe", "")]
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, 7)]
    with gate() as owner:
        owner.say(order("/bin/true", secrets=secrets, fixed=[str(tmp_path), str(tmp_path / "gone")], rlimits=limits))
        lines = owner.hear_lines()
    assert [line for line in lines if line.startswith("opened ")] == [
        f"opened {tmp_path}/in two lines",
        f"opened {tmp_path}/pipe",
        f"opened {tmp_path}",
    ]
    assert [line for line in lines if line.startswith("writable ")] == [f"writable {tmp_path}"]
    namespaces = [f"ns.{name} {os.readlink(f'/proc/self/ns/{name}')}" for name in ("mnt", "pid", "net")]
    expected = {"signals_owner 1", "holds_first 1", "changes_metadata 1", "socket.inet 1"}
    assert expected | {f"rlimit.{number} {value}" for number, value in limits} | set(namespaces) <= set(lines)
    names = {line.partition(" ")[0] for line in lines}
    assert names >= {"status.NoNewPrivs", "status.Seccomp", "status.CapPrm", "status.CapEff"}


def test_an_owner_who_is_gone_cannot_be_signalled() -> None:
    """Every process would count as able to kill us."""
    with gate() as owner:
        owner.say(order("/bin/true", owner=0x7FFF_FFFF))
        assert owner.hear_report()["signals_owner"] == "0"


def test_it_takes_no_more_than_eight(tmp_path: Path) -> None:
    """It would write beside its room for them."""
    place = tmp_path / "tasks"
    with open(place, "ab") as entrance, gate() as owner:
        owner.say(order("/bin/true"), [entrance.fileno()] * 20)
        assert [line for line in owner.hear_lines() if line.startswith("joined")] == ["joined 0"] * 8
    assert place.read_text() == "0" * 8


def test_a_program_does_not_inherit_that_we_ignore_interrupts() -> None:
    """A server could not interrupt its own children, nor be interrupted."""
    status = seen_by_a_program("status", {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)})
    assert signal.SIGINT not in ignored_signals(status)


def test_a_program_holds_no_descriptor_of_ours_however_high() -> None:
    """A server could read what our owner has open: it is given away here at the latest."""
    low = os.open("/dev/null", os.O_RDONLY)
    high = os.dup2(low, min(5000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1))
    os.close(low)
    try:
        with gate(also=(high,)) as owner:
            owner.say(order("/bin/ls", "/proc/self/fd"))
            owner.hear_report()
            owner.let_go()
            # The fourth is the directory that `ls` itself reads.
            assert owner.end()[1].split() == ["0", "1", "2", "3"]
    finally:
        os.close(high)


def test_a_program_leads_a_session_of_its_own() -> None:
    """A signal to its group would not reach it, or reach what is not its own."""
    with gate() as owner:
        owner.say(order("/bin/cat", "/proc/self/stat"))
        owner.hear_report()
        owner.let_go()
        fields = owner.end()[1].rpartition(")")[2].split()
    assert fields[2] == fields[3] == str(owner.process.pid)


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda path: None, errno.ENOENT),
        (lambda path: path.write_text("#!/no/such/interpreter\n"), errno.ENOENT),
        (lambda path: path.write_text("no program\n"), errno.ENOEXEC),
        (lambda path: path.mkdir(), errno.EACCES),
    ],
    ids=["missing", "interpreter", "no program", "directory"],
)
def test_an_exec_that_fails_tells_its_number(make: Callable[[Path], object], number: int, tmp_path: Path) -> None:
    """A user would be told that the server exited, and not why it never began."""
    path = tmp_path / "program"
    make(path)
    path.exists() and path.chmod(0o755)
    with gate() as owner:
        owner.say(order(str(path)))
        owner.hear_report()
        assert owner.let_go() == str(int(number)).encode()
        assert owner.end()[0] == 126


@pytest.mark.parametrize("when", ["before the order", "within it", "before the report is read", "behind the gate"])
def test_a_program_whose_owner_died_meanwhile_is_not_started(when: str) -> None:
    """A server would begin its life as an orphan that nobody ends."""
    with gate() as owner:
        if when == "within it":
            owner.control.sendall((1000).to_bytes(8, "big") + b"half")
        elif when == "before the report is read":
            owner.say(order("/bin/echo", "alive"))
            assert owner.control.recv(1)
        elif when == "behind the gate":
            owner.say(order("/bin/echo", "alive"))
            owner.hear_report()
        owner.control.close()
        assert owner.end() == (125, "")


def test_any_other_word_is_a_refusal() -> None:
    """A byte that was lost or added would start a program that was not judged."""
    with gate() as owner:
        owner.say(order("/bin/echo", "alive"))
        owner.hear_report()
        owner.control.sendall(b"x")
        assert owner.end() == (125, "")


@pytest.mark.parametrize("place", ["/no/such/place", "/dev/null"])
def test_what_cannot_be_prepared_is_reported_and_nothing_is_executed(place: str) -> None:
    """A server would run somewhere else, or unconfined."""
    with gate() as owner:
        owner.say(order("/bin/echo", "alive", cwd=place))
        assert place in owner.hear_report()["failed"]
        owner.control.close()
        assert owner.end() == (125, "")


def test_a_limit_is_what_it_is_told_and_never_above_what_we_have() -> None:
    """A server could raise its limits; or it could not start where ours are lower already."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    rlimits = [
        (resource.RLIMIT_NOFILE, hard + 1 if hard != resource.RLIM_INFINITY else 100),
        (resource.RLIMIT_FSIZE, 4096),
        (resource.RLIMIT_CPU, 7),
    ]
    found = {
        line[:26].strip(): line[26:].split()[:2] for line in seen_by_a_program("limits", rlimits=rlimits).splitlines()
    }
    assert found["Max open files"] == [str(hard if hard != resource.RLIM_INFINITY else 100)] * 2
    assert found["Max file size"] == ["4096", "4096"]
    # A second to hear SIGXCPU: at the hard limit the kernel kills at once, and nobody knows why.
    assert found["Max cpu time"] == ["7", "8"]


def test_a_program_may_open_what_its_owner_was_started_with() -> None:
    """A program that uses `select` would break when we raise our own limit; the policy's number still counts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def found(**changes: Any) -> list[str]:
        lines = seen_by_a_program("limits", **changes).splitlines()
        return next(line[26:].split()[:2] for line in lines if line.startswith("Max open files"))

    whole = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    assert found(open_files=99) == ["99", whole]
    assert found(open_files=99, rlimits=[(resource.RLIMIT_NOFILE, 77)]) == ["77", "77"]
    assert found(open_files=99, rlimits=[(resource.RLIMIT_NOFILE, 120)]) == ["120", "120"]


def test_the_core_limit_is_the_programs_alone() -> None:
    """Our own limits would change with the first server."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    with gate() as owner:
        owner.say(order("/bin/true", rlimits=[(resource.RLIMIT_CORE, 0)]))
        owner.hear_report()
        owner.let_go()
        owner.end()
    assert resource.getrlimit(resource.RLIMIT_CORE) == before


@ROOT_ONLY
@pytest.mark.parametrize(
    ("uid", "gid", "sets"),
    [(61200, 61201, ("CapPrm", "CapEff", "CapAmb")), (0, 0, ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))],
    ids=["another", "root"],
)
def test_it_becomes_whom_it_is_told_with_nothing_left_but_the_name(uid: int, gid: int, sets: tuple[str, ...]) -> None:
    """A server would keep root's groups or powers; root gains them again with each program that it executes."""
    lines = seen_by_a_program("status", {"extra_groups": [4242]}, identity=(uid, gid)).splitlines()
    status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    assert (status["Uid"], status["Gid"], status["Groups"]) == ([str(uid)] * 4, [str(gid)] * 4, [])
    assert {status[name][0] for name in sets} == {"0" * 16}
    assert status["Umask"] == ["0022"]
    assert uid or status["NoNewPrivs"] == ["1"]


@contextmanager
def received(count: int, control: socket.socket) -> Iterator[list[socket.socket]]:
    """The next `count` sockets that came over `control`."""
    with ExitStack() as cleanup:
        fds = array.array("i")
        while len(fds) < count:
            _, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(1024), socket.MSG_CMSG_CLOEXEC)
            for _, _, content in ancillary:
                fds.frombytes(content)
        yield [cleanup.enter_context(socket.socket(fileno=fd)) for fd in fds]


def test_whoever_holds_the_listeners_is_dialled() -> None:
    """A host of the list could not be reached, or another one would answer in its place."""
    count = 450  # three messages
    pairs = [(f"127.64.{number // 250}.{number % 250 + 1}", 0) for number in range(count)]
    with gate() as owner:
        owner.say(order("/bin/true", listen=[*pairs, ("::1", 0)]))
        with received(count + 1, owner.control) as opened:
            assert [one.getsockname()[0] for one in opened] == [*(address for address, _ in pairs), "::1"]
            for one in (opened[0], opened[count // 2], opened[-1]):
                with socket.create_connection(one.getsockname()[:2], 5):
                    one.accept()[0].close()
            assert "signals_owner" in owner.hear_report()


def test_an_address_that_is_taken_is_named() -> None:
    """A server would start without a host that its receipt promises."""
    with gate() as owner, socket.create_server(("127.64.0.9", 0)) as taken:
        address, port = taken.getsockname()
        owner.say(order("/bin/true", listen=[("127.64.0.8", 0), (address, port)]))
        assert owner.hear_report()["failed"] == f"{int(errno.EADDRINUSE)} listen on {address}:{port}"


def broken_orders() -> Iterator[tuple[str, bytes]]:
    whole = order("/bin/true")
    yield "too short for a record", whole + b"P"
    yield "a record that is cut off", whole + b"P\xff\0\0\0text"
    yield "an unknown record", whole + b"?\0\0\0\0"
    yield "a text without an end", whole + b"A\4\0\0\0text"
    yield "a text in two", whole + b"A\4\0\0\0a\0b\0"
    yield "an integer that is too short", whole + b"F\1\0\0\0\0"
    yield "half an instruction", whole + b"S\4\0\0\0\0\0\0\0"
    yield "a step without a path", whole + b"Y\1\0\0\0\1"
    yield "an address of no family", whole + b"N\x16\0\0\0" + bytes(8) + b"\5" + bytes(12) + b"\0"
    yield "no program", order("/bin/true").replace(b"P", b"s", 1)
    yield "nothing", b""


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in broken_orders()])
def test_an_order_that_is_none_is_refused(data: bytes) -> None:
    """Whoever got hold of the socket could have it read behind the order's end, or start without what confines."""
    with gate() as owner:
        owner.control.sendall(len(data).to_bytes(8, "big") + data)
        assert owner.control.recv(1) == b""
        assert owner.end() == (125, "")


SEED = order("/bin/true", env={"A": "1"}, listen=[("127.0.0.1", 0)], rules=Rules(uses_landlock=False))


@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), max_size=4), st.integers(0, 40))
def test_whatever_bytes_it_is_given_it_reports_or_refuses(changes: list[tuple[int, int]], cut: int) -> None:
    """A gate that crashes on an order could be made to do worse by one that was chosen for it."""
    data = bytearray(SEED)
    for place, byte in changes:
        data[place] = byte
    if cut < 10:
        del data[len(data) - cut :]
    with gate() as owner:
        owner.say(bytes(data))
        owner.control.recv(1)
        owner.control.close()
        assert owner.end() == (125, "")


def test_an_order_without_end_is_refused() -> None:
    """It would take all memory."""
    with gate() as owner:
        owner.control.sendall(b"\xff" * 8)
        assert owner.control.recv(1) == b""
        assert owner.end() == (125, "")
