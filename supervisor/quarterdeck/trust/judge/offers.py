"""What a server may offer at this moment, what of it is held, and the messages about it.  Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from quarterdeck.fleet.core.toolset import read_tool
from quarterdeck.ledger.events.events import Enrolled, LedgerEvent, Retired, Subject, key_of_qualified
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault

from .documents import Document
from .server_rows import NativeRow, ServerRow
from .verdicts import INSTRUCTIONS, Verdict, under_instructions


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of a server that clients are shown.

    Attributes:
        tools: what is admitted, in the server's order.
        names: their own names, for a quick look.
        held: why the others are not: they wait for a person, or a person has blocked them.
    """

    tools: tuple[RemoteTool, ...] = ()
    names: frozenset[str] = frozenset()
    held: Mapping[ItemKey, Verdict] = field(default_factory=dict)

    @property
    def held_tools(self) -> int:
        """How many tools wait for a person's approval."""
        return sum(key.subject is Subject.TOOL and each is not Verdict.BLOCKED for key, each in self.held.items())

    @property
    def blocked_tools(self) -> int:
        """How many tools a person has blocked."""
        return sum(key.subject is Subject.TOOL and each is Verdict.BLOCKED for key, each in self.held.items())


NOTHING: Final = Offer()


def offer_of(tools: Iterable[RemoteTool], verdicts: Mapping[ItemKey, Verdict]) -> Offer:
    """The tools that the verdicts admit; a tool without a verdict is held as new."""
    admitted = tuple(tool for tool in tools if verdicts.get(_key_of(tool)) is Verdict.ADMITTED)
    held = {key: verdict for key, verdict in verdicts.items() if verdict is not Verdict.ADMITTED}
    return Offer(admitted, frozenset(tool.ref.name for tool in admitted), MappingProxyType(held))


def without(offer: Offer, blocked: Collection[ItemKey]) -> Offer:
    """The offer once a person has blocked some of it, until the server's list is judged anew."""
    is_mute = INSTRUCTIONS in blocked
    left = tuple(tool for tool in offer.tools if not is_mute and _key_of(tool) not in blocked)
    held = dict(offer.held)
    for tool in offer.tools:
        if (key := _key_of(tool)) in blocked:
            held[key] = Verdict.BLOCKED
        elif is_mute:
            held[key] = Verdict.UNDER_INSTRUCTIONS
    return Offer(left, frozenset(tool.ref.name for tool in left), MappingProxyType(held))


def without_news(
    verdicts: Mapping[ItemKey, Verdict], entry: Entry, documents: Iterable[Document]
) -> Mapping[ItemKey, Verdict]:
    """The verdicts without the approvals in them that could not be recorded."""
    left = dict(verdicts)
    for document in documents:
        approved = entry.items.get(document.key, Item()).approved
        if left[document.key] is Verdict.ADMITTED and approved != document.hash:
            left[document.key] = Verdict.CHANGED if approved else Verdict.NEW
    return under_instructions(left)


def last_verdict(entry: Entry, tool: str) -> Verdict:
    """The verdict on a tool when its server was last asked; a person's decision since then counts."""
    item, instructions = entry.items.get(ItemKey(Subject.TOOL, tool), Item()), entry.items.get(INSTRUCTIONS, Item())
    if item.is_blocked:
        return Verdict.BLOCKED
    if item.seen != item.approved:
        return Verdict.CHANGED if item.approved else Verdict.NEW
    is_mute = bool(instructions.seen) and not instructions.is_admitted
    return Verdict.UNDER_INSTRUCTIONS if is_mute else Verdict.ADMITTED


def last_held(entry: Entry) -> int:
    """How many of its tools waited for a person's approval when a server was last asked."""
    tools = [key.name for key, item in entry.items.items() if key.subject is Subject.TOOL and item.seen]
    return sum(last_verdict(entry, tool) not in (Verdict.ADMITTED, Verdict.BLOCKED) for tool in tools)


