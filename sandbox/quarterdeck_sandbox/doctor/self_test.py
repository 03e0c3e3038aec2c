"""Attack a sandbox of this machine for real: start `attacks` in one, as every server is started, and look.

An attack that never ran is unknown, never held.  About a quarter of a second; nothing is left behind.
"""

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec

from quarterdeck_protocol.policy_values import Property
from quarterdeck_sandbox.hostile_files import temporary_folder
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.diagnosis import STANDARD, Attack, AttackOutcome, SelfTest
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.policy.promises import Receipt
from quarterdeck_sandbox.program.launch import DEFAULT_PATH, LaunchError, plan_launch
from quarterdeck_sandbox.run.confine import Requester, confine
from quarterdeck_sandbox.run.process import ConfinedProcess
from quarterdeck_sandbox.run.start import start

from . import attacks

DEADLINE_S: Final = 20.0  # for all attacks, on a busy machine too
STOP_GRACE_S: Final = 1.0
END_S: Final = 5.0  # for the daemon to be gone after the stop
OUTPUT_BYTES: Final = 64 * 1024

INTERPRETER: Final = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""Runs the attacks if the system has no Python: ours without its virtual environment."""

AGAINST: Final = {
    "read_a_secret": Property.FILESYSTEM,
    "write_outside": Property.FILESYSTEM,
    "change_metadata": Property.FILESYSTEM,
    "see_processes": Property.PROCESSES,
    "signal_the_owner": Property.PROCESSES,
    "trace_the_owner": Property.PROCESSES,
    "connect_to_the_host": Property.NETWORK,
    "connect_to_an_abstract_socket": Property.NETWORK,
    "mount": Property.SYSCALLS,
    "make_a_user_namespace": Property.SYSCALLS,
    "outlive_the_stop": Property.TREE_DEATH,
}
"""Every attack, in the order of the report."""

_TEXT: Final = Path(attacks.__file__).read_text()

Starter = Callable[[Confinement], Awaitable[ConfinedProcess]]


async def self_test(machine: Machine, starter: Starter = start, place: str | None = None) -> SelfTest:
    """Attack the sandbox that servers get by default; that it cannot be started is a result, too.

    `place` is where servers have their private homes; the system's folder for temporary files when None.
    """
    try:
        with anyio.fail_after(DEADLINE_S), _scene(place) as scene:
            return await _attack(machine, scene, starter)
    except LaunchError as error:
        return SelfTest(why=str(error))
    except TimeoutError:
        return SelfTest(why=f"the attacks did not end within {DEADLINE_S:.0f} s")
    except OSError as error:
        return SelfTest(why=f"no directory could be made for the attacks: {error}")


class _Scene(msgspec.Struct, frozen=True):
    folder: Path
    private: Path
    token: str
    loopback: socket.socket
    abstract: socket.socket

    @property
    def task(self) -> str:
        return json.dumps(
            {
                "secret": str(self.folder / "outside" / "secret"),
                "folder": str(self.folder / "outside"),
                "token": self.token,
                "owner": os.getpid(),
                "owner_started": _started_at(),
                "port": self.loopback.getsockname()[1],
                "abstract": self.abstract.getsockname()[1:].decode(),
                "home": str(self.private / "home"),
            }
        )


@contextmanager
def _scene(place: str | None) -> Iterator[_Scene]:
    with temporary_folder("quarterdeck-doctor-") as name, temporary_folder("quarterdeck-doctor-", place) as own:
        # What is open to everybody is closed by the sandbox alone.
        folder, private = Path(name), Path(own)
        for base in (folder, private):
            base.chmod(0o711)
        (folder / "outside").mkdir()
        (folder / "outside").chmod(0o777)
        for part in ("home", "tmp"):
            (private / part).mkdir(mode=0o700)
        token = secrets.token_hex(16)
        (folder / "outside" / "secret").write_text(token)
        (folder / "outside" / "secret").chmod(0o644)
        with socket.create_server(("127.0.0.1", 0)) as loopback, socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0quarterdeck-doctor-{secrets.token_hex(8)}")
            abstract.listen()
            yield _Scene(folder, private, token, loopback, abstract)


async def _attack(machine: Machine, scene: _Scene, starter: Starter) -> SelfTest:
    home, tmp = scene.private / "home", scene.private / "tmp"
    # The system's Python: every user can run it, ours may lie in a private home.
    python = shutil.which("python3", path=DEFAULT_PATH) or INTERPRETER
    plan = plan_launch(python, ["-I", "-S", "-c", _TEXT, scene.task], {"PATH": DEFAULT_PATH}, str(home))
    places = Places(home, tmp, Path(os.environ.get("HOME") or "/"))
    confinement = confine(plan, STANDARD, Requester(places, {}, machine, allow_unsandboxed=True))
    process = await starter(confinement)
    try:
        async with anyio.create_task_group() as tasks:
            for listener in (scene.loopback, scene.abstract):
                tasks.start_soon(_serve, listener, scene.token.encode())
            said = await _read_until(process.stdout_fd, b"done\n")
            complaint = await _read_now(process.stderr_fd)
            tasks.cancel_scope.cancel()
        await process.stop(STOP_GRACE_S)
        with anyio.move_on_after(END_S):
            await _read_until(process.stdout_fd, None)
            return _judge(said, complaint, scene, process.receipt, is_gone=True)
        return _judge(said, complaint, scene, process.receipt, is_gone=False)
    finally:
        await process.stop(STOP_GRACE_S)
        process.close_fds()


def _judge(said: bytes, complaint: str, scene: _Scene, receipt: Receipt, *, is_gone: bool) -> SelfTest:
    lines = said.decode(errors="replace").splitlines()
    if not lines:
        return SelfTest(why=f"the attacks did not start: {complaint or 'no output'}")
    told = {name: (outcome, detail) for name, outcome, detail in (line.split(" ", 2) for line in lines if " " in line)}
    told["outlive_the_stop"] = ("held", "all of it is gone") if is_gone else ("escaped", "a daemon lives on")
    if (scene.folder / "outside" / "written").exists():
        told["write_outside"] = ("escaped", "wrote a file outside")
    unknown = ("unknown", f"it did not get that far: {complaint}")
    return SelfTest(
        tuple(
            Attack(
                name.replace("_", " "), against, AttackOutcome(told.get(name, unknown)[0]), told.get(name, unknown)[1]
            )
            for name, against in AGAINST.items()
        ),
        receipt=receipt,
    )


async def _serve(listener: socket.socket, token: bytes) -> None:
    listener.setblocking(False)  # noqa: FBT003 - takes no keyword
    while True:
        await anyio.wait_readable(listener)
        try:
            connection, _ = listener.accept()
        except OSError:
            continue
        with connection:
            try:
                connection.send(token)
            except OSError:
                continue


async def _read_until(fd: int, end: bytes | None) -> bytes:
    """Read up to `end`, or to the end of file."""
    data = b""
    while len(data) < OUTPUT_BYTES and not (end is not None and data.endswith(end)):
        await anyio.wait_readable(fd)
        piece = os.read(fd, OUTPUT_BYTES)
        if not piece:
            break
        data += piece
    return data


async def _read_now(fd: int) -> str:
    try:
        return " ".join(os.read(fd, OUTPUT_BYTES).decode(errors="replace").split())[-300:]
    except BlockingIOError:
        return ""


def _started_at() -> str:
    try:
        return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
