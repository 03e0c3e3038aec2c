"""Everything that the native tools of one client own, from its first request to its end.

Files of its own, a sandboxed shell, what was read, checkpoints, a note: put together here, and taken apart.  Opening it
costs milliseconds; what commands run under is found out before the first of them.  Who opens sessions and when, the
host decides.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial

import anyio
import anyio.to_thread

from quarterdeck.config.native import NativeWish
from quarterdeck.config.paths import SessionPaths, UnsafePathError, runtime_dir, state_dir, workspace_paths
from quarterdeck.config.trusted_files import never_written, trusted_files, with_announced
from quarterdeck.deck.cards.memory import FileMemoryStore
from quarterdeck.giving_up import carried_through, made_in_thread
from quarterdeck.kernel.backends import Shell
from quarterdeck.kernel.commands.jobs import end_jobs, keep_captures_in
from quarterdeck.kernel.commands.workbench import Workbench, open_shell
from quarterdeck.kernel.context import Framework, ToolContext
from quarterdeck.kernel.files.read_state import ReadState
from quarterdeck.kernel.files.roots import Roots
from quarterdeck.kernel.local import make_local_context
from quarterdeck.kernel.overflow import OverflowFiles
from quarterdeck.kernel.spec import DefinedTool
from quarterdeck.kernel.tools.webfetch import web_fetch_tool
from quarterdeck.kernel.web.fetch_policy import FetchPolicy
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.tools import ToolBox
from quarterdeck_sandbox.paths import is_within_any

from .builtin import builtin_bridge
from .checkpoint_files import FileCheckpointStore
from .contract import Capability, DeckContext, DeckFault, DeckFaultKind, DeckFramework, capability_id
from .provision import provision_deck
from .selection import check_tools
from .session_directory import SessionDirectory


@dataclass(frozen=True, slots=True)
class DeckSession:
    """One client's native tools.

    Attributes:
        box: the tools; calls of one session at a time or together.
        context: what they share.
        paths: what the session keeps on disk.
    """

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
) -> AsyncIterator[DeckSession]:
    """A session for as long as the block lasts, entered and left in one task.

    At its end, which cancellation does not interrupt, every command that still runs is ended with all that it started
    (TERM, after 3 s KILL), then full texts, captures and temporary files are removed; checkpoints, plans and the note
    stay for a while.

    Args:
        wish: which tools, and where.
        allow_unsandboxed: run commands even where nothing but limits confines them.
        open_port: of a deck on this machine's loopback that asks for no token, see `Settings`.
        trusted: the files that are the user's word now: no tool may write them; see `config.trusted_files`.

    Raises:
        DeckFault: `unknown_capability` for a tool that the profile does not have, `backend` for a directory that is
            missing or cannot be used, `build_failed`.
    """
    names = check_tools(wish.profile, wish.tools) if wish.tools is not None else None
    directory = await made_in_thread(partial(_make_directory, wish), SessionDirectory.close)
    failure: Exception | None = None
    try:
        roots = _roots(wish, directory.paths, trusted)
        bench = _bench(wish, directory.paths, trusted)
        bench = replace(bench, allow_unsandboxed=allow_unsandboxed, open_port=open_port)
        async with open_shell(bench) as shell:
            base = _context(wish, directory.paths, roots, shell)
            try:
                made_in = _deck_context(base, directory.paths)
                # In a thread for the first one's sake, which imports every tool.
                deck = await anyio.to_thread.run_sync(provision_deck, wish.profile, made_in)
                if names is not None:
                    deck.retain(lambda card: card.name in names)
                if (policy := wish.settings.webfetch) is not None:
                    web = _web_card(policy, made_in)
                    deck.map_capabilities(lambda card: web if card.name == web.name else card)
                yield DeckSession(deck.into_tool_box(), base, directory.paths)
            except Exception as error:
                failure = error
            finally:
                await end_jobs(base.context_id)
    finally:
        await carried_through(partial(asyncio.to_thread, directory.close))
    if failure is not None:
        raise failure  # not inside, where the shell's task group would wrap it


def _make_directory(wish: NativeWish) -> SessionDirectory:
    for path in (wish.workspace, *wish.allow_dirs):
        if not os.path.isdir(path) and (path == wish.workspace or not os.path.isfile(path)):
            raise DeckFault(DeckFaultKind.BACKEND, f"{path} is not a directory any more")
        if is_within_any(os.path.realpath(path), map(os.path.realpath, _private())):
            raise DeckFault(DeckFaultKind.BACKEND, f"{path} belongs to quarterdeck itself: choose another folder")
    try:
        return SessionDirectory.create(workspace_paths(wish.workspace))
    except (OSError, UnsafePathError) as error:
        raise DeckFault(DeckFaultKind.BACKEND, f"a session cannot be kept: {error}", error) from error


def _web_card(policy: FetchPolicy, ctx: DeckContext) -> Capability:
    """`webfetch` under what the configuration says."""
    row = builtin_bridge()[capability_id("webfetch")]
    return replace(row, factory=partial(_web_tool, policy)).build(ctx)


@cache
def _web_tool(policy: FetchPolicy) -> DefinedTool:
    return web_fetch_tool(policy)


def _bench(wish: NativeWish, paths: SessionPaths, trusted: Callable[[], Iterable[str]]) -> Workbench:
    return Workbench(
        workspace=str(wish.workspace),
        home=workspace_paths(wish.workspace).home,
        tmp=paths.tmp,
        allowed=tuple(map(str, wish.allow_dirs)),
        private=_private(),
        protected=lambda: with_announced(trusted()),
        policy=wish.settings.sandbox or SandboxPolicy(),
    )


def _private() -> tuple[str, str]:
    """What is ours, also in a workspace that holds it: tokens, sockets, what other sessions keep."""
    return str(state_dir()), str(runtime_dir())


def _roots(wish: NativeWish, paths: SessionPaths, trusted: Callable[[], Iterable[str]]) -> Roots:
    """What the session may touch: the directories of the wish themselves, and nowhere that a link now leads."""
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


def _context(wish: NativeWish, paths: SessionPaths, roots: Roots, shell: Shell) -> ToolContext:
    context = make_local_context(
        wish.workspace,
        framework=Framework(read_state=ReadState() if wish.gate else None),
        roots=roots,
        shell=shell,
        overflow=OverflowFiles(paths.outputs),
    )
    # Not in the workspace: its other sessions have their own, under the same names.
    keep_captures_in(context.context_id, str(paths.captures))
    return context


def _deck_context(base: ToolContext, paths: SessionPaths) -> DeckContext:
    framework = DeckFramework(
        read_state=base.framework.read_state,
        checkpoint=FileCheckpointStore(paths.checkpoints),
        memory=FileMemoryStore(paths.memory),
    )
    return DeckContext(base.cwd, framework, base, paths.captures)