def snapshot_hashes(row: ServerRow, entry: Entry) -> dict[str, str]:
    """The documents of the tools that a server may offer before it lists any, by tool.

    What was live last and is still approved; then what was offered last and was approved since.
    """
    instructions = entry.items.get(INSTRUCTIONS, Item())
    if instructions.is_blocked:
        return {}
    tools = {key.name: item for key, item in entry.items.items() if key.subject is Subject.TOOL}
    wanted: dict[str, str] = {}
    for live in entry.live.values():
        item = tools.get(live.tool, Item())
        if item.approved == live.definition and not item.is_blocked:
            wanted[live.tool] = live.definition
    if instructions.is_admitted:
        wanted |= {tool: item.approved for tool, item in tools.items() if item.is_admitted}
    return {tool: hash_ for tool, hash_ in wanted.items() if row.config.tools.admits(tool)}


def snapshot_offer(row: ServerRow, documents: Iterable[tuple[str, str, bytes]]) -> Offer:
    """The offer of the tools in `documents`: their name, hash and body; what a lock does not name is left out."""
    tools: list[RemoteTool] = []
    for name, hash_, body in documents:
        lock = row.rules.lock
        if lock is not None and not lock.admits(Document(ItemKey(Subject.TOOL, name), hash_, body)):
            continue
        _, tool = read_tool(row.id, body)
        if tool is not None and tool.ref.name == name:
            tools.append(tool)
    return Offer(tuple(tools), frozenset(tool.ref.name for tool in tools))


def enrolments(row: ServerRow, entry: Entry, offer: Offer, hashes: Mapping[str, str]) -> list[LedgerEvent]:
    """The events after which the live set of this server is what it offers; `hashes` are by each tool's own name."""
    wanted = {
        str(key_of_qualified(tool.descriptor.name, tool.descriptor.parameters)): tool.ref.name for tool in offer.tools
    }
    events: list[LedgerEvent] = [
        Retired(scope=row.scope, server=row.id, key=key, tool=live.tool)
        for key, live in entry.live.items()
        if key not in wanted
    ]
    for key, name in wanted.items():
        live = entry.live.get(key)
        if live is None or live.definition != hashes[name]:
            events.append(Enrolled(scope=row.scope, server=row.id, key=key, tool=name, definition=hashes[name]))
    return events


def withdrawal(scope: str, server: str, entry: Entry) -> list[LedgerEvent]:
    """The events after which nothing of this server is live."""
    return [Retired(scope=scope, server=server, key=key, tool=live.tool) for key, live in entry.live.items()]


def describe_held(row: ServerRow, held: Mapping[ItemKey, Verdict]) -> str:
    """One line for people: how many tools are held and why, how many are blocked, and what to do."""
    kinds = Counter(verdict for key, verdict in held.items() if key.subject is Subject.TOOL)
    blocked = kinds.pop(Verdict.BLOCKED, 0)
    parts = []
    if total := sum(kinds.values()):
        why = ", ".join(f"{count} {_WHY[verdict]}" for verdict, count in kinds.items())
        parts.append(f"{_tools_are(total)} held ({why})")
    if blocked:
        parts.append(f"{_tools_are(blocked)} blocked")
    return f"{row.id}: {', '.join(parts)}: see {row.command('diff')}"


def tool_held(row: ServerRow, tool: str, verdict: Verdict) -> ProtocolFault:
    """The fault of a call of a tool that is held or blocked: why, and the command that approves it."""
    name = f"{row.id}__{tool}"
    code, target = "tool_held", tool
    match verdict:
        case Verdict.DRIFTED:
            message = f"{name} is held: it differs from deck.lock, or is not in it"
            return _refused(FaultKind.TOOL_ERROR, message, code, "if that is right, rewrite the lock: quarterdeck lock")
        case Verdict.BLOCKED:
            message = f"{name} is blocked: a person decided that it must not be used"
            remedy = f"to unblock it: {row.command('approve', tool)}"
            return _refused(FaultKind.TOOL_ERROR, message, "tool_blocked", remedy)
        case Verdict.UNDER_INSTRUCTIONS:
            target = "--instructions"
    message = f"{name} is held until a person approves it: {_REASONS[verdict]}"
    return _refused(FaultKind.TOOL_ERROR, message, code, _look_and_approve(row, target))


