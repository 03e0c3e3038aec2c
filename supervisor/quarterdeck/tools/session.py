"""One client's native tools, from its first request to its end.

The session's directory, locked while it lives and kept for a while after it:

    <state>/workspaces/<digest>/sessions/<ULID>/
        lock                       flock'ed by the session's process; the system releases it when that dies
        checkpoints plans memory.md   kept; a session that leaves none of them leaves no directory
        outputs .indusvx-bg tmp    gone when the session ends

Opening a session costs milliseconds; the commands' sandbox is prepared before the first of them.
"""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Self

import anyio
import anyio.to_thread
from ulid import ULID

from quarterdeck.common.locks import is_abandoned, is_held, make_locked_directory
from quarterdeck.common.shielding import carried_through, made_in_thread
from quarterdeck.config.native_tools import NativeWish
from quarterdeck.config.places.paths import (
    SessionPaths,
    UnsafePathError,
    WorkspacePaths,
    runtime_dir,
    state_dir,
    workspace_paths,
)
from quarterdeck.config.places.trusted_files import never_written, trusted_files, with_announced
from quarterdeck.tools.cards.memory import FileMemoryStore
from quarterdeck.tools.checkpoint.store import FileCheckpointStore
from quarterdeck.tools.commands.command_policy import CommandPolicy
from quarterdeck.tools.commands.jobs import end_jobs, keep_captures_in
from quarterdeck.tools.commands.shell import SandboxedShell
from quarterdeck.tools.files.file_access import ReadState
from quarterdeck.tools.files.local_files import make_local_context
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.web.webfetch import web_fetch_tool
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.tools import ToolBox
from quarterdeck_sandbox import is_within_any, remove_tree

from .card_types import DeckContext, DeckFault, DeckFaultKind, DeckFramework
from .catalogue import check_tools, provision_deck
from .context import Framework, ToolContext
from .runner import OverflowFiles

KEPT_SESSIONS: Final = 20  # ended ones of one workspace; older ones are removed, with their checkpoints
_NAME: Final = re.compile(r"\.?[0-9A-HJKMNP-TV-Z]{26}")  # a ULID, sorted by time


@dataclass(frozen=True, slots=True)
class DeckSession:
    """One client's native tools; calls of `box` may run together, `paths` is what the session keeps on disk."""

    box: ToolBox
    context: ToolContext
    paths: SessionPaths


