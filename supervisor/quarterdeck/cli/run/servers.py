"""`quarterdeck ps`, `restart` and `inspect`: the state of servers, restarting one, and one in detail."""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.log_setup import LogLevel
from quarterdeck.cli.output import Cell, Column, print_json, print_line, show
from quarterdeck.cli.source import (
    NO_CONFIGURATION,
    Asked,
    AskedQuietly,
    Source,
    answer_of,
    ask,
    ask_running,
    check_server,
    load,
    print_troubles,
)
from quarterdeck.common.words import duration, flat, how_it_ended, printable, size
from quarterdeck.config.places.runtime_directory import Serving, find_all_serving
from quarterdeck.daemon.control.protocol import (
    Answer,
    FaultView,
    Inspect,
    Inspection,
    LimitView,
    Ps,
    Restart,
    Restarted,
    SandboxView,
    ServerList,
    ServerView,
    Sleep,
    Wake,
)
from quarterdeck_protocol.faults import Dossier

REACHES: Final = "can reach your local network"
"""What receipts say of a network that nothing confines; see the sandbox's `policy.promises`, not imported for this."""


ASKED_FOR: Final = 'its row says "network": "full"'
"""The reason for an open network that receipts do not call a gap."""

STYLES: Final = {"ready": "green", "asleep": "dim", "connecting": "yellow", "idle": "yellow", "faulted": "bold red"}

SEAL_DIGITS: Final = 12
"""Of a seal's digest for people; every command takes as few of them as tell it apart."""

TAIL_LINES: Final = 5
"""Lines of a dead server's stderr; `logs` shows the rest."""

_NOISE: Final = re.compile(
    r"npm (?:notice|warn|info)\b|npm err(?:or|!) A complete log|npm err(?:or|!) 404 *(?:$|Note that|tarball,)|\s*$|"
    r"Installed \d+ packages? in |Node\.js v\d",
    re.IGNORECASE,
)
"""Lines of npm, uv and node that do not tell the cause."""

_CAUSE: Final = re.compile(
    r"(?:Uncaught |fatal: )?(?:[A-Za-z_][\w.]{0,99})?(?:Error|Exception)\b[^\n]{0,200}:|"
    r"(?:error|fatal|panic|npm err!|npm error)\b ?[:!]?",
    re.IGNORECASE,
)
"""Matches the line in which a program says why it ends."""


def ps(source: AskedQuietly, json: options.Json = False) -> None:
    """Show every server that runs: phase, tools, process, memory, uptime, restarts, and what is wrong.

    It starts nothing, unless --own says so: where no client has opened the configuration, it tells what is configured.
    """
    decks = _several(source)
    if len(decks) < 2:
        answer = ask(source, Ps()) if source.own else ask_running(source, Ps(), anywhere=True)
        if answer is None:
            _print_configured(source, json=json)
            return
        assert isinstance(answer, ServerList)
        decks = {None: answer}
    if json:
        views = [
            {"deck": serving.deck, "files": serving.config_paths, "servers": of.servers, "troubles": of.troubles}
            for serving, of in decks.items()
            if serving is not None
        ]
        first = next(iter(decks.values()))
        document = {"running": not source.own, "servers": first.servers, "troubles": first.troubles}
        print_json({**document, "decks": views} if views else document)
        return
    for number, (serving, of) in enumerate(decks.items()):
        if number:
            print_line()
        if serving is not None:
            print_line(
                f"deck {flat(serving.deck)}: {flat(serving.words)}" if serving.deck else flat(serving.words), "bold"
            )
        print_troubles(each for each in of.troubles if not each.is_listed)
        print_servers(of.servers)


def _several(source: Source) -> dict[Serving | None, ServerList]:
    """Return the servers of each serving process or deck, this configuration's first; empty if the source names one."""
    if source.own or source.config or source.native is not None:
        return {}
    found: dict[Serving | None, ServerList] = {}
    serving = find_all_serving()
    for directory, each in sorted(serving.items(), key=lambda pair: pair[1].digest != source.digest):
        answer = answer_of(directory, Ps()) if len(serving) > 1 else None
        if isinstance(answer, ServerList):
            found[each] = answer
    return found


def _print_configured(source: Source, *, json: bool) -> None:
    settings = load(msgspec.structs.replace(source, log_level=LogLevel.ERROR), may_be_empty=True)
    if json:
        broken = {row.id: row.message for row in settings.broken}
        print_json({"running": False, "servers": [], "configured": settings.ids, "broken": broken})
        return
    daemon = _describe_daemon()
    daemon = daemon[0].upper() + daemon[1:]
    if not settings.ids:
        print_line(f"{daemon}, and no server is configured.")
        print_line(f"  fix: {NO_CONFIGURATION}; then quarterdeck serve")
        return
    files = "".join(f" -c {shlex.quote(str(path))}" for path in source.config)
    names = ", ".join(settings.ids)
    print_line(f"{daemon}; configured: {len(settings.ids)} ({names}).")
    print_line(f"A client that starts `quarterdeck serve{files}` starts them.")
    print_troubles(settings.troubles)


