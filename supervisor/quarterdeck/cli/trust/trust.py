"""`quarterdeck trust`: what waits for the user's approval, what changed, deciding it, and scanning all of it again."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, NotFoundError, UsageError
from quarterdeck.cli.output import (
    Cell,
    Column,
    describe_key,
    fields,
    hint,
    is_confirmed,
    print_json,
    print_line,
    print_text,
    show,
    warn,
)
from quarterdeck.cli.parameters import Argument, Group, Option
from quarterdeck.cli.source import Named
from quarterdeck.common.words import flat
from quarterdeck.config.load.origin import Standing
from quarterdeck.ledger.events.events import LISTED, Subject
from quarterdeck.ledger.events.fold import ItemKey, ServerKey
from quarterdeck.ledger.events.history import labels_of
from quarterdeck.trust.judge.canonical_forms import canonical_hash
from quarterdeck.trust.judge.overview import Matter, ServerMatters, State
from quarterdeck.trust.judge.scans import FoundInHistory, scan_recorded
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import TrustMode
from quarterdeck_protocol.names import did_you_mean

from .context import TrustContext, open_context, send
from .views import approved_instructions, changed_program, print_difference, print_servers, view_difference, view_server

group: Final = Group("Decide what servers may offer: what is held, what changed, approve, block.")

Server = Annotated[str | None, Argument(metavar="SERVER", help="Its id, as list shows it.")]

Names = Annotated[list[str] | None, Argument(metavar="NAME…", help="Its tools and prompts by name, resources by URI.")]


class Kind(StrEnum):
    """Kinds of things that a server lists."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"


OfKind = Annotated[
    Kind | None, Option("--kind", metavar="tool|prompt|resource|template", help="Only what is of this kind.")
]


Whole = Annotated[bool, Option("--whole", help="Show all of it, untruncated.")]


@group.command("list")
def list_matters(
    source: Named,
    server: Server = None,
    everything: Annotated[bool, Option("--all", help="Also show what is approved, and what is gone.")] = False,
    json: options.Json = False,
) -> None:
    """Show what is held or blocked, and what the scan found; with --all everything that was ever decided."""
    with open_context(source) as context:
        servers = [context.server(server)] if server is not None else context.servers
        if json:
            print_json({"servers": [view_server(each) for each in servers]})
        else:
            diff = context.command("diff", server or "")
            print_servers(servers, everything=everything, trust=context.trust_of, diff=diff)
            for each in servers:
                if changed := changed_program(each, context.read):
                    warn(changed)
                if advice := _unordered_advice(context, each):
                    warn(advice)


@group.command("diff")
def diff(source: Named, server: Server = None, whole: Whole = False, json: options.Json = False) -> None:
    """Show what would change by approving what is held of every server; of one that is named, what is blocked too."""
    with open_context(source) as context:
        if server is not None:
            found = context.server(server)
            chosen = [(found, found.approvable)]
        else:
            chosen = [(each, each.waiting) for each in context.servers if each.waiting]
        if json:
            print_json({"servers": [view_difference(each, context.read, matters) for each, matters in chosen]})
            return
        if not _print_all(context, chosen, whole=whole):
            warn("the output is cut: add --whole to see everything")
        for each, _ in chosen:
            if advice := _unordered_advice(context, each):
                warn(advice)
    held = [matter for _, matters in chosen for matter in matters]
    if held:
        name = server if server is not None else "SERVER"
        part = f", {name} NAME… only what is named" if any(matter.key.name for matter in held) else ""
        hint(f"{context.command('approve', name, '--all')} approves it{part}")
    elif server is None:
        print_line("nothing is held", stderr=True)


