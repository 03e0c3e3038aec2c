"""`quarterdeck allow`: give a server's sandbox the paths that its row names, and approve the row in the same step."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.file_change import FileChange, as_it_was, print_diff
from quarterdeck.cli.output import is_confirmed, print_line, warn
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.source import Named, Source, configured_server, load, present_troubles, print_troubles
from quarterdeck.cli.trust.context import open_context, refuse_unapproved, send
from quarterdeck.config.allow_paths import edited, missing, sandbox_with, widened
from quarterdeck.config.clients.user_file import UserFileError, read_user_file
from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.load.text_edit import EditError
from quarterdeck.config.places.paths import command_digest, server_paths
from quarterdeck.ledger.events.events import Subject
from quarterdeck.trust.configured_servers import configured
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox import LaunchError, RequiredPath

Paths = Annotated[list[Path] | None, Option(metavar="PATH", help="Let it read this path; may be repeated.")]

Writable = Annotated[list[Path] | None, Option(metavar="PATH", help="Let it change this path; may be repeated.")]


def allow(
    source: Named,
    server: options.ServerId,
    read: Paths = None,
    write: Writable = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Give a server the files that its command line and its variables name: show the change, write it, approve it.

    A program's file needs its project, a database its folder: that is what is offered. `--read` and `--write` name
    something else in its place.
    """
    target = _find_target(source, server)
    pairs, refused = (("read", read), ("write", write)), list[str]()
    needs = [RequiredPath(key, os.path.abspath(path.expanduser())) for key, paths in pairs for path in paths or ()]
    if not needs:
        needs, refused = _missing_paths(target.config)
    if not needs and refused:
        raise UsageError(
            f"{server} is given nothing: {'; '.join(refused)}",
            "do as it says; to give it another path: --read PATH or --write PATH",
        )
    if not needs:
        print_line(
            f"{server} can see every path in its command line and variables; to add another: --read or --write PATH"
        )
        return
    change, sandbox = _plan_change(target, needs)
    for need in needs:
        why = f"  ({need.why})" if need.why else ""
        print_line(f"{need.key:5}  {need.path}{why}")
    print_diff(change.diff)
    if not change.diff:
        print_line(f"{server} has that access already")
        return
    if dry_run:
        print_line("nothing was changed (--dry-run)", "dim")
        return
    if not (yes or is_confirmed("write this, and approve it?")):
        raise SystemExit(ExitCode.OK)
    backup = change.write()
    _approve(source, target, change.path, sandbox)
    print_line(f"{server} has that access from its next start{as_it_was(backup)}", "green")


@dataclass(frozen=True, slots=True)
class _Target:
    config: StdioServerConfig
    origin: Origin
    row: ServerRow


def _find_target(source: Source, server: str) -> _Target:
    """Return the server if its row may be changed and everything else in it is approved."""
    if not source.config and server_paths(command_digest(server), server).home.exists():
        raise UsageError(
            f"{server} is the server of a `quarterdeck run`, which no file names",
            "say there what it may see, before its `--`: --read PATH, --write PATH, --grant NAME, --network MODE",
        )
    settings = load(source)
    print_troubles(present_troubles(source, settings.troubles), stderr=True)
    config = configured_server(settings, server)
    if not isinstance(config, StdioServerConfig):
        raise UsageError(
            f"{server} is a remote server: it has no process to confine", "leave it as it is: its row needs no paths"
        )
    if not config.sandbox.confines_files:
        raise UsageError(
            f"{server} is trusted, and sees all files: there is nothing to allow",
            'leave it as it is; to confine it, take the preset "trusted" out of its row',
        )
    origin = settings.origin(server)
    if origin.standing is Standing.PROJECT:
        raise UsageError(
            f"{server} is in a project's file, {origin.path}, which may give it only what lies in the project",
            "write the row into a file of your own; or change it there, and run quarterdeck trust approve --project",
        )
    [row] = [each for each in configured(settings).rows if each.id == server]
    refuse_unapproved(source, row)
    return _Target(config, origin, row)


def _missing_paths(config: StdioServerConfig) -> tuple[list[RequiredPath], list[str]]:
    """Return the missing paths to add, and reasons for the others. Print the reasons if there are paths to add."""
    with as_command_error(LaunchError, remedy=f"correct its row: quarterdeck inspect {config.id} shows it"):
        needs, said = missing(config, os.environ)
    for line in said if needs else ():
        warn(line)
    return needs, said


def _plan_change(target: _Target, needs: list[RequiredPath]) -> tuple[FileChange, dict[str, object]]:
    path, sandbox = target.origin.path, sandbox_with(target.origin.row, needs)
    assert path is not None
    with as_command_error(
        LaunchError, ValueError, remedy="name a narrower path, with --read or --write", what="it cannot be given that: "
    ):
        widened(target.config, needs, os.environ)
    try:
        file = read_user_file(path)
        new = edited(file.text, target.origin, sandbox)
        return FileChange(path, file.text, new), sandbox
    except (DocumentError, EditError) as error:
        shown = json.dumps({"sandbox": sandbox}, ensure_ascii=False)[1:-1]
        raise UsageError(
            f"{path} is not changed: {error}", f"write this into {target.origin.location}: {shown}"
        ) from error
    except UserFileError as error:
        raise UsageError(str(error), f"make {path} a file of your own that can be read") from error


def _approve(source: Source, target: _Target, path: Path, sandbox: dict[str, object]) -> None:
    """Approve how the server is started now, if nothing but its sandbox differs from before."""
    with open_context(source) as context:
        found = context.server(target.config.id)
        assert context.settings is not None
        now = context.settings.origin(target.config.id)
        expected = {**target.origin.row, "sandbox": sandbox}
        if dict(now.row) != expected or now.files != target.origin.files:
            raise CommandError(
                ExitCode.NO_ANSWER,
                f"{path} was changed by another program meanwhile: nothing is approved",
                target.row.command("diff"),
            )
        [launch] = [each for each in found.matters if each.key.subject is Subject.LAUNCH]
        if launch.seen != launch.approved:
            send([Decision(found.scope, found.server, launch.key, launch.seen, launch.body)])
