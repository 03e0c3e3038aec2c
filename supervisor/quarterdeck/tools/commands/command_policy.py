"""The setup of a session's commands: policy, environment, the user's programs, directories of their own.

The user's programs are found for commands that see only the system's: interpreters of version managers, virtual
environments, packages in /opt, programs in a home. Each is shown by its installation's folder, never a home, never
credentials. A program that may not be shown is left out; a path of the policy itself that is unusable fails every
command, with a remedy.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quarterdeck.config.environment import server_environment
from quarterdeck.config.places.trusted_files import trusted_files
from quarterdeck.tools.installed import ripgrep_path
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox import (
    SYSTEM_FOLDERS,
    LaunchError,
    LaunchPlan,
    Places,
    Prefix,
    Requester,
    environment_of,
    is_environment,
    is_installation,
    is_within,
    is_within_any,
    known_machine,
    prefix_of,
    resolve_program,
    showable,
)

from .shell import CommandSetup

MAX_SHOWN: Final = 64  # folders and files of the user's programs; each costs a mount a start, a tenth of a millisecond
TOOLS_S: Final = 300.0  # seconds that the programs of one PATH are remembered: finding them takes a tenth of a second
MAX_PROGRAMS: Final = 1_000  # on one PATH, a third of a millisecond each; of the system's only links count
_RUSTUP: Final = "rustup"


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """The place and the permissions of a session's commands."""

    workspace: str  # their directory, absolute; they may change it
    home: Path  # their HOME, private; made when it is missing
    tmp: Path  # their TMPDIR, likewise
    allowed: Sequence[str] = ()  # other directories that they may change, absolute
    private: tuple[str, ...] = ()  # our own state and runtime directories, hidden from them
    protected: Callable[[], Iterable[str]] = trusted_files  # the files that configure us at this moment: never written
    policy: SandboxPolicy = field(default_factory=SandboxPolicy)  # its `write` is added to the workspace
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))  # they get the listed part
    user_home: Path = field(default_factory=lambda: Path(os.path.expanduser("~")))  # the user's own home
    allow_unsandboxed: bool = False  # accept limits alone where nothing better works
    open_port: int | None = None  # of a deck on this machine's loopback that asks for no token, see `Settings`

    def setup(self) -> CommandSetup:
        """Return the setup of its commands. Call it in a thread: it inspects many files.

        Raise `LaunchError` if a directory is missing, or cannot be made.
        """
        try:
            for folder in (self.home, self.tmp):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise LaunchError("sandbox_refused", f"commands need a directory of their own: {error}") from error
        requester = Requester(
            Places(self.home, self.tmp, self.user_home, self.private),
            self.environ,
            known_machine(),
            allow_unsandboxed=self.allow_unsandboxed,
            open_port=self.open_port,
        )
        config = StdioServerConfig(id="commands", command="sh", sandbox=self.policy)
        env = server_environment(config, self.environ, self.home, self.tmp)
        if not self.policy.confines_files:
            return CommandSetup(self.policy, requester, env, self.protected)
        write = tuple(dict.fromkeys((os.path.normpath(self.workspace), *map(os.path.normpath, self.allowed))))
        policy = self.policy.model_copy(update={"write": tuple(dict.fromkeys((*self.policy.write, *write)))})
        programs = _tools(env, self.workspace, str(self.user_home), self.environ, policy.write)
        # The one program of our own that commands need, for `grep` and `find`; of its folder nothing else is shown.
        searcher = [str(path)] if (path := ripgrep_path()) else []
        shown = showable((*programs.read, *searcher), policy.values, requester)[:MAX_SHOWN]
        search_path = os.pathsep.join((programs.path, *map(os.path.dirname, searcher)))
        return CommandSetup(
            policy.model_copy(update={"read": (*policy.read, *shown)}),
            requester,
            {**env, **programs.env, "PATH": search_path},
            self.protected,
        )


@dataclass(frozen=True, slots=True)
class UserPrograms:
    """What the user's programs need: a PATH with version managers' shims replaced by their targets, folders and files
    to be shown besides the system's, and variables without which tools would search the private home.
    """

    path: str
    read: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


_remembered: Final[dict[tuple[object, ...], tuple[float, UserPrograms]]] = {}


def _tools(
    env: Mapping[str, str], cwd: str, user_home: str, environ: Mapping[str, str], writable: Sequence[str]
) -> UserPrograms:
    key = (env["PATH"], cwd, user_home, tuple(sorted(environ.items())), writable)
    now = time.monotonic()
    for other, (found_at, _) in list(_remembered.items()):
        if now - found_at > TOOLS_S:
            _remembered.pop(other, None)
    if key not in _remembered:
        _remembered[key] = (now, find_user_programs(env, cwd, user_home, environ, writable))
    return _remembered[key][1]


