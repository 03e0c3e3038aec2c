"""`quarterdeck checkpoint`: what `write` and `edit` changed, call by call, and how to undo it.

The files are read in place; no `serve` is needed, and nothing is started.
"""

import os
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.output import Column, hint, print_json, print_line, show
from quarterdeck.cli.parameters import Argument, Group, Option
from quarterdeck.cli.process import run
from quarterdeck.common.words import flat, utf8
from quarterdeck.config.places.paths import UnsafePathError, runtime_dir, state_dir, workspace_paths
from quarterdeck.config.places.trusted_files import never_written
from quarterdeck.tools.checkpoint.index import CheckpointNode, UnknownNodeError
from quarterdeck.tools.checkpoint.restore import RestoredPath
from quarterdeck.tools.checkpoint.store import FileCheckpointStore
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots
from quarterdeck_protocol.plain_words import plain_words

MAX_PATHS_SHOWN: Final = 3
"""Paths of one node in the table; --json has them all."""

MAX_NAMED: Final = 5
"""Sessions to choose from, the newest."""

STYLES: Final = {"restored": "green", "deleted": "yellow", "unchanged": "dim", "failed": "red"}

group: Final = Group("Undo what the native tools write and edit changed.")

Workspace = Annotated[
    Path | None,
    Option("--workspace", metavar="DIR", help="Where the tools worked; the current directory unless told otherwise."),
]

OfSession = Annotated[str | None, Option("--session", metavar="ID", help="Only of this session, as list shows it.")]


class _Session(NamedTuple):
    name: str
    store: FileCheckpointStore
    nodes: list[CheckpointNode]


@group.command("list")
def list_nodes(workspace: Workspace = None, session: OfSession = None, json: options.Json = False) -> None:
    """Show the changes of write and edit that can be undone, oldest first, of every session or of one."""
    rows = [
        {"session": each.name, "node": node.name, "at": node.at, "paths": [utf8(path) for path in node.paths]}
        for each in run(lambda: _sessions(_place(workspace), session))
        for node in each.nodes
    ]
    columns = Column("SESSION", "session"), Column("NODE", "node"), Column("AT", "at", "dim"), Column("FILES", _some)
    show(rows, columns, json=json, none="there is nothing to undo")


@group.command("restore")
def restore(
    node: Annotated[str, Argument(metavar="NODE", help="The oldest change to undo.")],
    workspace: Workspace = None,
    session: OfSession = None,
    allow_dir: Annotated[
        list[Path] | None, Option(metavar="DIR", help="Also undo in this directory; may be repeated.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Bring every file back to what it was before NODE, undoing all later changes of its session too.

    What is there now is kept as a change of its own, named …-restore, so that this can be undone as well.  A NODE that
    several sessions have needs --session.
    """
    place = _place(workspace)

    async def undo() -> tuple[str, list[RestoredPath]]:
        found = await _sessions(place, session)
        if not found:
            raise NotFoundError(f"there is nothing to undo in {place}", "name the workspace with --workspace DIR")
        owners = [each for each in found if any(has.name == node for has in each.nodes)]
        if not owners:
            raise NotFoundError(f"there is no change {node!r}", "quarterdeck checkpoint list shows them")
        if len(owners) > 1:
            names = ", ".join(each.name for each in owners[-MAX_NAMED:])
            raise UsageError(f"{len(owners)} sessions have a {node}", f"name one with --session: {names}")
        roots = Roots(place, allow_dir or [], closed=(state_dir(), runtime_dir()), protected=never_written)
        with as_command_error(
            UnknownNodeError,
            OSError,
            UnsafePathError,
            remedy="quarterdeck checkpoint list shows what can be undone; make the file or folder writable",
        ):
            return owners[0].name, await owners[0].store.restore(node, LocalFs(roots, str(place)))

    name, done = run(undo)
    if json:
        print_json(
            {
                "session": name,
                "node": node,
                "files": [{"path": utf8(each.path), "outcome": each.outcome, "note": each.note} for each in done],
            }
        )
    else:
        hint(f"session {name}")
        for each in done:
            note = f": {each.note}" if each.note else ""
            print_line(f"{each.outcome} {flat(each.path)}{note}", STYLES[each.outcome])
        hint("what was there before is a change of its own: quarterdeck checkpoint list")
    if any(each.outcome == "failed" for each in done):
        raise SystemExit(ExitCode.TOOL_ERROR)


async def _sessions(workspace: Path, session: str | None) -> list[_Session]:
    """Return the sessions of a workspace that have nodes, or the one asked for, oldest first."""
    paths = workspace_paths(workspace)
    try:
        names = sorted(name for name in os.listdir(paths.sessions) if not name.startswith("."))
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise UsageError(plain_words(error), f"make {paths.sessions} readable") from error
    if session is not None and session not in names:
        raise NotFoundError(
            f"{workspace} has no session {session!r}", "quarterdeck checkpoint list shows those that can be undone"
        )
    found = []
    with as_command_error(
        OSError, UnsafePathError, remedy=f"make {paths.sessions} a folder of your own that can be read"
    ):
        for name in names if session is None else [session]:
            store = FileCheckpointStore(paths.session(name).checkpoints)
            if nodes := await store.nodes():
                found.append(_Session(name, store, nodes))
    return found


def _place(workspace: Path | None) -> Path:
    place = (workspace or Path()).expanduser().absolute()
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory", "name the workspace with --workspace")
    return place


def _some(row: dict[str, list[str]]) -> str:
    more = f" and {len(row['paths']) - MAX_PATHS_SHOWN} more" if len(row["paths"]) > MAX_PATHS_SHOWN else ""
    return ", ".join(row["paths"][:MAX_PATHS_SHOWN]) + more
