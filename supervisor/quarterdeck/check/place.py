"""Throwaway directories and a sandbox for a tried server, and the changes in them.

BASE/home        its home, kept from start to start: a package runner's downloads stay there; and the decoys of `world`
BASE/home/work   its working directory, with a few files and an empty git repository
BASE/tmp         its temporary files
"""

import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.config.environment import server_environment
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck.config.places.trusted_files import trusted_files, with_announced
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode, Tier
from quarterdeck_sandbox import ConfinedProcess, Places, Requester, confine, known_machine, plan_launch, start

from .episode import FileChanges
from .values import FILE_NAME
from .world import WORK_FOLDER, World

FOLDER: Final = "{dir}"
"""In a command line: the folder that the server may change."""

MAX_FILES: Final = 20_000
"""That are looked at when changes are sought."""

MAX_DEPTH: Final = 20

MAX_TOLD: Final = 20
"""Paths of one change that are told."""

OFFLINE: Final = {"npm_config_offline": "true", "UV_OFFLINE": "1", "npm_config_update_notifier": "false"}
"""Have package runners take what they fetched before."""

Snapshot = Mapping[str, tuple[int, int, int]]
"""Inode, size and time of change of each file, by its path below the home."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of one check."""

    base: Path

    @property
    def home(self) -> Path:
        """The server's home."""
        return self.base / "home"

    @property
    def work(self) -> Path:
        """Its working directory."""
        return self.home / WORK_FOLDER

    @property
    def tmp(self) -> Path:
        """Its directory for temporary files."""
        return self.base / "tmp"

    def make(self) -> None:
        """Make the directories and files that a server finds."""
        os.chmod(self.base, 0o711)  # noqa: S103 - as root another user runs below it
        for folder in (self.home, self.tmp, self.work, self.work / "folder"):
            folder.mkdir(mode=0o700)
        self.fill()
        repository = self.work / ".git"
        for name in ("objects", "refs/heads"):
            (repository / name).mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")

    def fill(self) -> None:
        """Put back the server's files if they are missing or changed.

        Follow no link and make each file anew: a path may lead to the user's files by now.
        """
        for *folders, name in _FILES:
            with suppress(OSError), ExitStack() as opened:
                fd = os.open(self.home, _FOLDER_ONLY)
                opened.callback(os.close, fd)
                for folder in (WORK_FOLDER, *folders):
                    fd = os.open(folder, _FOLDER_ONLY, dir_fd=fd)
                    opened.callback(os.close, fd)
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)
                made = os.open(
                    name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd
                )
                opened.callback(os.close, made)
                os.write(made, _FILES[(*folders, name)])
                owner = os.fstat(fd)
                if owner.st_uid != os.geteuid():
                    os.fchown(made, owner.st_uid, owner.st_gid)

    def look(self) -> Snapshot:
        """Return the files below the home, except hidden ones, which hold caches and settings.

        Links are not followed, nor anything deeper than `MAX_DEPTH`.
        """
        seen: dict[str, tuple[int, int, int]] = {}
        depth_of_home = len(self.home.parts)
        for folder, folders, files, fd in os.fwalk(self.home, follow_symlinks=False):
            is_deep = len(Path(folder).parts) - depth_of_home >= MAX_DEPTH
            folders[:] = [] if is_deep else sorted(name for name in folders if not name.startswith("."))
            for name in (*folders, *files):
                with suppress(OSError):
                    facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    is_file = stat.S_ISREG(facts.st_mode)
                    changed = (facts.st_ino, facts.st_size if is_file else 0, facts.st_mtime_ns if is_file else 0)
                    seen[os.path.relpath(os.path.join(folder, name), self.home)] = changed
                if len(seen) == MAX_FILES:
                    return seen
        return seen


_FOLDER_ONLY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_FILES: Final = {(FILE_NAME,): b"one\ntwo\nthree\n", ("folder", "inner.json"): b'{"a": 1}\n'}
"""The files of a server's working directory, by their path."""


def changes(before: Snapshot, after: Snapshot) -> FileChanges:
    """Return what changed between two looks."""
    made = sorted(after.keys() - before.keys())
    removed = sorted(before.keys() - after.keys())
    changed = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    shrunk = [path for path in changed if after[path][1] < before[path][1]]
    return FileChanges(*(tuple(paths[:MAX_TOLD]) for paths in (made, changed, removed, shrunk)))


def harmless(policy: SandboxPolicy, network: object) -> SandboxPolicy:
    """Return a policy that shows the same, and allows changes in throwaway directories only.

    Raise ValidationError if `network` is wrong.
    """
    said = policy.model_dump(mode="json", exclude_unset=True)
    kept = {key: said[key] for key in ("hidden", "environment", "limits", "require") if key in said}
    preset = said.get("preset") if policy.confines_files else None
    return SandboxPolicy.model_validate(
        {"preset": preset, **kept, "read": (*policy.read, *policy.write), "network": network}
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """The server to check, with a harmless policy, its directories, and the decoys in its home.

    If its command `installs` the program, one start has the internet.
    """

    config: StdioServerConfig
    place: Place
    world: World
    installs: bool
    allow_unsandboxed: bool = False

    async def start(self, *, with_network: bool = False) -> ConfinedProcess:
        """Start it once, or raise LaunchError."""
        config, place = self.config, self.place
        machine = known_machine()
        words = [word.replace(FOLDER, str(place.work)) for word in (config.command, *config.args)]
        environ = server_environment(config, os.environ, place.home, place.tmp)
        environ = {name: value.replace(FOLDER, str(place.work)) for name, value in environ.items()}
        if self.installs and not with_network:
            environ = {**OFFLINE, **environ}
        places = Places(
            place.home, place.tmp, _user_home(), (str(state_dir()), str(runtime_dir())), with_announced(trusted_files())
        )
        policy = config.sandbox
        recorder = None
        if with_network:
            policy = policy.model_copy(update={"network": None})
        elif (
            policy.network is NetworkMode.NONE and machine.tier is Tier.BUBBLEWRAP and machine.bubblewrap.makes_network
        ):
            policy, recorder = policy.model_copy(update={"network": ("recorded.invalid:443",)}), self.world.hosts
        requester = Requester(places, os.environ, machine, allow_unsandboxed=self.allow_unsandboxed)
        plan = plan_launch(words[0], tuple(words[1:]), environ, config.cwd or str(place.work))
        return await start(confine(plan, policy.values, requester), recorder=recorder)


def _user_home() -> Path:
    return Path(os.path.expanduser("~"))