@asynccontextmanager
async def open_deck_session(
    wish: NativeWish,
    *,
    allow_unsandboxed: bool = False,
    open_port: int | None = None,
    trusted: Callable[[], Iterable[str]] = trusted_files,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[DeckSession]:
    """Open a session for as long as the block lasts, entered and left in one task.

    At its end, which cancellation does not interrupt, every command that still runs is ended with its descendants
    (TERM, after 3 s KILL), then full texts, captures and temporary files are removed; checkpoints, plans and the note
    stay for a while.

    Args:
        wish: the tools and their workspace.
        allow_unsandboxed: run commands even where nothing but limits confines them.
        open_port: of a deck on this machine's loopback that asks for no token, see `Settings`.
        trusted: returns the files that configure us at this moment: no tool may write them; see `config.trusted_files`.
        environ: the base of the commands' environment.

    Raises:
        DeckFault: `unknown_capability` for a tool that the profile does not have, `backend` for a directory that is
            missing or cannot be used, `build_failed`.
    """
    names = check_tools(wish.profile, wish.tools) if wish.tools is not None else None
    directory = await made_in_thread(partial(_make_directory, wish), SessionDirectory.close)
    failure: Exception | None = None
    try:
        paths = directory.paths
        roots = _roots(wish, paths, trusted)
        commands = CommandPolicy(
            workspace=str(wish.workspace),
            home=workspace_paths(wish.workspace).home,
            tmp=paths.tmp,
            allowed=tuple(map(str, wish.allow_dirs)),
            private=_private(),
            protected=lambda: with_announced(trusted()),
            policy=wish.settings.sandbox or SandboxPolicy(),
            environ=environ,
            allow_unsandboxed=allow_unsandboxed,
            open_port=open_port,
        )
        async with SandboxedShell.open(commands.setup, commands.workspace) as shell:
            base = make_local_context(
                wish.workspace,
                framework=Framework(read_state=ReadState() if wish.gate else None),
                roots=roots,
                shell=shell,
                overflow=OverflowFiles(paths.outputs),
            )
            # Not in the workspace: its other sessions have their own, under the same names.
            keep_captures_in(base.context_id, str(paths.captures))
            try:
                framework = DeckFramework(
                    read_state=base.framework.read_state,
                    checkpoint=FileCheckpointStore(paths.checkpoints),
                    memory=FileMemoryStore(paths.memory),
                )
                made_in = DeckContext(base.cwd, framework, base, paths.captures)
                # In a thread for the first one's sake, which imports every tool.
                deck = await anyio.to_thread.run_sync(provision_deck, wish.profile, made_in)
                if names is not None:
                    deck.retain(lambda card: card.name in names)
                if (policy := wish.settings.webfetch) is not None:
                    web = _web_tool(policy)
                    deck.map_capabilities(lambda card: web if card.name == web.name else card)
                yield DeckSession(deck.into_tool_box(), base, paths)
            except Exception as error:
                failure = error
            finally:
                await end_jobs(base.context_id)
    finally:
        await carried_through(partial(asyncio.to_thread, directory.close))
    if failure is not None:
        raise failure  # not inside, where the shell's task group would wrap it


def _make_directory(wish: NativeWish) -> "SessionDirectory":
    for path in (wish.workspace, *wish.allow_dirs):
        if not os.path.isdir(path) and (path == wish.workspace or not os.path.isfile(path)):
            raise DeckFault(DeckFaultKind.BACKEND, f"{path} is not a directory any more")
        if is_within_any(os.path.realpath(path), map(os.path.realpath, _private())):
            raise DeckFault(DeckFaultKind.BACKEND, f"{path} belongs to quarterdeck itself: choose another folder")
    try:
        return SessionDirectory.create(workspace_paths(wish.workspace))
    except (OSError, UnsafePathError) as error:
        raise DeckFault(DeckFaultKind.BACKEND, f"a session cannot be kept: {error}", error) from error


_web_tool: Final = cache(web_fetch_tool)


def _private() -> tuple[str, str]:
    """Return our own directories (tokens, sockets, other sessions' files), closed even within a workspace."""
    return str(state_dir()), str(runtime_dir())


def _roots(wish: NativeWish, paths: SessionPaths, trusted: Callable[[], Iterable[str]]) -> Roots:
    """Return the session's roots: the directories of the wish, never the target of a link that replaced one."""
    roots = Roots(
        wish.workspace,
        wish.allow_dirs,
        (paths.outputs, paths.captures),
        _private(),
        protected=lambda: never_written(trusted),
    )
    for path in (wish.workspace, *wish.allow_dirs):
        # An earlier session's commands can change a directory of its own for a link, where another holds it.
        if not roots.is_root(str(path)):
            raise DeckFault(
                DeckFaultKind.BACKEND, f"{path} now leads through a symbolic link: put the directory back in place"
            )
    return roots


class SessionDirectory:
    """A locked directory of this process."""

    def __init__(self, paths: SessionPaths, lock: int) -> None:
        self.paths: Final = paths
        self._lock = lock

    @classmethod
    def create(cls, workspace: WorkspacePaths) -> Self:
        """Make one, and remove the oldest ended ones beyond `KEPT_SESSIONS`. Raise `OSError` if it cannot be made, and
        `UnsafePathError` if other users may write to a directory above it.
        """
        workspace.create()
        name = str(ULID())
        paths = workspace.session(name)
        lock = make_locked_directory(
            paths.directory, fill=lambda staging: SessionPaths(staging).outputs.mkdir(mode=0o700)
        )
        prune(workspace)
        return cls(paths, lock)

    def close(self) -> None:
        """Remove what is useless after the session, then release the lock. Repeatable."""
        if self._lock < 0:
            return
        _forget(self.paths)
        for path in (self.paths.checkpoints, self.paths.plans):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):  # somebody was faster
            if os.listdir(self.paths.directory) == [self.paths.lock.name]:
                shutil.rmtree(self.paths.directory, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def prune(workspace: WorkspacePaths, keep: int = KEPT_SESSIONS) -> tuple[str, ...]:
    """Remove all but the `keep` newest ended sessions and the leftovers of killed makers; return their names."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(workspace.sessions) if _NAME.fullmatch(name)]
    ended = [name for name in sorted(names, reverse=True) if _has_ended(workspace.session(name))]
    whole = [name for name in ended if not name.startswith(".")]
    for name in whole[:keep]:
        _forget(workspace.session(name))
    removed = [*(name for name in ended if name.startswith(".")), *whole[keep:]]
    for name in removed:
        remove_tree(str(workspace.session(name).directory))
    return tuple(removed)


def _forget(paths: SessionPaths) -> None:
    """Remove what is useless without its session."""
    for path in (paths.outputs, paths.captures):
        shutil.rmtree(path, ignore_errors=True)
    remove_tree(str(paths.tmp))  # closed or deep, as commands may have left it


def _has_ended(paths: SessionPaths) -> bool:
    """Return whether no process holds the lock; of a half made one, whether its maker must be dead."""
    if paths.directory.name.startswith("."):
        return is_abandoned(paths.directory)
    return not is_held(paths.lock)
