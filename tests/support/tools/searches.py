"""Sessions that search: real ones, whose commands are confined to one directory, and shells that play ripgrep."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import anyio

from quarterdeck.tools.commands.shell import CommandSetup, SandboxedShell
from quarterdeck.tools.context import ExecResult, FileStat, Fs, OnOutput, Shell, ToolContext
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.installed import ripgrep_path
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode, Tier
from quarterdeck_protocol.tools import CancelToken
from quarterdeck_sandbox.doctor.probe import known_machine
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.run.confine import Requester
from support.tools.contexts import UNLIMITED_BUDGET
from support.tools.file_tools import context_in
from support.waiting import meanwhile

PATIENCE_S = 60.0


@asynccontextmanager
async def session_in(workspace: Path, state: Path, patience_s: float | None = PATIENCE_S) -> AsyncIterator[ToolContext]:
    """A session whose commands see `workspace` and ripgrep; what they have of their own lies in `state`."""
    places = Places(state / "home", state / "tmp", state / "user")
    for place in (workspace, state, places.home, places.tmp):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    requester = Requester(places, {}, known_machine(), allow_unsandboxed=True)
    policy = SandboxPolicy(read=(str(workspace), str(ripgrep_path())), network=NetworkMode.NONE)
    setup = CommandSetup(policy, requester, {"PATH": "/usr/bin:/bin"})
    with anyio.fail_after(patience_s):
        async with SandboxedShell.open(lambda: setup, str(workspace)) as shell:
            yield replace(context_in(workspace, budget=UNLIMITED_BUDGET), shell=shell)


def with_shell(workspace: Path, shell: Shell, fs: Fs | None = None) -> ToolContext:
    """A session in `workspace` whose commands are played."""
    return replace(context_in(workspace, fs=fs), shell=shell)


Play = Callable[[OnOutput, CancelToken], ExecResult]
"""What a command does: writes, and ends or raises."""


@dataclass
class PlayedShell:
    """A shell in which every command plays the same; keeps what it was asked to run, and in which environment."""

    play: Play
    commands: list[str] = field(default_factory=list)
    environments: list[Mapping[str, str]] = field(default_factory=list)

    async def exec(self, command: str, **given: Any) -> ExecResult:
        await anyio.lowlevel.checkpoint()
        self.commands.append(command)
        self.environments.append(given["env"])
        return self.play(given["on_output"], given["cancel"])

    async def spawn(self, command: str, **given: Any) -> NoReturn:
        """Searches do not."""
        raise AssertionError(command)


def write_tree(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def confines_files() -> bool:
    """Whether commands are kept to what they are shown here."""
    return known_machine().tier is not Tier.LIMITS


class SwappingFs(LocalFs):
    """Finds the directory `swapped` in `workspace` in order; just after that it is a link to `outside`."""

    def __init__(self, workspace: Path, outside: Path) -> None:
        super().__init__(Roots(workspace), str(workspace))
        self._swapped = workspace / "swapped"
        self._outside = outside

    async def real_path(self, path: str) -> str:
        """See `Fs.real_path`; then swap."""
        real = await super().real_path(path)
        if path == self._swapped.name:
            self._swapped.rename(self._swapped.with_name("aside"))
            self._swapped.symlink_to(self._outside)
        return real

    async def stat(self, path: str) -> FileStat:
        """See `Fs.stat`; what was there before."""
        return await super().stat(os.path.dirname(path))


def swapping(directories: list[Path], link: Path) -> AbstractContextManager[None]:
    """Meanwhile each of `directories`, by turns, is `link`, and a directory again."""
    aside = link.with_name(f"{link.name}-aside")

    def swap() -> None:
        for here in directories:
            here.rename(aside)
            link.rename(here)
            here.rename(link)
            aside.rename(here)

    return meanwhile(swap)
