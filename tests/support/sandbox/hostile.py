"""A place to be attacked: hostile programs, somebody else's program and files for them to be after, and a runner."""

import atexit
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

import psutil

from quarterdeck_protocol.policy_values import Tier
from support.config.places import short_folder
from support.processes.forks import Fork, Forks
from support.processes.identities import Identity, plain_python
from support.processes.leftovers import running_with
from support.waiting import eventually

ATTACKS: Final = Path(__file__).resolve().parents[2] / "attacks"

END_S: Final = 60.0
"""Beyond every limit that a test sets; a run that takes longer has hung."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one attack said of itself: `state` is START, HELD, ESCAPED, ENDED or BROKEN."""

    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One command, ended."""

    status: int
    stdout: bytes
    stderr: str
    receipt: Mapping[str, Any]
    dossier: Mapping[str, Any]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Each attack's; one that said nothing after its start is `START`."""
        found: dict[str, Verdict] = {}
        for line in self.stdout.decode(errors="replace").splitlines():
            state, _, rest = line.partition(" ")
            name, _, why = rest.partition(": ")
            if state == "START" or (state in ("HELD", "ESCAPED", "ENDED", "BROKEN") and name in found):
                found[name] = Verdict(state, why)
        return found


class Scene:
    """Everything that one identity's attacks need; see `scene`."""

    def __init__(self, identity: Identity, root: Path, forks: Forks | None) -> None:
        self.identity, self.root, self.forks = identity, root, forks
        self.home, self.state, self.outside = root / "home", root / "state", root / "outside"
        self.secret, self.environment_secret = f"secret-{secrets.token_hex(8)}", f"env-{secrets.token_hex(8)}"
        self._lay_out()

    @property
    def program(self) -> list[str]:
        return [plain_python(), "-B", "-I", str(self.root / "attacks")]

    def _lay_out(self) -> None:
        shutil.copytree(_compiled(), self.root / "attacks")
        credentials = [self.home / name for name in (".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml")]
        state_files = [self.state / "servers/other/one/home/token", self.state / "ledger/head"]
        texts = [self.outside / name for name in ("secret", "owned", "writable", "doomed", "movable")]
        for path in (*credentials, *state_files, *texts):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.secret)
            path.chmod(0o666 if path.name in ("writable", "doomed", "movable") else 0o644)
        (self.state / "ledger").chmod(0o700)  # as it is, or no command would write down what it may write
        for name in ("run", "tmp"):
            (self.root / name).mkdir(mode=0o700)
        for path in (self.root, *self.root.rglob("*")):
            self.identity.own(path)
        # Another user runs below it, where root confines.
        (self.root / "tmp").chmod(0o1777)
        self.outside.chmod(0o777)
        self.targets: dict[str, Any] = {
            "secret": self.secret,
            "secret_file": str(self.outside / "secret"),
            "secret_inode": (self.outside / "secret").stat().st_ino,
            "owned_file": str(self.outside / "owned"),
            "writable_file": str(self.outside / "writable"),
            "doomed_file": str(self.outside / "doomed"),
            "movable_file": str(self.outside / "movable"),
            "folder": str(self.outside),
            "credentials": list(map(str, credentials)),
            "state_files": list(map(str, state_files)),
            "socket_path": str(self.outside / "stream"),
            "datagram_path": str(self.outside / "datagram"),
            "supervisor_sockets": [str(self.outside / "sup")],
            "environment_secret": self.environment_secret,
            "shared_key": secrets.randbelow(1 << 30) + 1,
            "addresses": _addresses(),
            "interfaces": [name for _, name in socket.if_nameindex() if name != "lo"],
            "host_name": socket.gethostname(),
            "now_ns": time.time_ns(),
        }

    def environ(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "QUARTERDECK_STATE_DIR": str(self.state),
            "QUARTERDECK_RUNTIME_DIR": str(self.root / "run"),
            "OTHER_TOKEN": self.environment_secret,
            "SSH_AUTH_SOCK": str(self.outside / "stream"),
            "TMPDIR": str(self.root / "tmp"),
            **self.identity.quarterdeck.env,
        }

    def words(self, tier: Tier, command: Sequence[str], *options: str, json_file: Path | None = None) -> list[str]:
        """`quarterdeck sandbox run` of `command`, without its first word."""
        weaker = [] if tier is Tier.BUBBLEWRAP else ["--tier", tier]
        written = ["--json", str(json_file)] if json_file else []
        allowed = ["--allow-unsandboxed"] if tier is Tier.LIMITS else []
        fixed = ["sandbox", "run", "--preset", "standard", *weaker, *allowed, *written]
        return [*fixed, *options, "--", *command]

    def start(self, tier: Tier, command: Sequence[str], *options: str, gives_input: bool = False) -> Fork:
        assert self.forks is not None
        return self.forks.start(
            self.identity, self.words(tier, command, *options), self.environ(), gives_input=gives_input
        )

    def run(self, tier: Tier | None, command: Sequence[str], *options: str, pass_fds: Sequence[int] = ()) -> Run:
        """Run it confined by `tier`, or bare where that is None, to its end; in a fork where the scene has them.

        Raises:
            subprocess.TimeoutExpired: it did not end in `END_S`.
        """
        report = Path(tempfile.mkdtemp(dir=self.root)) / "report"
        self.identity.own(report.parent)
        argv = list(command) if tier is None else self.words(tier, command, *options, json_file=report)
        if tier is not None and self.forks is not None:
            done = self.forks.run(self.identity, argv, self.environ(), pass_fds=pass_fds, timeout_s=END_S)
        else:
            done = subprocess.run(
                argv if tier is None else [*self.identity.quarterdeck.argv, *argv],
                env=self.environ(),
                cwd="/",
                capture_output=True,
                timeout=END_S,
                check=False,
                stdin=subprocess.DEVNULL,
                pass_fds=pass_fds,
                **self.identity.popen,
            )
        said = json.loads(report.read_text()) if report.exists() else {"receipt": {}, "dossier": {}}
        return Run(done.returncode, done.stdout, done.stderr.decode(errors="replace"), said["receipt"], said["dossier"])

    def attack(self, tier: Tier | None, names: Sequence[str], *options: str) -> Run:
        """Run attacks by their names; the folder that they are in is shown, and two descriptors are left open."""
        with ExitStack() as cleanup:
            forgotten = [os.open(path, os.O_RDONLY) for path in (self.outside / "secret", self.outside)]
            for fd in forgotten:
                cleanup.callback(os.close, fd)
            shown = ("--read", str(self.root / "attacks"))
            return self.run(tier, [*self.program, *names], *shown, *options, pass_fds=forgotten)

    def left(self) -> dict[int, str]:
        return running_with(str(self.root / "attacks"))

    def assert_nothing_is_left(self) -> None:
        """Wait until no hostile program runs any more; one that does is killed, with what holds it.

        Raises:
            AssertionError: one still did.
        """
        try:
            eventually(lambda: not self.left(), what="the end of all hostile programs")
        except AssertionError:
            for pid in self.left():
                _kill_with_its_init(pid)
            raise

    @contextmanager
    def victim(self) -> Iterator["Victim"]:
        """Somebody else's program, for as long as the block; its addresses go to the attacks."""
        file = self.root / "victim.py"
        shutil.copyfile(ATTACKS / "victim.py", file)
        file.chmod(0o755)
        marker = f"marker-{secrets.token_hex(6)}"
        argv = [plain_python(), "-B", "-I", str(file), str(self.outside), str(self.targets["shared_key"]), marker]
        process = subprocess.Popen(
            argv,
            env={"VICTIM_SECRET": self.secret},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            **self.identity.popen,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            found = json.loads(process.stdout.readline())
            found["victim"]["marker"] = marker
            (self.root / "attacks" / "targets.json").write_text(json.dumps({**self.targets, **found}))
            victim = Victim(process.pid)
            try:
                yield victim
                victim.look_again()
            finally:
                process.stdin.close()
                victim.contacts = json.loads(process.stdout.readline() or "null")


class Victim:
    """Somebody else's program: how it was treated."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)
        self.contacts: list[str] | None = None
        self._before = self._traits()
        self.changed: dict[str, tuple[object, object]] = {}

    def look_again(self) -> None:
        now = self._traits()
        self.changed = {name: (value, now[name]) for name, value in self._before.items() if value != now[name]}

    def _traits(self) -> dict[str, object]:
        process = self.process
        return {
            "status": process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_TRACING_STOP),
            "nice": process.nice(),
            "ionice": process.ionice(),
            "processors": process.cpu_affinity(),
            "scheduler": os.sched_getscheduler(process.pid),
            "limits": Path(f"/proc/{process.pid}/limits").read_text(),
            "oom": Path(f"/proc/{process.pid}/oom_score_adj").read_text(),
        }


_compiling: Final = Lock()


def _compiled() -> str:
    """The hostile programs with their bytecode, as long as this process lives: compiling is most of their start."""
    with _compiling:
        return _compile()


@cache
def _compile() -> str:
    lasting = ExitStack()
    folder = str(lasting.enter_context(short_folder(0o755)))
    atexit.register(lasting.close)
    shutil.copytree(ATTACKS, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    subprocess.run([plain_python(), "-I", "-m", "compileall", "-q", folder], check=True)
    return folder


def _kill_with_its_init(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        for parent in process.parents():
            if parent.name() == "bwrap":
                parent.kill()
        process.kill()
    except psutil.NoSuchProcess:
        pass  # gone by itself, or with its init


def _addresses() -> list[str]:
    """The machine's own, without loopback."""
    return [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]


@contextmanager
def scene(identity: Identity, forks: Forks | None = None) -> Iterator[Scene]:
    """A place for the attacks of one identity, gone at the end with all that was made in it.

    Its commands are started anew, or come from `forks`, which costs a quarter.
    """
    with ExitStack() as cleanup:
        root = cleanup.enter_context(short_folder(0o755))
        yield Scene(identity, root, forks)
