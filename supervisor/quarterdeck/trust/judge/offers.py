"""What a server may offer at this moment, what of it is held, and the messages about it.  Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from quarterdeck.fleet.core.offerset import read_offer
from quarterdeck.fleet.core.toolset import read_tool
from quarterdeck.ledger.events.events import LISTED, Enrolled, LedgerEvent, Retired, Subject, key_of_qualified
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.offers import Listing, Offered

from .documents import SUBJECTS, Document, ServerLists, capabilities_document, key_of, value_of
from .server_rows import NativeRow, ServerRow
from .verdicts import CAPABILITIES, INSTRUCTIONS, Verdict, under_instructions


@dataclass(frozen=True, slots=True)
class Offer:
    """What of a server clients are shown.

    Attributes:
        tools: what is admitted, in the server's order.
        names: their own names, for a quick look.
        held: why the others are not: they wait for a person, or a person has blocked them.
        offers: what else is admitted, by list, in the server's order.
        keys: the same as trust knows it.
        has: the names of the capabilities and extensions that are approved, and that the server still has.
        instructions: what the server tells models of itself, where that is approved.
    """

    tools: tuple[RemoteTool, ...] = ()
    names: frozenset[str] = frozenset()
    held: Mapping[ItemKey, Verdict] = field(default_factory=dict)
    offers: Mapping[Listing, tuple[Offered, ...]] = field(default_factory=dict)
    keys: frozenset[ItemKey] = frozenset()
    has: frozenset[str] = frozenset()
    instructions: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether clients are shown nothing."""
        return not self.tools and not self.keys

    @property
    def waiting(self) -> Counter[Subject]:
        """How many of what it lists wait for a person's approval, by what they are."""
        found = (key.subject for key, each in self.held.items() if each is not Verdict.BLOCKED)
        return Counter(subject for subject in found if subject in LISTED)

    @property
    def blocked(self) -> Counter[Subject]:
        """How many of them a person has blocked, by what they are."""
        found = (key.subject for key, each in self.held.items() if each is Verdict.BLOCKED)
        return Counter(subject for subject in found if subject in LISTED)


NOTHING: Final = Offer()


def offer_of(
    lists: ServerLists, verdicts: Mapping[ItemKey, Verdict], *, said: object = None, before: Offer = NOTHING
) -> Offer:
    """What the verdicts admit of these lists; what has no verdict is held as new.

    Args:
        lists: what the server has listed.
        verdicts: on each thing of them.
        said: the capabilities that were approved last, as a JSON value.
        before: the offer until now: a list that is the same stays the same tuple.
    """
    tools = tuple(tool for tool in lists.tools if verdicts.get(_key_of(tool)) is Verdict.ADMITTED)
    offers = {
        listing: _kept(tuple(each for each in found if verdicts.get(key_of(each)) is Verdict.ADMITTED), found, before)
        for listing, found in lists.offers.items()
    }
    held = {key: verdict for key, verdict in verdicts.items() if verdict is not Verdict.ADMITTED}
    now = has_of(value_of(capabilities_document(lists.capabilities).body))
    match verdicts.get(CAPABILITIES):
        case Verdict.ADMITTED:
            has = now
        case Verdict.CHANGED:
            has = now & has_of(said)
        case _:
            has = frozenset()
    instructions = lists.instructions if verdicts.get(INSTRUCTIONS) is Verdict.ADMITTED else ""
    return _offer(tools, held, offers, has, instructions)


def has_of(capabilities: object) -> frozenset[str]:
    """The names of capabilities, those of extensions among them."""
    if not isinstance(capabilities, dict):
        return frozenset()
    extensions = capabilities.get("extensions")
    return frozenset(capabilities) | frozenset(extensions if isinstance(extensions, dict) else ())


def without(offer: Offer, keys: Collection[ItemKey]) -> Offer:
    """The offer once a person has blocked these things, until the server's list is judged anew."""
    blocked = frozenset(keys)
    is_mute = INSTRUCTIONS in blocked
    tools = tuple(tool for tool in offer.tools if not is_mute and _key_of(tool) not in blocked)
    offers = {
        listing: found if not is_mute and blocked.isdisjoint(map(key_of, found)) else _left(found, blocked, is_mute)
        for listing, found in offer.offers.items()
    }
    held = dict(offer.held)
    for key in (*map(_key_of, offer.tools), *offer.keys):
        if key in blocked:
            held[key] = Verdict.BLOCKED
        elif is_mute:
            held[key] = Verdict.UNDER_INSTRUCTIONS
    has = frozenset() if is_mute or CAPABILITIES in blocked else offer.has
    return _offer(tools, held, offers, has, "" if is_mute else offer.instructions)


def _offer(
    tools: tuple[RemoteTool, ...],
    held: Mapping[ItemKey, Verdict],
    offers: Mapping[Listing, tuple[Offered, ...]],
    has: frozenset[str],
    instructions: str,
) -> Offer:
    keys = frozenset(key_of(each) for found in offers.values() for each in found)
    names = frozenset(tool.ref.name for tool in tools)
    return Offer(tools, names, MappingProxyType(dict(held)), MappingProxyType(dict(offers)), keys, has, instructions)


def _kept(admitted: tuple[Offered, ...], listed: tuple[Offered, ...], before: Offer) -> tuple[Offered, ...]:
    """What is admitted of a list, as the tuple that it was before or as it is listed, where that is the same."""
    if len(admitted) == len(listed):
        admitted = listed
    earlier = before.offers.get(listed[0].listing, ()) if listed else ()
    return earlier if earlier == admitted else admitted


