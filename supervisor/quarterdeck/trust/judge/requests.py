"""Judge requests for what servers have beside plain calls, by what they name.  Pure.

What is read at a URI is not hashed, and a URI need not be listed: servers hand out links, and write templates.  So one
that no list has may be read, unless only a template that is held fits it.
"""

from typing import Final

import msgspec

from quarterdeck.common.patterns import escaped, may_fit
from quarterdeck.common.uri_routes import as_glob, fits
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.offers import Listing, RawRequest

from .held_messages import MAX_NAME_CHARS, capability_held, item_held
from .offers import Offer
from .server_rows import ServerRow
from .verdicts import INSTRUCTIONS, Verdict

TASKS: Final = ("tasks", "io.modelcontextprotocol/tasks")
"""What a server that runs tasks calls it, in the older era and as an extension."""


class Wish(msgspec.Struct, frozen=True):
    """A request's subject: `key`, None for nothing listed; one of the capabilities `needs`, if any, is required."""

    key: ItemKey | None
    needs: tuple[str, ...] = ()


NOTHING: Final = Wish(None)
"""A request for nothing listed that needs nothing."""


def to_call(tool: str) -> Wish:
    """A call of a tool, by its server's own name."""
    return Wish(ItemKey(Subject.TOOL, tool))


def wish_of(request: RawRequest) -> Wish | ProtocolFault:
    """What this request is for, or why nobody can say."""
    try:
        params = _params.decode(request.params or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = f"the params of {request.method[:MAX_NAME_CHARS]} cannot be read: {error}"
        return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "bad_arguments")
    match request.method:
        case "tools/call":
            return to_call(params.name)
        case "prompts/get":
            return Wish(ItemKey(Subject.PROMPT, params.name))
        case "resources/read" | "resources/subscribe":
            return Wish(ItemKey(Subject.RESOURCE, params.uri))
        case "completion/complete" if params.ref.type == "ref/prompt":
            return Wish(ItemKey(Subject.PROMPT, params.ref.name), ("completions",))
        case "completion/complete":
            return Wish(ItemKey(Subject.TEMPLATE, params.ref.uri), ("completions",))
        case method if method.startswith("tasks/"):
            return Wish(None, TASKS)
    why = f"{request.method[:MAX_NAME_CHARS]} is nothing that is passed on"
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "not_offered")


def refused(wish: Wish, row: ServerRow, offer: Offer, entry: Entry) -> ProtocolFault | None:
    """Why a request is not made by what is trusted; None for one that may be."""
    if wish.key is None and offer.held.get(INSTRUCTIONS) is not None:
        return capability_held(row, wish.needs[0])
    if wish.needs and offer.has.isdisjoint(wish.needs):
        return capability_held(row, wish.needs[0])
    if wish.key is None:
        return None
    verdict = verdict_on(wish.key, offer, entry)
    if verdict is None:
        return _unknown(wish.key, row, offer)
    return item_held(row, wish.key, verdict) if verdict is not Verdict.ADMITTED else None


def verdict_on(key: ItemKey, offer: Offer, entry: Entry) -> Verdict | None:
    """Whether what `key` names may be used; None for what is not there."""
    if entry.items.get(key, Item()).is_blocked:
        return Verdict.BLOCKED
    is_there = key.name in offer.names if key.subject is Subject.TOOL else key in offer.keys
    if is_there:
        return Verdict.ADMITTED
    if key.subject in _OTHER:
        items = entry.items.items()
        blocked = (each for each, item in items if item.is_blocked and each.subject is Subject.RESOURCE)
        return Verdict.BLOCKED if any(_covers(each, key.name) for each in blocked) else _verdict_on_uri(key, offer)
    return offer.held.get(key)


def _verdict_on_uri(key: ItemKey, offer: Offer) -> Verdict | None:
    admitted = (each.key for each in offer.offers.get(Listing.TEMPLATES, ()))
    if any(fits(template, key.name) for template in admitted):
        return Verdict.ADMITTED
    if (held := offer.held.get(key)) is not None:
        return held
    if (other := ItemKey(_OTHER[key.subject], key.name)) in offer.keys:
        return Verdict.ADMITTED  # completion names a template or a resource by one member
    uris = (each for each in offer.held if each.subject in _OTHER)
    found = next((each for each in (other, *uris) if each in offer.held and _covers(each, key.name)), None)
    if found is not None:
        return offer.held[found]
    if offer.held.get(INSTRUCTIONS) is not None:
        return Verdict.UNDER_INSTRUCTIONS
    return Verdict.ADMITTED if "resources" in offer.has else None


_OTHER: Final = {Subject.RESOURCE: Subject.TEMPLATE, Subject.TEMPLATE: Subject.RESOURCE}


def _covers(key: ItemKey, uri: str) -> bool:
    """Return whether a URI may mean this resource, or one of this template, in any spelling."""
    pattern = escaped(key.name) if key.subject is Subject.RESOURCE else as_glob(key.name)
    return key.name == uri or may_fit(uri, (pattern,))


def _unknown(key: ItemKey, row: ServerRow, offer: Offer) -> ProtocolFault:
    kind = "resource" if key.subject is Subject.TEMPLATE else str(key.subject)
    known = [each.name for each in offer.keys if each.subject is key.subject] if kind == "prompt" else []
    hint = did_you_mean(key.name, known) if known else ""
    why = f"{row.id} offers no {kind} {key.name[:MAX_NAME_CHARS]!r}{hint}"
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, _UNKNOWN[key.subject])


_UNKNOWN: Final = {
    Subject.TOOL: "unknown_tool",
    Subject.PROMPT: "unknown_prompt",
    Subject.RESOURCE: "unknown_resource",
    Subject.TEMPLATE: "unknown_resource",
}


class _Reference(msgspec.Struct):
    type: str = ""
    name: str = ""
    uri: str = ""


class _Params(msgspec.Struct):
    name: str = ""
    uri: str = ""
    ref: _Reference = msgspec.field(default_factory=_Reference)


_params: Final = msgspec.json.Decoder(_Params)
