"""Show what servers need, ask once, and give it: rows changed, folders made, and what starts differently approved.

`config import`, `link` and `allow` end with this one question, and `add` shows the same table.
"""

import json
import os
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

import msgspec

from quarterdeck.cli.exits import CommandError, ExitCode, UsageError
from quarterdeck.cli.file_change import FileChange, as_it_was
from quarterdeck.cli.output import Column, choose, hint, print_line, show, warn
from quarterdeck.cli.source import Source, read_settings
from quarterdeck.cli.trust.context import TrustContext, open_context, refuse_unapproved, send
from quarterdeck.config.allow_paths import edited, widened
from quarterdeck.config.clients.user_file import UserFileError, read_user_file
from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.text_edit import EditError
from quarterdeck.config.settings import Settings
from quarterdeck.grants.needs import Need, ServerNeeds, needs_of, paths_of, sandbox_of
from quarterdeck.ledger.events.events import Subject
from quarterdeck.trust.configured_servers import configured
from quarterdeck.trust.judge.documents import Document, value_of
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_sandbox import LaunchError

ACCESS: Final = {"read": "read", "write": "read and write", "network": "connect", "grants": "use"}
"""What a need's key means for its value."""

FIX_PATHS: Final = "name a narrower path, with --read or --write"

REACH_S: Final = 3.0
"""For all remote servers together to take a connection: a person waits for the question."""

_STANDINGS: Final = frozenset({Standing.NAMED, Standing.USER})
"""Rows that a command may change."""


def find_needs(source: Source, settings: Settings, ids: Collection[str] | None = None) -> list[ServerNeeds]:
    """Return what the servers of the user's own rows need, of those with these ids or of all; and why others fail."""
    found = []
    with open_context(source) as context:
        rows = {row.id: row for row in configured(settings).rows}
        for config in _own_servers(settings, ids):
            try:
                needed = needs_of(config, os.environ, listed_tools(context, config.id))
            except LaunchError as error:
                needed = ServerNeeds(config.id, (), (f"it cannot be started: {error}",))
            if needed.needs and (why := _why_closed(context, rows[config.id])):
                needed = ServerNeeds(config.id, (), (*needed.problems, why))
            found.append(needed)
    found += [
        ServerNeeds(row.id, (), (f"its row cannot be used: {row.message}",))
        for row in settings.broken
        if row.id is not None and (ids is None or row.id in ids)
    ]
    return [each for each in found if each.needs or each.problems]


def _own_servers(settings: Settings, ids: Collection[str] | None) -> list[ServerConfig]:
    """Return the servers of the user's own rows, of those with these ids or of all."""
    own = (config for config in settings.servers if settings.origin(config.id).standing in _STANDINGS)
    return [config for config in own if ids is None or config.id in ids]


def _why_closed(context: TrustContext, row: ServerRow) -> str:
    try:
        refuse_unapproved(context, row)
    except CommandError as error:
        return f"{error.message}: {error.remedy}"
    return ""


def listed_tools(context: TrustContext, server: str) -> dict[str, object]:
    """Return the definitions of a server's tools as they were last seen, by name."""
    matters = context.server(server).matters
    tools = {each.key.name: each for each in matters if each.key.subject is Subject.TOOL}
    return {name: value_of(each.body or context.read(each.seen) or b"null") for name, each in tools.items()}


def print_needs(found: Sequence[ServerNeeds]) -> None:
    """Print the table of what servers need, and what keeps servers from working."""
    rows = [(each.server, need) for each in found for need in each.needs]
    columns = [
        Column("SERVER", lambda row: row[0], "cyan"),
        Column("NEEDS", lambda row: shortened(row[1].value)),
        Column("ACCESS", lambda row: ACCESS[row[1].key]),
        Column("WHY", lambda row: row[1].reason, "dim"),
        Column("DEFAULT", lambda row: "give" if row[1].is_default else "no", {"give": "green"}),
    ]
    if any(need.remark for _, need in rows):
        columns.append(Column("REMARK", lambda row: row[1].remark, "dim", ""))
    if rows:
        print_line()
        show(rows, columns)
    for each in found:
        for problem in each.problems:
            warn(f"{each.server}: {problem}")


def shortened(value: str) -> str:
    """Return a path in the user's home as people write it."""
    home = os.path.expanduser("~").rstrip("/")
    return f"~{value[len(home) :]}" if home and value.startswith(f"{home}/") else value


def view_needs(found: Sequence[ServerNeeds], given: Sequence[ServerNeeds] = ()) -> list[dict[str, object]]:
    """Return the same for programs, with what was given of it."""
    gave = {(each.server, need.key, need.value) for each in given for need in each.needs}
    return [
        {
            "server": each.server,
            "needs": [
                {**msgspec.to_builtins(need), "given": (each.server, need.key, need.value) in gave}
                for need in each.needs
            ],
            "problems": list(each.problems),
        }
        for each in found
    ]


