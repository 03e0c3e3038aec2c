"""What a server may offer at this moment, and what of it is held.  Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from quarterdeck.fleet.core.offerset import read_offer
from quarterdeck.fleet.core.toolset import read_tool
from quarterdeck.ledger.events.events import LISTED, Enrolled, LedgerEvent, Retired, Subject, key_of_qualified
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport, support_of
from quarterdeck_protocol.offers import Listing, Offered

from .documents import SUBJECTS, Document, ServerLists, capabilities_document, key_of, value_of
from .server_rows import ServerRow
from .verdicts import CAPABILITIES, INSTRUCTIONS, Verdict, under_instructions


class Offer(msgspec.Struct, frozen=True):
    """What clients are shown of a server.

    Attributes:
        tools, offers: admitted, in the server's order; `names` and `keys` are for quick looks.
        held: why the others are not admitted: they wait for a person, or one has blocked them.
        has: names of approved capabilities and extensions that the server still has; `tasks` likewise.
        instructions: the server's own, if approved.
    """

    tools: tuple[RemoteTool, ...] = ()
    names: frozenset[str] = frozenset()
    held: Mapping[ItemKey, Verdict] = msgspec.field(default_factory=dict)
    offers: Mapping[Listing, tuple[Offered, ...]] = msgspec.field(default_factory=dict)
    keys: frozenset[ItemKey] = frozenset()
    has: frozenset[str] = frozenset()
    tasks: TaskSupport = NO_TASKS
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
    """Return what the verdicts admit; anything without a verdict is held as new. An unchanged list stays the same
    tuple.

    `said` are the capabilities approved last, as a JSON value.
    """
    tools = tuple(tool for tool in lists.tools if verdicts.get(_key_of(tool)) is Verdict.ADMITTED)
    offers = {
        listing: _kept(tuple(each for each in found if verdicts.get(key_of(each)) is Verdict.ADMITTED), found, before)
        for listing, found in lists.offers.items()
    }
    held = {key: verdict for key, verdict in verdicts.items() if verdict is not Verdict.ADMITTED}
    now = value_of(capabilities_document(lists.capabilities).body)
    match verdicts.get(CAPABILITIES):
        case Verdict.ADMITTED:
            has, tasks = has_of(now), support_of(now)
        case Verdict.CHANGED:
            has, tasks = has_of(now) & has_of(said), support_of(now) & support_of(said)
        case _:
            has, tasks = frozenset(), NO_TASKS
    instructions = lists.instructions if verdicts.get(INSTRUCTIONS) is Verdict.ADMITTED else ""
    return _offer(tools, held, offers, has, tasks, instructions)


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
    has, tasks = (frozenset(), NO_TASKS) if is_mute or CAPABILITIES in blocked else (offer.has, offer.tasks)
    return _offer(tools, held, offers, has, tasks, "" if is_mute else offer.instructions)


def _offer(
    tools: tuple[RemoteTool, ...],
    held: Mapping[ItemKey, Verdict],
    offers: Mapping[Listing, tuple[Offered, ...]],
    has: frozenset[str],
    tasks: TaskSupport,
    instructions: str,
) -> Offer:
    keys = frozenset(key_of(each) for found in offers.values() for each in found)
    names = frozenset(tool.ref.name for tool in tools)
    return Offer(
        tools, names, MappingProxyType(dict(held)), MappingProxyType(dict(offers)), keys, has, tasks, instructions
    )


def _kept(admitted: tuple[Offered, ...], listed: tuple[Offered, ...], before: Offer) -> tuple[Offered, ...]:
    """Return the admitted items as an earlier tuple, or as the listed one, if equal."""
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
    """Return which documents a server may offer before it lists anything, with its capabilities and instructions.

    Tools: those live last and still approved; then everything offered last and approved since.
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
    said: object = None
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
            said = value_of(document.body)
        elif subject is Subject.INSTRUCTIONS:
            instructions = value_of(document.body)
    told = instructions if isinstance(instructions, str) else ""
    admitted = {listing: tuple(found) for listing, found in offers.items()}
    return _offer(tuple(tools), {}, admitted, has_of(said), support_of(said), told)


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


def _key_of(tool: RemoteTool) -> ItemKey:
    return ItemKey(Subject.TOOL, tool.ref.name)
