"""The steps between our spawn and a server's first instruction."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.leftovers import assert_gone

SHIM = Path(__file__).resolve().parents[2] / "sandbox" / "quarterdeck_sandbox" / "shim.py"


def run(*argv: str, parent: int | None = None, **options: Any) -> tuple[subprocess.CompletedProcess[bytes], bytes]:
    """Run the shim; its end, and what it said on the status descriptor."""
    status_r, status_w = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SHIM), str(status_w), str(parent or os.getpid()), *argv],
            pass_fds=[status_w],
            capture_output=True,
            check=False,
            timeout=30,
            **options,
        )
    finally:
        os.close(status_w)
    with open(status_r, "rb") as status:
        return done, status.read()


def seen_by_a_server(name: str, **options: Any) -> str:
    """What a server (no Python, which has ideas of its own about signals) sees of itself in `/proc`."""
    done, status = run("/bin/cat", "own-name", f"/proc/self/{name}", **options)
    assert (done.returncode, status) == (0, b""), done.stderr
    return done.stdout.decode()


def ignored_signals(status: str) -> set[int]:
    """The signals that a process ignores, from its `/proc` status."""
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_begins_as_it_would_under_a_shell() -> None:
    """It would dump core with its secrets, or never die of a closed pipe."""
    limit = next(line for line in seen_by_a_server("limits").splitlines() if "core" in line)
    assert limit.split()[4:6] == ["0", "0"]
    assert seen_by_a_server("cmdline").split("\0")[:2] == ["own-name", "/proc/self/cmdline"]
    variables = seen_by_a_server("environ", env={"ONLY": "this"}).rstrip("\0").split("\0")
    assert {line for line in variables if not line.startswith("LC_CTYPE=")} == {"ONLY=this"}
    assert not ignored_signals(seen_by_a_server("status")) & {signal.SIGPIPE, signal.SIGXFSZ}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_does_not_inherit_that_we_ignore_interrupts() -> None:
    """A server could not interrupt its own children, nor be interrupted."""
    status = seen_by_a_server("status", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert signal.SIGINT not in ignored_signals(status)


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
def test_an_exec_that_fails_tells_its_number(make: Any, number: int, tmp_path: Path) -> None:
    """A user would be told that the server exited, and not why it never began."""
    path = tmp_path / "program"
    make(path)
    path.exists() and path.chmod(0o755)
    done, status = run(str(path), "program")
    assert (done.returncode, status) == (126, str(int(number)).encode())


def test_a_server_whose_worker_died_meanwhile_is_not_started() -> None:
    """A server would begin its life as an orphan that nobody ends."""
    done, status = run(sys.executable, "python", "-c", "print('alive')", parent=1)
    assert (done.returncode, done.stdout, status) == (127, b"", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own request")
def test_a_server_dies_with_its_parent() -> None:
    """A killed worker would leave its server behind."""
    server = "import os,sys; sys.stdout.write(str(os.getpid())+'\\n'); sys.stdout.flush(); sys.stdin.read()"
    parent = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-S', {str(SHIM)!r}, '2', str(os.getpid()),"
        f" sys.executable, 'python', '-I', '-S', '-c', {server!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE,"
        " stderr=subprocess.DEVNULL)\n"
        "sys.stdout.buffer.write(child.stdout.readline()); sys.stdout.flush()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", parent], capture_output=True, check=False, timeout=30)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert_gone([int(done.stdout)])


def test_the_core_limit_is_the_servers_alone() -> None:
    """Our own limits would change with the first server."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    run(sys.executable, "python", "-I", "-S", "-c", "")
    assert resource.getrlimit(resource.RLIMIT_CORE) == before