def tool_definitions(documents: Iterable[Document]) -> dict[str, object]:
    """Return the tools among what a server lists, by name."""
    return {each.key.name: value_of(each.body) for each in documents if each.key.subject is Subject.TOOL}


def defaults(found: Iterable[ServerNeeds]) -> list[ServerNeeds]:
    """Return what a yes to all gives."""
    chosen = [
        msgspec.structs.replace(each, needs=tuple(need for need in each.needs if need.is_default)) for each in found
    ]
    return [each for each in chosen if each.needs]


def ask_needs(found: Sequence[ServerNeeds], question: str) -> list[ServerNeeds] | None:
    """Ask for all, or row by row. Return what is to be given; None for a no. Raise CommandError without a terminal."""
    answer = choose(f"{question} [yes/each/no]", ("yes", "each", "no"))
    if answer == "no":
        return None
    if answer == "yes":
        return defaults(found)
    chosen = []
    for each in found:
        needs = [given for need in each.needs if (given := _ask_one(each.server, need)) is not None]
        chosen += [ServerNeeds(each.server, tuple(needs))] if needs else []
    return chosen


def _ask_one(server: str, need: Need) -> Need | None:
    """Return what is given of one need; of a folder to be read the user may make one that is written."""
    is_read = need.key == "read"
    words = ("read", "write", "no") if is_read else ("yes", "no")
    default = words[0] if need.is_default else "no"
    asked = f"{server}: {ACCESS[need.key]} {need.value} ({need.reason})? [{'/'.join(words)}]"
    answer = choose(asked, words, default)
    if answer == "no":
        return None
    return msgspec.structs.replace(need, key="write") if answer == "write" else need


def settle_needs(
    source: Source, ids: Collection[str] | None, *, yes: bool, can_ask: bool, is_shown: bool
) -> list[dict[str, object]]:
    """Show what these servers need, or all, ask for it, or with `yes` do not, and give it.

    Return the same for programs.
    """
    try:
        settings = read_settings(source)
    except ConfigFileError:
        return []  # `serve` says what is wrong with it
    found = [*find_needs(source, settings, ids), *_unreachable(settings, ids)]
    if is_shown:
        print_needs(found)
    if not any(each.needs for each in found):
        return view_needs(found)
    if not yes and not (can_ask and sys.stdin.isatty()):
        if is_shown:
            hint("to give them that: quarterdeck allow --all; or the command again with --yes")
        return view_needs(found)
    given = defaults(found) if yes else ask_needs(found, "give them that, and approve it?")
    if given:
        refused = give(source, settings, given)
        given = [each for each in given if each.server not in refused]
        if is_shown:
            print_given(given)
        for server, why in refused.items():
            warn(f"{server} is given nothing: {why}")
    return view_needs(found, given or ())


def _unreachable(settings: Settings, ids: Collection[str] | None) -> list[ServerNeeds]:
    """Return the remote servers of the user's own rows that take no connection, of those with these ids or of all.

    Nothing is sent. A server that may be connected to only on the internet is left out: its worker alone checks that.
    """
    ends: dict[str, tuple[str, int]] = {}
    for config in _own_servers(settings, ids):
        if not isinstance(config, StdioServerConfig) and not config.internet_only:
            url = urlsplit(config.proxy or config.url)
            ends[config.id] = (url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
    reasons = dict.fromkeys(ends.values(), f"no answer within {REACH_S:g} s")
    threads = [Thread(target=_try_to_reach, args=(end, reasons), daemon=True) for end in reasons]
    for thread in threads:
        thread.start()
    deadline = monotonic() + REACH_S
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    return [
        ServerNeeds(server, (), (f"{host} cannot be reached at port {port}: {why}",))
        for server, (host, port) in ends.items()
        if (why := reasons[host, port])
    ]


def _try_to_reach(end: tuple[str, int], reasons: dict[tuple[str, int], str]) -> None:
    """Replace the reason why nothing answers at one end; an empty one means that something does."""
    try:
        socket.create_connection(end, REACH_S).close()
        reasons[end] = ""
    except (OSError, UnicodeError) as error:
        reasons[end] = getattr(error, "strerror", None) or str(error)


def print_given(given: Sequence[ServerNeeds]) -> None:
    """Print whose rows were changed."""
    if given:
        print_line(f"given from the next start on: {', '.join(each.server for each in given)}", "green")


@dataclass(slots=True)
class GrantChange:
    """The changes of files that give servers what they need, and each server's new `sandbox`."""

    settings: Settings
    files: dict[Path, FileChange] = field(default_factory=dict)
    sandboxes: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, given: ServerNeeds) -> None:
        """Add one server's; raise CommandError if it may not have that, or if its file cannot be changed."""
        config, row = _config_of(self.settings, given.server), self.settings.origin(given.server).row
        _refuse_forbidden(config, [need for need in given.needs if not need.is_new])
        self.put(given.server, sandbox_of(row, given.needs))

    def put(self, server: str, sandbox: dict[str, object]) -> None:
        """Replace one server's `sandbox`; raise CommandError if its file cannot be changed."""
        origin = self.settings.origin(server)
        path = origin.path
        assert path is not None
        try:
            old = self.files.get(path)
            text = old.old if old is not None else read_user_file(path).text
            new = edited(old.new if old is not None else text, origin, sandbox)
        except (DocumentError, EditError) as error:
            shown = json.dumps({"sandbox": sandbox}, ensure_ascii=False)[1:-1]
            raise UsageError(
                f"{path} is not changed: {error}", f"write this into {origin.location}: {shown}"
            ) from error
        except UserFileError as error:
            raise UsageError(str(error), f"make {path} a file of your own that can be read") from error
        self.files[path] = FileChange(path, text, new)
        self.sandboxes[server] = sandbox

    def write(self, source: Source) -> None:
        """Write the files, and approve how the servers start now."""
        for file in self.files.values():
            if file.diff:
                backup = file.write()
                print_line(f"{file.path} is changed{as_it_was(backup)}", "dim", stderr=True)
        _approve(source, self.settings, self.sandboxes)


