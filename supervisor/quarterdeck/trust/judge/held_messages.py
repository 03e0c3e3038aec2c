"""Tell people and clients what is held or blocked, why, and which command decides it.  Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from quarterdeck.common.words import flat
from quarterdeck.ledger.events.events import LISTED, Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault

from .server_rows import NativeRow, ServerRow
from .verdicts import Verdict

MAX_NAME_CHARS: Final = 200
"""Maximum length of a client's URI in a message."""

MAX_SERVERS: Final = 8
"""Servers named one by one: the text goes into a model's context."""

MAX_FIX_CHARS: Final = 400
"""Maximum length of one server's fix, which names its file."""

HELD_CODES: Final = {
    Subject.TOOL: ("tool_held", "tool_blocked"),
    Subject.PROMPT: ("prompt_held", "prompt_blocked"),
    Subject.RESOURCE: ("resource_held", "resource_blocked"),
    Subject.TEMPLATE: ("resource_held", "resource_blocked"),
}
"""The codes of a fault of what is held, and of what is blocked."""

_WHY: Final = {
    Verdict.NEW: "new",
    Verdict.CHANGED: "changed",
    Verdict.UNDER_INSTRUCTIONS: "under changed instructions",
    Verdict.DRIFTED: "not in deck.lock",
}

_REASONS: Final = {
    Verdict.NEW: "it was never approved",
    Verdict.CHANGED: "its definition is not the one that was approved",
    Verdict.UNDER_INSTRUCTIONS: "its server's instructions are not the ones that were approved",
}

_LAUNCH_REASONS: Final = {
    Verdict.NEW: "its command line was never approved",
    Verdict.CHANGED: "its command line, environment names, URL or policy are not the ones that were approved",
}


def describe_held(row: ServerRow, held: Mapping[ItemKey, Verdict]) -> str:
    """One line for people: how much of what is listed is held and why, how much is blocked, and what to do."""
    listed = [(key.subject, verdict) for key, verdict in held.items() if key.subject in LISTED]
    waiting = [each for each in listed if each[1] is not Verdict.BLOCKED]
    blocked = Counter(subject for subject, verdict in listed if verdict is Verdict.BLOCKED)
    parts = []
    if waiting:
        why = ", ".join(f"{count} {_WHY[verdict]}" for verdict, count in Counter(each for _, each in waiting).items())
        parts.append(f"{things_are(Counter(subject for subject, _ in waiting))} held ({why})")
    if blocked:
        parts.append(f"{things_are(blocked)} blocked")
    return f"{row.id}: {', '.join(parts)}: see {row.command('diff')}"


def item_held(row: ServerRow, key: ItemKey, verdict: Verdict) -> ProtocolFault:
    """The fault of a request for something that is held or blocked: why, and the command that approves it."""
    subject, own = key
    name = f"{row.id}__{own}" if subject is Subject.TOOL else f"the {subject} {own[:MAX_NAME_CHARS]!r} of {row.id}"
    (code, blocked), target = HELD_CODES[subject], own
    match verdict:
        case Verdict.DRIFTED:
            message = f"{name} is held: it differs from deck.lock, or is not in it"
            return _refused(FaultKind.TOOL_ERROR, message, code, "if that is right, rewrite the lock: quarterdeck lock")
        case Verdict.BLOCKED:
            message = f"{name} is blocked: a person decided that it must not be used"
            remedy = f"to unblock it: {row.command('approve', own)}"
            return _refused(FaultKind.TOOL_ERROR, message, blocked, remedy)
        case Verdict.UNDER_INSTRUCTIONS:
            target = "--instructions"
    message = f"{name} is held until a person approves it: {_REASONS[verdict]}"
    return _refused(FaultKind.TOOL_ERROR, message, code, _look_and_approve(row, target))


def capability_held(row: ServerRow, capability: str) -> ProtocolFault:
    """The fault of a request that needs a capability which the server has not, or which nobody approved."""
    message = f"{row.id} has no {capability!r} that is approved"
    return _refused(FaultKind.TOOL_ERROR, message, "capability_held", _look_and_approve(row, "--capabilities"))