@group.command("approve")
def approve(
    source: Named,
    server: Server = None,
    names: Names = None,
    kind: OfKind = None,
    everything: Annotated[
        bool, Option("--all", help="All that is held of the server: how it is started, instructions, what it lists.")
    ] = False,
    instructions: Annotated[bool, Option(help="What the server tells models about itself.")] = False,
    capabilities: Annotated[bool, Option(help="What the server says that it has.")] = False,
    project: Annotated[
        bool, Option(help="How the servers of this directory's own files are started, each shown first.")
    ] = False,
    unordered: Annotated[
        bool, Option(help="Approve changes of order or own paths alone: none such counts from now on.")
    ] = False,
    whole: Whole = False,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Approve what is held, in the form that is shown: a part of a server, all of it, or a project's servers."""
    with open_context(source) as context:
        given = {"instructions": instructions, "capabilities": capabilities}
        alone = tuple(word for word, is_given in given.items() if is_given)
        wanted = _Wanted(
            tuple(names or ()), kind or "", alone, everything=everything, project=project, unordered=unordered
        )
        chosen, spared = _chosen(context, server, wanted)
        if not (json or _print_all(context, chosen, whole=whole)):
            raise UsageError("nothing is approved: some of it could not be shown", "add --whole, and read it all")
        question = "start these servers as shown?" if project else "approve this?"
        is_asked = bool(chosen) and not yes and (project or sys.stdin.isatty())
        if is_asked and not is_confirmed(question):
            raise SystemExit(ExitCode.OK)
        decisions = []
        for each, matters in chosen:
            for matter in matters:
                body, home = context.read(matter.seen) or b"null", context.home_of(each)
                form = canonical_hash(body, home) if unordered else ""
                decisions.append(Decision(each.scope, each.server, matter.key, matter.seen, matter.body, form))
        if decisions:
            send(decisions)
        blocked = _still_blocked(context, server, wanted, chosen)
        advice = [line for each, matters in chosen for line in _next_step(context, each, matters)]
    _print_decisions("approved", decisions, json=json, is_quiet=bool(spared or blocked))
    for line in (*spared, *blocked):
        warn(line)
    for line in advice:
        hint(line)


@group.command("block")
def block(
    source: Named,
    server: Annotated[str, Argument(metavar="SERVER", help="Its id, as list shows it.")],
    names: Names = None,
    kind: OfKind = None,
    everything: Annotated[
        bool, Option("--all", help="The whole server: it is stopped, and not started again.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Let no form of some tools, prompts or resources be used, or of a server, until one is approved."""
    if bool(names) == everything or (everything and kind is not None):
        raise UsageError(
            "name what to block, or the whole server: --all",
            f"quarterdeck trust block {flat(server)} NAME…, or quarterdeck trust block {flat(server)} --all",
        )
    with open_context(source) as context:
        found = context.server(server)
        keys = [matter.key for name in dict.fromkeys(names or ()) for matter in _named(found, name, kind or "")]
        keys = keys or [ItemKey(Subject.LAUNCH)]
        decisions = [Decision(found.scope, found.server, key) for key in keys]
        send(decisions)
    _print_decisions("blocked", decisions, json=json)


@group.command("instructions")
def instructions(
    source: Named,
    server: Annotated[str, Argument(metavar="SERVER", help="Its id, as list shows it.")],
    json: options.Json = False,
) -> None:
    """Print all that a server tells models about itself, as it was approved: clients may get a part of it."""
    with open_context(source) as context:
        found = context.server(server)
        text, matter = approved_instructions(found, context.read)
        if json:
            print_json({"server": found.server, "instructions": text})
        elif text:
            print_text(text)
        if matter is not None and matter.state.value in ("new", "changed", "blocked"):
            again = context.command("diff", found.server)
            print_line(f"others are {'blocked' if matter.state.value == 'blocked' else 'held'}: {again}", stderr=True)
        elif not text and not json:
            print_line(f"{flat(found.server)} has no approved instructions", stderr=True)


@group.command("scan")
def scan(source: Named, json: options.Json = False) -> None:
    """Run the present rules over everything that was ever offered, and say which servers carried what they find."""
    with open_context(source) as context:
        found = scan_recorded(context.sightings(), context.book, context.read)
        states = {
            (server.scope, server.server, matter.key): "blocked" if matter.state is State.BLOCKED else "held"
            for server in context.servers
            for matter in (*server.waiting, *server.of(State.BLOCKED))
        }
    labels = labels_of(ServerKey(each.scope, each.server) for each in found)
    document = [
        {
            **fields(each, "scope", "server", "hash", "at", "is_offered"),
            **each.key._asdict(),
            **fields(each.finding, "rule", "place", "excerpt"),
        }
        for each in found
    ]

    def state(each: FoundInHistory) -> object:
        now = states.get((each.scope, each.server, each.key), "offered")
        return now if each.is_offered else Cell(f"seen {each.at}", "dim")

    columns = (
        Column("SERVER", lambda each: labels[ServerKey(each.scope, each.server)]),
        Column("WHAT", lambda each: each.key.name or each.key.subject, "cyan"),
        Column("RULE", lambda each: each.finding.rule, "red"),
        Column("PLACE", lambda each: each.finding.place, empty="the whole"),
        Column("NOW", state),
        Column("EXCERPT", lambda each: each.finding.excerpt),
    )
    show(found, columns, json=json, document={"findings": document}, none="no findings in any recorded definition")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The selection of `approve`; `alone` are the kinds that a server has one of."""

    names: tuple[str, ...]
    kind: str
    alone: tuple[str, ...]
    _: KW_ONLY
    everything: bool
    project: bool
    unordered: bool


Chosen = Sequence[tuple[ServerMatters, tuple[Matter, ...]]]
"""Servers, each with what is decided of it."""


def _chosen(context: TrustContext, server: str | None, wanted: _Wanted) -> tuple[Chosen, list[str]]:
    is_part = bool(wanted.names or wanted.alone)
    if wanted.unordered:
        return _unordered(context, server, wanted), []
    if server is None and wanted.project and not (is_part or wanted.everything):
        return _project_launches(context), []
    if server is None or wanted.project or (wanted.everything and wanted.names) or not (wanted.everything or is_part):
        raise UsageError(
            "nothing to approve was given",
            "name SERVER NAME…, SERVER --instructions, SERVER --all or --project; see quarterdeck trust diff",
        )
    found = context.server(server)
    told = [each for each in found.approvable if each.key.subject in wanted.alone]
    if wanted.everything:
        undecided = found.of(State.BLOCKED, State.UNSTARTED)
        launch = (each for each in undecided if each.key.subject is Subject.LAUNCH and each.seen)
        held = tuple(each for each in (*found.waiting, *launch) if wanted.kind in ("", each.key.subject.value))
        # Under `strict`, what the scan found something in is approved by its name alone.
        is_strict = context.trust_of(found) is TrustMode.STRICT
        spared = [each for each in held if each not in told and is_strict and context.is_suspicious(found, each)]
        chosen = tuple(each for each in held if each not in spared)
        return ([(found, chosen)] if chosen else []), [_leave_out(context, server, each.key) for each in spared]
    named = (_named(found, name, wanted.kind, is_offered=True) for name in dict.fromkeys(wanted.names))
    chosen = (*told, *(matter for matters in named for matter in matters))
    return ([(found, chosen)] if chosen else []), []


def _unordered(context: TrustContext, server: str | None, wanted: _Wanted) -> Chosen:
    """Return the matters to approve together with all forms that differ from them only in order."""
    if server is None or wanted.project or wanted.everything or wanted.alone:
        raise UsageError("--unordered is for the changed definitions of one server", "name SERVER, or SERVER NAME…")
    found = context.server(server)
    fitting = context.differing_in_order(found)
    if not wanted.names:
        return [(found, fitting)] if fitting else []
    named = [each for name in dict.fromkeys(wanted.names) for each in _named(found, name, wanted.kind)]
    if others := [each for each in named if each not in fitting]:
        raise UsageError(
            f"{_in_words(server, others[0].key)} did not change in order or own paths alone",
            f"look at it: {context.command('diff', server)}",
        )
    return [(found, tuple(named))]


def _unordered_advice(context: TrustContext, server: ServerMatters) -> str:
    """Return a line of advice about definitions that change at each start; empty if the server has none."""
    found = context.differing_in_order(server)
    if not found:
        return ""
    names = ", ".join(describe_key(each.key) for each in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    how = context.command("approve", server.server, "--unordered")
    return (
        f"{flat(server.server)}: nothing but the order of lists, or paths of its own, changed in {names}{more}: "
        f"{how} has such changes not count from now on"
    )


MAX_NAMED: Final = 8
"""The most definitions that a line of advice names."""


def _named(server: ServerMatters, name: str, kind: str, *, is_offered: bool = False) -> tuple[Matter, ...]:
    known = [each for each in server.matters if each.key.name and kind in ("", each.key.subject.value)]
    known = [each for each in known if each.seen or not is_offered]
    found = tuple(each for each in known if each.key.name == name)
    if not found:
        what = kind or "tool, prompt or resource"
        hint = did_you_mean(name, [each.key.name for each in known if each.seen], f"{kind or 'name'}s")
        raise NotFoundError(
            f"{server.server} offers no {what} {name!r}{hint}", "quarterdeck trust list --all shows them"
        )
    return found


def _leave_out(context: TrustContext, server: str, key: ItemKey) -> str:
    how = flat(context.command("approve", server, key.name or f"--{key.subject.value}"))
    return f"left out: {_in_words(server, key)}, in which the scan found something: look at it, then {how}"


def _project_launches(context: TrustContext) -> Chosen:
    origins = context.settings.origins if context.settings is not None else {}
    chosen: list[tuple[ServerMatters, tuple[Matter, ...]]] = []
    for each in context.servers:
        origin = origins.get(each.server)
        if each.is_configured and origin is not None and origin.standing is Standing.PROJECT:
            launches = tuple(matter for matter in each.waiting if matter.key.subject is Subject.LAUNCH)
            chosen += [(each, launches)] if launches else []
    return chosen


def _next_step(context: TrustContext, server: ServerMatters, matters: Iterable[Matter]) -> list[str]:
    """Return what else holds a server's tools, or what happens to those that it has not listed yet."""
    subjects = {matter.key.subject for matter in matters}
    held = {matter.key.subject for matter in server.waiting} - subjects
    if Subject.INSTRUCTIONS in held and subjects & LISTED:
        again = context.command("approve", server.server, "--instructions")
        return [f"{server.server}: its instructions are held, and all that it lists with them, until {again}"]
    has_tools = any(matter.key.subject is Subject.TOOL and matter.seen for matter in server.matters)
    if has_tools or Subject.LAUNCH not in subjects:
        return []
    fates = {
        TrustMode.STRICT: "held when it first lists them: run quarterdeck tools, then quarterdeck trust diff",
        TrustMode.BASELINE: "approved when it first lists them: quarterdeck tools shows them",
        TrustMode.OPEN: "offered as it lists them: quarterdeck tools shows them",
    }
    trust = context.trust_of(server)
    return [f"{server.server}: its tools are {fates[trust]}"] if trust is not None else []


def _in_words(server: str, key: ItemKey) -> str:
    return f"{flat(server)} {describe_key(key)}"


def _print_all(context: TrustContext, chosen: Chosen, *, whole: bool) -> bool:
    is_whole = True
    for server, matters in chosen:
        is_whole &= print_difference(server, context.read, matters, whole=whole)
    return is_whole


def _still_blocked(context: TrustContext, server: str | None, wanted: _Wanted, chosen: Chosen) -> list[str]:
    """Return what `--all` does not approve as it is blocked, and how to unblock it."""
    if server is None or not wanted.everything:
        return []
    found = context.server(server)
    taken = {matter.key for _, matters in chosen for matter in matters}
    lines = []
    for matter in found.of(State.BLOCKED):
        if matter.key.name and matter.key not in taken:
            how = f"unblock it with {flat(context.command('approve', server, matter.key.name))}"
            what = f"{_in_words(server, matter.key)} is blocked, and stays so"
            lines.append(f"{what}: {how if matter.seen else 'it is gone'}")
    return lines


def _print_decisions(done: str, decisions: Sequence[Decision], *, json: bool, is_quiet: bool = False) -> None:
    if json:
        told = [{"server": each.server, "subject": each.key.subject.value, "name": each.key.name} for each in decisions]
        print_json({done: told})
        return
    for each in decisions:
        print_line(f"{done}: {_in_words(each.server, each.key)}", "green")
    if not decisions and not is_quiet:
        print_line("nothing is held", stderr=True)