def _refuse_forbidden(config: StdioServerConfig, needs: Iterable[Need]) -> None:
    try:
        widened(config, paths_of(needs), os.environ)
    except (LaunchError, ValueError) as error:
        raise UsageError(f"it cannot be given that: {error}", FIX_PATHS) from error


def _config_of(settings: Settings, server: str) -> StdioServerConfig:
    config = next(each for each in settings.servers if each.id == server)
    assert isinstance(config, StdioServerConfig)
    return config


def give(source: Source, settings: Settings, given: Sequence[ServerNeeds]) -> dict[str, str]:
    """Make the folders, write the rows, and approve them. Return why servers were given nothing, by server."""
    change, refused = GrantChange(settings), dict[str, str]()
    for each in given:
        made: list[str] = []
        try:
            made = make_folders(each.needs)
            _refuse_forbidden(_config_of(settings, each.server), each.needs)
            change.add(each)
        except CommandError as error:
            remove_folders(made)
            refused[each.server] = error.message
    change.write(source)
    return refused


def give_or_refuse(source: Source, settings: Settings, given: Sequence[ServerNeeds]) -> None:
    """Give it, and print whose rows were changed; raise UsageError that says why others were given nothing."""
    refused = give(source, settings, given)
    print_given([each for each in given if each.server not in refused])
    if refused:
        raise UsageError(
            "; ".join(f"{name} is given nothing: {why}" for name, why in refused.items()),
            "correct that, and run the command again",
        )


def make_folders(needs: Iterable[Need]) -> list[str]:
    """Make the folders that are missing; return them, the outermost first. Raise CommandError if one cannot be made."""
    made: list[str] = []
    for need in needs:
        missing = [need.value] if need.is_new else []
        while missing and not os.path.lexists(above := os.path.dirname(missing[0])):
            missing.insert(0, above)
        try:
            for folder in missing:
                os.mkdir(folder)
                made.append(folder)
        except FileExistsError:
            continue  # made meanwhile
        except OSError as error:
            remove_folders(made)
            raise UsageError(f"{need.value} cannot be made: {error.strerror}", "make it, or name another") from error
    return made


def remove_folders(made: Sequence[str]) -> None:
    """Remove folders that were made for nothing; one with files in it stays."""
    for folder in reversed(made):
        with suppress(OSError):
            os.rmdir(folder)


def _approve(source: Source, before: Settings, sandboxes: Mapping[str, Mapping[str, object]]) -> None:
    """Approve how the servers are started now, if nothing but their sandboxes differs from before."""
    decisions = []
    with open_context(source) as context:
        assert context.settings is not None
        for server, sandbox in sandboxes.items():
            found, now, old = context.server(server), context.settings.origin(server), before.origin(server)
            if dict(now.row) != {**old.row, "sandbox": sandbox} or now.files != old.files:
                raise CommandError(
                    ExitCode.NO_ANSWER,
                    f"{old.path} was changed by another program meanwhile: nothing is approved",
                    context.command("diff", server),
                )
            [launch] = [each for each in found.matters if each.key.subject is Subject.LAUNCH]
            if launch.seen != launch.approved:
                decisions.append(Decision(found.scope, found.server, launch.key, launch.seen, launch.body))
    if decisions:
        send(decisions)