def launch_held(row: ServerRow, verdict: Verdict, loosened: Sequence[str] = ()) -> ProtocolFault:
    """Why a server is not started: its launch is held, or blocked."""
    if verdict is Verdict.BLOCKED:
        message = f"{row.id} is blocked: a person decided that it must not be started"
        remedy = f"to unblock it: {row.command('approve', '--all')}"
        return _refused(FaultKind.SPAWN_FAILED, message, "launch_blocked", remedy)
    reason = _launch_reason(verdict, row.rules.exposed, loosened)
    message = f"{row.id} is not started until a person approves how: {reason}"
    return _refused(FaultKind.SPAWN_FAILED, message, "launch_held", _look_and_approve(row, "--all"))


def native_held(row: NativeRow, verdict: Verdict, loosened: Sequence[str]) -> str:
    """Why the key `native` is not used as it is written."""
    return (
        "the key 'native' is not used in its new form: the form approved last stays, if there is one: "
        f"{_launch_reason(verdict, row.exposed, loosened)}; {_look_and_approve(row, '--all')}"
    )


def things_are(counts: Mapping[Subject, int]) -> str:
    """`2 tools and 1 prompt are`, in the order of `Subject`."""
    parts = [f"{counts[each]} {each}{'s' if counts[each] > 1 else ''}" for each in Subject if counts.get(each)]
    verb = "is" if sum(counts.values()) == 1 else "are"
    return f"{' and '.join(part for part in (', '.join(parts[:-1]), parts[-1]) if part)} {verb}"


def notice(
    held: Mapping[str, Mapping[Subject, int]],
    launches: Sequence[str],
    starting: Sequence[str] = (),
    logged_out: Sequence[str] = (),
    failed: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Tell which tools and servers a client cannot use, and why, without any server's own text; empty if it can use
    all.

    `held` has counts by server, `failed` the fix of each other failed server as `ps` shows it; tools of `starting`
    servers are not known yet.
    """
    totals = {server: sum(counts.values()) for server, counts in held.items() if any(counts.values())}
    parts = []
    if total := sum(totals.values()):
        listed = _listed([f"{server}: {count}" for server, count in totals.items()])
        counts = Counter[Subject]()
        for each in held.values():
            counts.update(each)
        parts.append(f"{things_are(counts)} held until a person approves {'it' if total == 1 else 'them'} ({listed})")
    if launches:
        count = len(launches)
        parts.append(
            f"{count} {'server is' if count == 1 else 'servers are'} not started until a person approves how "
            f"({_listed(launches)})"
        )
    told = [f"{'; '.join(parts)}. The user can look with `quarterdeck trust list`."] if parts else []
    if logged_out:
        want = "wants" if len(logged_out) == 1 else "want"
        told.append(f"{_listed(logged_out)} {want} a login: the user can make it with `quarterdeck login SERVER`.")
    if failed:
        fixes = [f"{flat(server)}: {flat(fix)[:MAX_FIX_CHARS]}" for server, fix in failed.items()][:MAX_SERVERS]
        more = f"; quarterdeck ps shows {len(failed) - MAX_SERVERS} more" if len(failed) > MAX_SERVERS else ""
        told.append(f"Not available, with what the user can do: {'; '.join(fixes)}{more}.")
    if starting:
        whose = "its tools are" if len(starting) == 1 else "their tools are"
        told.append(f"Still starting: {_listed(starting)}; {whose} announced when they can be called.")
    return " ".join(told)


def _refused(kind: FaultKind, message: str, code: str, remedy: str) -> ProtocolFault:
    return ProtocolFault(kind, message, code=code, delivery=Delivery.NOT_SENT, remedy=remedy)


def _look_and_approve(row: ServerRow | NativeRow, what: str) -> str:
    return f"look at it with `{row.command('diff')}`, approve it with `{row.command('approve', what)}`"


def _launch_reason(verdict: Verdict, exposed: str, loosened: Sequence[str]) -> str:
    if verdict is Verdict.EXPOSED:
        return (
            f"it is new or changed, and someone else could have written it: {exposed} lies where a program in a "
            "sandbox, a native tool or another user may write, or could once"
        )
    if verdict is Verdict.LOOSER:
        return f"it asks for more than before ({', '.join(loosened)}), and was changed while quarterdeck runs"
    return _LAUNCH_REASONS.get(verdict, "it was blocked")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_SERVERS])
    return f"{shown} and {len(names) - MAX_SERVERS} more" if len(names) > MAX_SERVERS else shown