def launch_held(row: ServerRow, verdict: Verdict, loosened: Sequence[str] = ()) -> ProtocolFault:
    """Why a server is not started: its launch is held, or blocked."""
    if verdict is Verdict.BLOCKED:
        message = f"{row.id} is blocked: a person decided that it must not be started"
        remedy = f"to unblock it: {row.command('approve', '--all')}"
        return _refused(FaultKind.SPAWN_FAILED, message, "launch_blocked", remedy)
    reason = _launch_reason(verdict, row.rules.exposed, loosened)
    message = f"{row.id} is not started until a person approves how: {reason}"
    return _refused(FaultKind.SPAWN_FAILED, message, "launch_held", _look_and_approve(row, "--all"))


def _refused(kind: FaultKind, message: str, code: str, remedy: str) -> ProtocolFault:
    return ProtocolFault(kind, message, code=code, delivery=Delivery.NOT_SENT, remedy=remedy)


def _look_and_approve(row: ServerRow | NativeRow, what: str) -> str:
    return f"look at it with `{row.command('diff')}`, approve it with `{row.command('approve', what)}`"


def _tools_are(count: int) -> str:
    return "1 tool is" if count == 1 else f"{count} tools are"


def native_held(row: NativeRow, verdict: Verdict, loosened: Sequence[str]) -> str:
    """Why the key `native` is not used as it is written."""
    return (
        "the key 'native' is not used in its new form: the form approved last stays, if there is one: "
        f"{_launch_reason(verdict, row.exposed, loosened)}; {_look_and_approve(row, '--all')}"
    )


def _launch_reason(verdict: Verdict, exposed: str, loosened: Sequence[str]) -> str:
    if verdict is Verdict.EXPOSED:
        return (
            f"it is new or changed, and someone else could have written it: {exposed} lies where a program in a "
            "sandbox, a native tool or another user may write, or could once"
        )
    if verdict is Verdict.LOOSER:
        return f"it asks for more than before ({', '.join(loosened)}), and was changed while quarterdeck runs"
    return _LAUNCH_REASONS.get(verdict, "it was blocked")


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


def _key_of(tool: RemoteTool) -> ItemKey:
    return ItemKey(Subject.TOOL, tool.ref.name)


MAX_SERVERS = 8
"""Named one by one: the text goes into a model's context."""


def notice(held: Mapping[str, int], launches: Sequence[str], starting: Sequence[str] = ()) -> str:
    """How many tools are held, of which servers, which servers are not started, and which are; empty when all is well.

    `held` counts by server, `launches` are the servers whose launch is held, the tools of those `starting` are not
    known yet.
    """
    held = {server: count for server, count in held.items() if count}
    parts = []
    if total := sum(held.values()):
        listed = _listed([f"{server}: {count}" for server, count in held.items()])
        what, them = ("tool is", "it") if total == 1 else ("tools are", "them")
        parts.append(f"{total} {what} held until a person approves {them} ({listed})")
    if launches:
        count = len(launches)
        parts.append(
            f"{count} {'server is' if count == 1 else 'servers are'} not started until a person approves how "
            f"({_listed(launches)})"
        )
    told = [f"{'; '.join(parts)}. The user can look with `quarterdeck trust list`."] if parts else []
    if starting:
        whose = "its tools are" if len(starting) == 1 else "their tools are"
        told.append(f"Still starting: {_listed(starting)}; {whose} announced when they can be called.")
    return " ".join(told)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_SERVERS])
    return f"{shown} and {len(names) - MAX_SERVERS} more" if len(names) > MAX_SERVERS else shown