def _describe_daemon() -> str:
    """Describe a daemon without a client of this configuration, in the words of `up` and `status`."""
    from quarterdeck.daemon.place import process_of, running_dir  # only where no serve has answered

    pid = process_of(running_dir())
    return (
        "no daemon runs" if pid is None else f"the daemon runs (process {pid}), without a client of this configuration"
    )


def restart(source: Asked, server: options.ServerId, json: options.Json = False) -> None:
    """Restart one server, whatever its phase; its past crashes are forgotten."""
    _by_hand(source, Restart(server), "ready", json=json)


def wake(source: Asked, server: options.ServerId, json: options.Json = False) -> None:
    """Start a server that sleeps, and keep it awake for ten minutes."""
    _by_hand(source, Wake(server), "ready", json=json)


def sleep(source: Asked, server: options.ServerId, json: options.Json = False) -> None:
    """Stop a server until it is called: what it works on ends."""
    _by_hand(source, Sleep(server), "asleep", json=json)


def _by_hand(source: Source, request: Restart | Wake | Sleep, wanted: str, *, json: bool) -> None:
    """Have this done, and show how the server is then; exit with `NOT_READY` unless it is in the `wanted` phase."""
    restarts = isinstance(request, Restart)
    if source.own and restarts:
        answer: Answer | None = ask(source, request, only=request.server)
    else:
        answer = ask_running(source, request, anywhere=True)
    if answer is None:
        check_server(load(source), request.server)
        what, started = ("there is nothing to restart", "the server") if restarts else ("no server runs", "the servers")
        remedy = f"quarterdeck serve starts {started}, and so does each client that starts that"
        raise CommandError(ExitCode.NOT_READY, f"{what}: {_describe_daemon()}", remedy)
    assert isinstance(answer, Restarted)
    if json:
        print_json({"server": answer.server})
    else:
        print_servers((answer.server,))
    if answer.server.phase != wanted:
        raise SystemExit(ExitCode.NOT_READY)


def print_servers(servers: Sequence[ServerView]) -> None:
    """Print the table of servers, then the faults with their remedies."""
    columns = (*COLUMNS, SEAL) if any(server.seal for server in servers) else COLUMNS
    show([row for server in servers for row in _rows(server)], columns)
    open_ones: dict[str, list[str]] = {}
    for server in servers:
        if server.sandbox and is_reachable(server.sandbox):
            gap = next((text for text in server.sandbox.gaps if REACHES in text), "")
            open_ones.setdefault(gap.partition("; ")[2] or ASKED_FOR, []).append(server.id)
    for why, ids in open_ones.items():
        print_line()
        print_line(f"partial: {', '.join(ids)} {REACHES} ({why})", "yellow")
    for server in servers:
        if server.sandbox is not None and server.sandbox.caught:
            print_line()
            for caught in server.sandbox.caught:
                print_line(f"warning: {server.id}: {flat(caught)}", "yellow")
        if server.sandbox is not None and server.sandbox.hint:
            print_line()
            print_line(f"hint: {server.id}: {flat(server.sandbox.hint)}", "yellow")
        if server.changed:
            print_line()
            print_line(f"{server.id}: {describe_changed(server)}", "yellow")
        if server.fault is not None:
            print_line()
            print_fault(server.fault, of=server.id)


def describe_changed(server: ServerView) -> str:
    """Return which files of its program changed since they were approved; empty for none."""
    return f"changed since approved: {', '.join(map(flat, server.changed))}" if server.changed else ""


def _rows(server: ServerView) -> Iterator[dict[str, object]]:
    """Yield the row of a server, then one for each session's own server."""
    row = msgspec.structs.asdict(server)
    counts = [f"{count} {what}" for count, what in ((server.held, "held"), (server.blocked, "blocked")) if count]
    tools = Cell(", ".join((str(server.tools), *counts)), "yellow" if server.held else "")
    tier = Cell("-")
    if (sandbox := server.sandbox) is not None:
        is_partial = sandbox.gaps or is_reachable(sandbox)
        tier = Cell(f"{sandbox.tier}, partial" if is_partial else sandbox.tier, "yellow" if sandbox.gaps else "")
    yield {**row, "tools": tools, "sandbox": tier}
    for each in server.of_sessions:
        own = {"id": Cell(f"  {server.id} of {each.client}", "dim"), "phase": each.phase, "pid": each.pid}
        yield {**dict.fromkeys(row), "tools": Cell(""), "sandbox": Cell(""), **own}


COLUMNS: Final = (
    Column("SERVER", "id"),
    Column("PHASE", "phase", STYLES),
    Column("TOOLS", "tools"),
    Column("PID", "pid"),
    Column("MEMORY", "memory_bytes", form=size),
    Column("UPTIME", "uptime_s", form=duration),
    Column("RESTARTS", "restarts"),
    Column("ERA", "era"),
    Column("SANDBOX", "sandbox"),
)
"""Columns of `ps`; a session's own servers fill only the first."""

