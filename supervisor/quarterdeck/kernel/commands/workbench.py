"""What a session's commands run under: their policy, their environment, the user's tools, directories of their own.

`shell` runs them, `toolbelt` knows what the tools take.  A tool that may not be shown is left out, and nothing else
fails for it; what the policy itself names and cannot be had is an error of every command, with what to do.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quarterdeck.config.environment import server_environment
from quarterdeck.config.trusted_files import trusted_files
from quarterdeck.kernel.search.ripgrep import ripgrep_path
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy, Tier
from quarterdeck_sandbox.border import Border
from quarterdeck_sandbox.confine import Asker
from quarterdeck_sandbox.identity import Identity, choose_identity, closed_to, out_of_reach
from quarterdeck_sandbox.launch import LaunchError
from quarterdeck_sandbox.monitor import TreeMonitor
from quarterdeck_sandbox.mounts import Places
from quarterdeck_sandbox.paths import is_within_any
from quarterdeck_sandbox.probing import known_machine

from .shell import Outfit, SandboxedShell
from .toolbelt import Toolbelt, pack

MAX_SHOWN: Final = 64
"""Folders and files of the user's tools; each is a mount at every start, a tenth of a millisecond."""

TOOLS_S: Final = 300.0
"""How long the tools of one PATH are remembered: looking for them takes a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """Where a session's commands run, and what they may do.

    Attributes:
        workspace: their directory, absolute; they may change it.
        home: their HOME, private; made when it is missing.
        tmp: their TMPDIR, likewise.
        allowed: other directories that they may change, absolute.
        private: our own state and runtime directories, which nobody may see.
        protected: what is the user's word at a moment, which they may never write.
        policy: what else they may reach and use; its `write` comes on top of the workspace.
        environ: our own environment, of which they get the listed part.
        user_home: the user's own home.
        allow_unsandboxed: accept limits alone where nothing better works.
        open_port: of a deck on this machine's loopback that asks for no token, see `Settings`.
    """

    workspace: str
    home: Path
    tmp: Path
    allowed: Sequence[str] = ()
    private: tuple[str, ...] = ()
    protected: Callable[[], Iterable[str]] = trusted_files
    policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    user_home: Path = field(default_factory=lambda: Path(os.path.expanduser("~")))
    allow_unsandboxed: bool = False
    open_port: int | None = None

    def outfit(self) -> Outfit:
        """What its commands run under.  Looks at many files: call it in a thread.

        Raises:
            LaunchError: a directory is missing, or cannot be made.
        """
        try:
            for folder in (self.home, self.tmp):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise LaunchError("sandbox_refused", f"commands need a directory of their own: {error}") from error
        asker = Asker(
            Places(self.home, self.tmp, self.user_home, self.private),
            self.environ,
            known_machine(),
            allow_unsandboxed=self.allow_unsandboxed,
            open_port=self.open_port,
        )
        config = StdioServerConfig(id="commands", command="sh", sandbox=self.policy)
        env = server_environment(config, self.environ, self.home, self.tmp)
        if not self.policy.confines_files:
            return Outfit(self.policy, asker, env, self.protected)
        write = tuple(dict.fromkeys((os.path.normpath(self.workspace), *map(os.path.normpath, self.allowed))))
        policy = self.policy.model_copy(update={"write": tuple(dict.fromkeys((*self.policy.write, *write)))})
        belt = _tools(env, self.workspace, str(self.user_home), self.environ, policy.write)
        # The one program of our own that commands need, for `grep` and `find`; of its folder nothing else is shown.
        searcher = [str(path)] if (path := ripgrep_path()) else []
        shown = _showable((*belt.read, *searcher), policy, asker)
        search_path = os.pathsep.join((belt.path, *map(os.path.dirname, searcher)))
        return Outfit(
            policy.model_copy(update={"read": (*policy.read, *shown)}),
            asker,
            {**env, **belt.env, "PATH": search_path},
            self.protected,
        )


@asynccontextmanager
async def open_shell(bench: Workbench, monitor: TreeMonitor | None = None) -> AsyncIterator[SandboxedShell]:
    """The shell of a session, for as long as the block lasts: see `SandboxedShell.open`.

    It takes no time: what its commands run under is found out before the first of them.
    """
    async with SandboxedShell.open(bench.outfit, bench.workspace, monitor) as shell:
        yield shell


_remembered: Final[dict[tuple[object, ...], tuple[float, Toolbelt]]] = {}


def _tools(
    env: Mapping[str, str], cwd: str, user_home: str, environ: Mapping[str, str], writable: Sequence[str]
) -> Toolbelt:
    key = (env["PATH"], cwd, user_home, tuple(sorted(environ.items())), writable)
    now = time.monotonic()
    for other, (found_at, _) in list(_remembered.items()):
        if now - found_at > TOOLS_S:
            _remembered.pop(other, None)
    if key not in _remembered:
        _remembered[key] = (now, pack(env, cwd, user_home, environ, writable))
    return _remembered[key][1]


def _showable(paths: Iterable[str], policy: SandboxPolicy, asker: Asker) -> tuple[str, ...]:
    """Those that the sandbox would not refuse to show, and that are not shown anyway."""
    places = asker.places
    own = (str(places.home), str(places.tmp))
    writable = tuple(os.path.realpath(path) for path in (*own, *policy.write))
    border = Border(
        policy, os.path.realpath(places.user_home), tuple(os.path.realpath(path) for path in places.private), writable
    )
    identity = _identity(policy, asker)
    is_walked = asker.machine.tier is not Tier.BUBBLEWRAP  # which mounts what is shown
    found: list[str] = []
    for path in dict.fromkeys(paths):
        real = os.path.realpath(path)
        if is_within_any(real, (*writable, *policy.read)) or is_within_any(path, policy.hidden):
            continue
        try:
            border.admit(path, "read")
            if identity is not None and (
                closed_to(identity, (real,)) or (is_walked and out_of_reach(identity, (real,)))
            ):
                continue
        except (LaunchError, OSError):
            continue
        found.append(path)
    return tuple(found[:MAX_SHOWN])


def _identity(policy: SandboxPolicy, asker: Asker) -> Identity | None:
    """As whom commands will run when we are root."""
    if asker.machine.euid != 0:
        return None
    try:
        return choose_identity(asker.places.home, policy.write)
    except LaunchError:
        return None  # every command will say so