def _left(found: tuple[Offered, ...], blocked: Collection[ItemKey], is_mute: bool) -> tuple[Offered, ...]:
    return () if is_mute else tuple(each for each in found if key_of(each) not in blocked)


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


def last_verdict(entry: Entry, key: ItemKey) -> Verdict:
    """The verdict on a thing when its server was last asked; a person's decision since then counts."""
    item, instructions = entry.items.get(key, Item()), entry.items.get(INSTRUCTIONS, Item())
    if item.is_blocked:
        return Verdict.BLOCKED
    if item.seen != item.approved:
        return Verdict.CHANGED if item.approved else Verdict.NEW
    is_mute = bool(instructions.seen) and not instructions.is_admitted
    return Verdict.UNDER_INSTRUCTIONS if is_mute else Verdict.ADMITTED


def last_held(entry: Entry) -> Counter[Subject]:
    """How many of what it lists waited for a person's approval when a server was last asked, by what they are."""
    listed = (key for key, item in entry.items.items() if key.subject in LISTED and item.seen)
    return Counter(key.subject for key in listed if last_verdict(entry, key) not in (Verdict.ADMITTED, Verdict.BLOCKED))


def snapshot_hashes(row: ServerRow, entry: Entry) -> dict[ItemKey, str]:
    """The documents of what a server may offer before it lists anything, of its capabilities and its instructions.

    Tools: what was live last and is still approved; then, as all else, what was offered last and was approved since.
    """
    instructions = entry.items.get(INSTRUCTIONS, Item())
    if instructions.is_blocked:
        return {}
    wanted: dict[ItemKey, str] = {}
    for live in entry.live.values():
        item = entry.items.get(key := ItemKey(Subject.TOOL, live.tool), Item())
        if item.approved == live.definition and not item.is_blocked:
            wanted[key] = live.definition
    if instructions.is_admitted:
        listed = ((key, item) for key, item in entry.items.items() if key.subject in LISTED or key == CAPABILITIES)
        wanted |= {key: item.approved for key, item in listed if item.is_admitted}
        wanted[INSTRUCTIONS] = instructions.approved
    return {
        key: hash_
        for key, hash_ in wanted.items()
        if key.subject is not Subject.TOOL or row.config.tools.admits(key.name)
    }


def snapshot_offer(row: ServerRow, documents: Iterable[Document]) -> Offer:
    """The offer of what these documents hold; what a lock does not name is left out."""
    tools: list[RemoteTool] = []
    offers: dict[Listing, list[Offered]] = {}
    has: frozenset[str] = frozenset()
    instructions: object = ""
    lock = row.rules.lock
    for document in documents:
        if lock is not None and not lock.admits(document):
            continue
        subject, name = document.key
        if subject is Subject.TOOL:
            _, tool = read_tool(row.id, document.body)
            tools += [tool] if tool is not None and tool.ref.name == name else []
        elif (listing := _LISTINGS.get(subject)) is not None:
            _, offered = read_offer(row.id, listing, document.body)
            if offered is not None and offered.key == name:
                offers.setdefault(listing, []).append(offered)
        elif subject is Subject.CAPABILITIES:
            has = has_of(value_of(document.body))
        elif subject is Subject.INSTRUCTIONS:
            instructions = value_of(document.body)
    said = instructions if isinstance(instructions, str) else ""
    return _offer(tuple(tools), {}, {listing: tuple(found) for listing, found in offers.items()}, has, said)


_LISTINGS: Final = {subject: listing for listing, subject in SUBJECTS.items() if listing is not Listing.TOOLS}


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


HELD_CODES: Final = {
    Subject.TOOL: ("tool_held", "tool_blocked"),
    Subject.PROMPT: ("prompt_held", "prompt_blocked"),
    Subject.RESOURCE: ("resource_held", "resource_blocked"),
    Subject.TEMPLATE: ("resource_held", "resource_blocked"),
}
"""The codes of a fault of what is held, and of what is blocked."""


def capability_held(row: ServerRow, capability: str) -> ProtocolFault:
    """The fault of a request that needs a capability which the server has not, or which nobody approved."""
    message = f"{row.id} has no {capability!r} that is approved"
    return _refused(FaultKind.TOOL_ERROR, message, "capability_held", _look_and_approve(row, "--capabilities"))


MAX_NAME_CHARS: Final = 200
"""Of a URI that a client made up, in a message."""


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


def things_are(counts: Mapping[Subject, int]) -> str:
    """`2 tools and 1 prompt are`, in the order of `Subject`."""
    parts = [f"{counts[each]} {each}{'s' if counts[each] > 1 else ''}" for each in Subject if counts.get(each)]
    verb = "is" if sum(counts.values()) == 1 else "are"
    return f"{' and '.join(part for part in (', '.join(parts[:-1]), parts[-1]) if part)} {verb}"


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


def notice(held: Mapping[str, Mapping[Subject, int]], launches: Sequence[str], starting: Sequence[str] = ()) -> str:
    """What is held, of which servers, which servers are not started, and which are; empty when all is well.

    `held` counts by server, `launches` are the servers whose launch is held, the tools of those `starting` are not
    known yet.
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
    if starting:
        whose = "its tools are" if len(starting) == 1 else "their tools are"
        told.append(f"Still starting: {_listed(starting)}; {whose} announced when they can be called.")
    return " ".join(told)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_SERVERS])
    return f"{shown} and {len(names) - MAX_SERVERS} more" if len(names) > MAX_SERVERS else shown