SEAL: Final = Column("SEAL", "seal", form=lambda digest: digest[:SEAL_DIGITS])
"""The last column, where any server runs from a seal."""


def is_reachable(sandbox: SandboxView) -> bool:
    """Return whether it can reach what no server should: your network, the machine's metadata service, its loopback."""
    return any(REACHES in text for text in (sandbox.network, *sandbox.gaps))


def print_fault(fault: FaultView, *, of: str | None = None, stderr: bool = False) -> None:
    """Print what happened, what to do, and how the process died if one did."""
    owner = f"{of}: " if of is not None and not fault.message.startswith(f"{of} ") else ""
    # On one line: a server words it, and could add a fix of its own below.
    print_line(f"error[{fault.code or fault.kind}]: {owner}{flat(fault.message)}", "red", stderr=stderr)
    if fault.delivery == "unknown" and of is None:
        print_line("  whether the call had an effect is not known", stderr=stderr)
    if fault.remedy is not None:
        print_line(f"  fix: {fault.remedy}", stderr=stderr)
    if fault.dossier is not None:
        for line in describe_dossier(fault.dossier):
            print_line(f"  {line}", "dim", stderr=stderr)


def describe_dossier(dossier: Dossier) -> list[str]:
    """Return how a process ended, its peaks, and the end of its stderr."""
    words = last_words(printable(dossier.stderr_tail))
    lines = (how_it_ended(dossier), *map(printable, dossier.hints), *(f"stderr: {line}" for line in words))
    return [line for line in lines if line]


def last_words(text: str) -> list[str]:
    """Return the last lines of a process's stderr, the likely cause first, without noise of package runners."""
    lines = [line for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
    shown = lines[-TAIL_LINES:]
    cause = next((line for line in reversed(lines) if _CAUSE.match(line)), None)
    if cause is None or shown[:1] == [cause]:
        return shown
    return [cause, *[line for line in shown if line is not cause][-TAIL_LINES + 1 :]]


STRENGTHS: Final = {"full": "green", "partial": "yellow", "none": "bold red"}


_UNITS: Final = {"bytes": lambda value: size(int(value)), "s": duration}
"""Formats of a limit's number, by the last part of its name."""


def inspect(source: AskedQuietly, server: options.ServerId, json: options.Json = False) -> None:
    """Show one server whole: command, policy, what confines it, each limit with its use, and its last death."""
    answer = ask(source, Inspect(server), only=server, anywhere=True)
    assert isinstance(answer, Inspection)
    if json:
        print_json(answer)
        return
    found, receipt = answer.server, answer.receipt
    print_line(f"{found.id} is {found.phase}", STYLES.get(found.phase, ""))
    users = {None: "", 0: " as root without capabilities"}
    facts = {
        "command": shlex.join(answer.command),
        "program": receipt.program if receipt else "",
        "cwd": receipt.cwd if receipt else "",
        "pid": found.pid,
        "policy": describe_policy(bytes(answer.policy)),
        "sandbox": f"{receipt.bubblewrap or receipt.tier}{users.get(receipt.uid, f' as user {receipt.uid}')}"
        if receipt
        else answer.note,
        "network": receipt.network if receipt else "",
        "seal": found.seal,
        "": describe_changed(found),
        "writing": f"{', '.join(answer.cannot_write)} will fail: it may only read" if answer.cannot_write else "",
    }
    for label, text in facts.items():
        if text not in (None, ""):
            print_line(f"{label:9}{text}")
    if receipt is not None:
        print_line()
        show(receipt.properties, PROPERTY_COLUMNS)
        for title, lines in (("shown beyond the system:", receipt.shown), ("weaker than wanted:", receipt.gaps)):
            if lines:
                print_line()
                print_line(title, "bold")
                for line in lines:
                    print_line(f"  {line}")
    if answer.limits:
        print_line()
        show(answer.limits, LIMIT_COLUMNS)
    if answer.last_death is not None:
        print_line()
        print_fault(answer.last_death, of=found.id)


def describe_policy(policy: bytes) -> str | None:
    """Return a policy in words, without its limits and empty parts; None without one."""
    told = msgspec.json.decode(policy, type=dict[str, object] | None)
    if told is None:
        return None
    return "; ".join(
        f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in told.items()
        if key != "limits" and value is not None and value != []
    )


def _limit_number(which: str, limit: LimitView) -> str | None:
    value = getattr(limit, which)
    unit = _UNITS.get(limit.name.rpartition("_")[2], lambda number: f"{number:,g}")
    return None if value is None else unit(value)


PROPERTY_COLUMNS: Final = (
    Column("PROPERTY", "name"),
    Column("STRENGTH", "strength", STRENGTHS),
    Column("MECHANISM", "mechanism"),
)

LIMIT_COLUMNS: Final = (
    Column("LIMIT", "name"),
    *(
        Column(title, partial(_limit_number, which))
        for title, which in (("AT MOST", "most"), ("NOW", "present"), ("PEAK", "peak"))
    ),
    Column("KEPT BY", "kept_by"),
)