def find_user_programs(
    env: Mapping[str, str], cwd: str, user_home: str, environ: Mapping[str, str], writable: Iterable[str]
) -> UserPrograms:
    """Return the needs of the programs on `env`'s PATH, the commands' initial environment.

    Version managers' settings are searched from `cwd` on, their files located by `environ`, our own environment. A need
    that only a file in `writable` names is ignored: commands can change it.
    """
    search = _ProgramSearch(env, cwd, os.path.realpath(user_home), environ, tuple(map(os.path.realpath, writable)))
    for folder in dict.fromkeys(env.get("PATH", "").split(os.pathsep)):
        search.add(folder)
    return search.result()


class _ProgramSearch:
    def __init__(
        self, env: Mapping[str, str], cwd: str, home: str, environ: Mapping[str, str], writable: tuple[str, ...]
    ) -> None:
        self._given = {**env}
        self._cwd = cwd
        self._home = home
        self._environ = environ
        self._writable = writable
        self._path: list[str] = []
        self._late: list[str] = []
        self._read: dict[str, None] = {}
        self._links: dict[str, str] = {}
        self._env: dict[str, str] = {}
        self._looked_at = 0

    def add(self, folder: str) -> None:
        """Add one folder of the PATH."""
        if not folder.startswith("/"):
            return  # a command's own directory is no place for programs
        real = os.path.realpath(folder)
        if _is_system(real):
            self._path.append(folder if _is_system(folder) else real)
            for path in _leading_out(real, real):
                self._look_at(path)
            return
        whole = prefix_of(os.path.join(real, "program"), self._home, ())
        if whole is not None and whole.path != os.path.join(real, "program"):
            # An installation: its programs need no more than it, but for those that are links.
            self._show(whole)
            self._path.append(real)
            for path in _leading_out(real, whole.path):
                self._look_at(path)
            return
        leads_to = [os.path.dirname(path) for name in _programs(real) if (path := self._look_at(f"{real}/{name}"))]
        self._path += [each for each in dict.fromkeys(leads_to) if each != real and not _is_system(each)]
        # Of a folder of shims nothing is left: those of versions that are not wanted would run nothing outside either.
        if real in leads_to:
            self._path.append(real)
            self._show(Prefix(real, "a folder of programs"))

    def result(self) -> UserPrograms:
        """Return all needs; of nested folders only the outer ones."""
        path = dict.fromkeys((*self._path, *self._late))
        read: list[str] = []
        for each in sorted(self._read):
            if not is_within_any(each, read):
                read.append(each)
        links = [link for link, real in self._links.items() if not _is_shown(link, read) and _is_shown(real, read)]
        return UserPrograms(os.pathsep.join(path), (*read, *links), self._env)

    def _look_at(self, path: str) -> str:
        """Note a program's needs. Return its path or, for a shim, its target's; empty when it would not run."""
        if self._looked_at >= MAX_PROGRAMS:
            return ""
        self._looked_at += 1
        plan = LaunchPlan(path, (os.path.basename(path),), self._given, self._cwd)
        try:
            program = resolve_program(plan, Path(self._home), self._environ)
        except (LaunchError, OSError, ValueError):
            return ""
        for prefix in program.prefixes:
            self._show(prefix)
        self._links.update({link: os.path.realpath(link) for link, _ in program.links})
        for name, value in program.env.items():
            if name == "PATH":
                known = (*self._given["PATH"].split(os.pathsep), os.path.dirname(program.path))
                self._late += [each for each in value.split(os.pathsep) if each not in known]
            else:
                self._env[name] = value
        if os.path.basename(os.path.realpath(path)) == _RUSTUP:
            self._add_rust()
        return program.path

    def _show(self, prefix: Prefix) -> None:
        if prefix.path in self._read or not is_installation(prefix.path, self._home):
            return
        if any(is_within_any(path, self._writable) for path in prefix.said_by):
            return
        self._read[prefix.path] = None
        if is_environment(prefix.path):
            for other in environment_of(prefix.path, self._home):
                self._show(other)

    def _add_rust(self) -> None:
        """Show rustup's home: its proxies find the tools by a variable, or in the home."""
        home = self._environ.get("RUSTUP_HOME") or f"{self._home}/.rustup"
        if os.path.isdir(home):
            self._show(Prefix(os.path.realpath(home), "the Rust tools"))
            self._env["RUSTUP_HOME"] = os.path.realpath(home)


def _is_system(path: str) -> bool:
    return is_within_any(path, SYSTEM_FOLDERS) or is_within(path, "/nix/store")


def _is_shown(path: str, read: list[str]) -> bool:
    return _is_system(path) or is_within_any(path, read)


def _programs(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file() and os.access(entry.path, os.X_OK))
    except OSError:
        return []


def _leading_out(folder: str, home: str) -> Iterator[str]:
    """Yield links in `folder` to programs outside of both the system and `home`."""
    try:
        with os.scandir(folder) as entries:
            links = sorted(entry.path for entry in entries if entry.is_symlink())
    except OSError:
        return
    for link in links:
        real = os.path.realpath(link)
        if not _is_system(real) and not is_within(real, home) and os.path.isfile(real) and os.access(real, os.X_OK):
            yield link
