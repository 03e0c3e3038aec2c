"""Whose a request is, and what it is in that server's own words.  Pure.

What overrides hide is unknown here; what a client may not use is refused, whether there is such a thing or not.  Of a
URI that no server lists the owner is found as `uri_routes` says.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from quarterdeck.common.patterns import may_fit, surely_fits
from quarterdeck.common.uri_readings import judged_uri, read_uri
from quarterdeck.common.uri_routes import as_glob, completed_uri, fits, has_scheme, prefixed, scheme_of, split_prefixed
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.names import QUALIFIER, did_you_mean
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import ANONYMOUS, Client

from .catalogue import CalledTool, Catalogue, ServerOffers
from .overrides.schemas import ArgumentError, with_arguments

MAX_PARAMS_BYTES: Final = 64 * 1024 * 1024
"""Of a request's params; a client's line is no longer."""

MAX_NAMED_CHARS: Final = 200
"""Of a name or URI that a client made up, in a message."""

MAX_URI_CHARS: Final = 8 * 1024 + 64
"""Of a URI that a client asks for: none that a server may list is longer, with its server's name before it."""

Linked = Callable[[str, str], bool]
"""Whether a result of the server of this id has lately linked to this URI."""


class Route(Struct, frozen=True):
    """Where a request goes.

    Attributes:
        server: the id of the server.
        key: the tool, prompt or URI that it names, as clients know it of that server.
        own: the same as the server knows it.
        params: all of them, in the server's own words.
    """

    server: str
    key: str
    own: str
    params: bytes


def resolve_call(catalogue: Catalogue, name: str, client: Client = ANONYMOUS) -> CalledTool | ProtocolFault | None:
    """Where a call of a tool goes, by the name that clients know or its qualified one; None for no server's.

    Whether its client may make it is not asked here, nor whether its server offers it.
    """
    name = catalogue.own(name)
    if catalogue.alone:
        name = f"{catalogue.alone}{QUALIFIER}{name}"
    server, _, tool = name.partition(QUALIFIER)
    offers = catalogue.servers.get(server)
    if offers is None or not tool:
        return None
    if (shown := offers.calls.get(name)) is not None:
        return shown
    own = _own_tool(offers, tool, client)
    if isinstance(own, ProtocolFault):
        return own
    return offers.called(tool, own)


def sent_arguments(tool: CalledTool, arguments: bytes) -> bytes | ProtocolFault:
    """The arguments that the server gets, those among them that the user gives, or why they are none."""
    try:
        return with_arguments(arguments, tool.given) if tool.given else arguments
    except ArgumentError as error:
        return _refused(f"{tool.key}: {error}", "bad_arguments")


def resolve(
    catalogue: Catalogue, client: Client, method: str, params: bytes, linked: Linked = lambda *_: False
) -> Route | ProtocolFault:
    """Where a request goes that is no call of a tool, and about no task.

    Args:
        catalogue: what there is.
        client: who asks.
        method: `prompts/get`, `completion/complete`, or one whose params have a `uri`.
        params: one JSON object, by the names that clients know.
        linked: knows what results have linked to.
    """
    try:
        members = dict(check_object(params or b"{}", max_bytes=MAX_PARAMS_BYTES))
        return _Resolving(catalogue, client, method, params, members, linked).found()
    except (BodyError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return _refused(f"the params of {method} cannot be read: {error}", "bad_arguments")


def public_uri(catalogue: Catalogue, server: str, uri: str) -> str:
    """What clients call a resource of a server."""
    for listing in (Listing.RESOURCES, Listing.TEMPLATES):
        row = catalogue.owners[listing].get(uri)
        if row is not None and row.server != server:
            return prefixed(server, uri)
    return uri


class _Resolving(Struct, frozen=True):
    """One request, read."""

    catalogue: Catalogue
    client: Client
    method: str
    params: bytes
    members: dict[str, Raw]
    linked: Linked

    def found(self) -> Route | ProtocolFault:
        match self.method:
            case "prompts/get":
                named = self._prompt(_text(self.members.get("name")))
                return named if isinstance(named, ProtocolFault) else self._route(*named, "name", named[2])
            case "completion/complete":
                return self._completed()
            case _:
                return self._read(_text(self.members.get("uri")))

    def _route(self, server: str, key: str, own: str, member: str, value: object) -> Route:
        """A route whose params have another value of one member; the very params where they have that already."""
        encoded = msgspec.json.encode(value)
        if bytes(self.members.get(member, b"")) == encoded:
            return Route(server, key, own, self.params)
        return Route(server, key, own, msgspec.json.encode({**self.members, member: Raw(encoded)}))

    # Prompts

    def _prompt(self, name: str) -> tuple[str, str, str] | ProtocolFault:
        """The server of a prompt, and what clients and the server call it."""
        catalogue = self.catalogue
        if (row := catalogue.owners[Listing.PROMPTS].get(name)) is not None:
            server, key = row.server, row.key
        elif catalogue.alone:
            server, key = catalogue.alone, name
        else:
            server, _, key = name.partition(QUALIFIER)
        offers = catalogue.servers.get(server) if key else None
        if offers is None:
            shown = name[:MAX_NAMED_CHARS]
            known = catalogue.lists[Listing.PROMPTS]
            allowed = [each.public for each in known if self.client.allows(each.qualified, each.listing)]
            return _refused(f"there is no prompt {shown!r}{did_you_mean(shown, allowed)}", "unknown_prompt")
        if (refused := self._not_granted(server, key, Listing.PROMPTS)) is not None:
            return refused
        own = offers.overrides.own(key)
        if own is None:
            return _refused(f"{server} offers no prompt {key[:MAX_NAMED_CHARS]!r}", "unknown_prompt")
        return server, key, own

    def _completed(self) -> Route | ProtocolFault:
        reference = msgspec.json.decode(self.members.get("ref", b"{}"), type=dict[str, Raw])
        if is_of_prompt(reference):
            named = self._prompt(_text(reference.get("name")))
            if isinstance(named, ProtocolFault):
                return named
            server, key, own = named
            return self._route(server, key, own, "ref", reference | {"name": _encoded(own)})
        uri = _text(reference.get("uri"))
        found = self._owner(uri)
        if isinstance(found, ProtocolFault):
            return found
        server, key = found
        route = self._route(server, key, key, "ref", reference | {"uri": _encoded(key)})
        offers = self.catalogue.servers[server]
        if self.client.allowance is None and not offers.overrides.hide:
            return route
        completed = completed_uri(route.params)
        return (
            self._not_granted_uri(offers, key)
            or self._not_granted(server, completed, Listing.RESOURCES, is_listed=True)
            or self._hidden(offers, key)
            or self._hidden(offers, completed, is_listed=True)
            or route
        )

    # URIs

    def _read(self, uri: str) -> Route | ProtocolFault:
        found = self._owner(uri)
        if isinstance(found, ProtocolFault):
            return found
        server, key = found
        offers = self.catalogue.servers[server]
        refused = self._not_granted_uri(offers, key) or self._hidden(offers, key)
        return refused or self._route(server, key, key, "uri", key)

    def _owner(self, uri: str) -> tuple[str, str] | ProtocolFault:
        """Who has a resource or template of this public URI, and the URI there."""
        found = self._owner_of_uri(uri)
        return found if found is not None and found[0] in self.catalogue.servers else _unknown_uri(uri)

    def _owner_of_uri(self, uri: str) -> tuple[str, str] | None:
        catalogue = self.catalogue
        if len(uri) > MAX_URI_CHARS:
            return None
        for listing in (Listing.RESOURCES, Listing.TEMPLATES):
            if (row := catalogue.owners[listing].get(uri)) is not None:
                return row.server, row.key
        if (pair := split_prefixed(uri)) is not None:
            return pair
        for server, offers in catalogue.servers.items():
            if self.linked(server, uri) and not self._hides(offers, uri):
                return server, uri
        for row in catalogue.lists[Listing.TEMPLATES]:
            if has_scheme(row.key) and fits(row.key, uri):
                return row.server, uri
        # The one server that has anything of this scheme; without any, the one that has resources at all.
        scheme = scheme_of(uri)
        same = [server for server, schemes in catalogue.schemes.items() if scheme in schemes]
        alone = same or list(catalogue.schemes)
        return (alone[0], uri) if len(alone) == 1 else None

    def _hidden(self, offers: ServerOffers, uri: str, *, is_listed: bool = False) -> ProtocolFault | None:
        if not self._hides(offers, uri, is_listed=is_listed):
            return None
        what = f"{offers.id} is not known to have the resource {uri[:MAX_NAMED_CHARS]!r}"
        return _refused(what, "unknown_resource")

    def _hides(self, offers: ServerOffers, uri: str, *, is_listed: bool = False) -> bool:
        """Return whether a URI may be hidden, or fits a hidden template and no shown one.

        Args:
            offers: of the server.
            uri: the URI as the client spells it.
            is_listed: whether the server spells it so itself, though it is in no list and no link.
        """
        overrides = offers.overrides
        if not overrides.hide or any(each.key == uri for each in offers.offers.get(Listing.RESOURCES, ())):
            return False
        templates = offers.own.get(Listing.TEMPLATES, ())
        listed = (*offers.own.get(Listing.RESOURCES, ()), *templates)
        is_listed = is_listed or any(each.key == uri for each in listed) or self.linked(offers.id, uri)
        judged = judged_uri(uri, is_listed=is_listed)
        if overrides.hides(judged):
            return True
        hidden = [as_glob(each.key) for each in templates if overrides.hides(each.key)]
        shown = [as_glob(each.key) for each in offers.offers.get(Listing.TEMPLATES, ())]
        return may_fit(judged, hidden) and not surely_fits(judged, shown)

    # Grants

    def _not_granted_uri(self, offers: ServerOffers, key: str) -> ProtocolFault | None:
        if self.client.allowance is None:
            return None
        lists = (offers.offers.get(listing, ()) for listing in (Listing.RESOURCES, Listing.TEMPLATES))
        is_listed = any(each.key == key for offered in lists for each in offered) or (
            self.linked(offers.id, key) and not self._hides(offers, key)
        )
        return self._not_granted(offers.id, key, Listing.RESOURCES, is_listed=is_listed)

    def _not_granted(self, server: str, key: str, listing: Listing, *, is_listed: bool = False) -> ProtocolFault | None:
        """Why the client may not ask for this thing of a server; None when it may."""
        if self.client.allowance is None:
            return None
        is_uri = listing is Listing.RESOURCES
        judged = judged_uri(key, is_listed=is_listed) if is_uri else key
        if self.client.allows(f"{server}{QUALIFIER}{judged}", listing):
            return None
        why = self.client.refusal(repr(key[:MAX_NAMED_CHARS]))
        if is_uri and (problem := read_uri(key).problem):
            why = f"{why}, which is not a URI in canonical form: {problem}"
        return _refused(why, "not_granted")


def _own_tool(offers: ServerOffers, tool: str, client: Client) -> str | ProtocolFault:
    """What the server calls a tool, or why there is none; the client hears of no tool that it may not use."""
    own = offers.overrides.own(tool)
    if own is None:
        known = [each.name.partition(QUALIFIER)[2] for each in offers.tools if client.allows(each.name)]
        hint = did_you_mean(tool, known)
        return _refused(f"{offers.id} offers no tool {tool[:MAX_NAMED_CHARS]!r}{hint}", "unknown_tool")
    if (reason := offers.refused.get(own)) is not None:
        return _refused(f"{offers.id} cannot offer {tool!r} as the configuration says: {reason}", "unknown_tool")
    return own


def is_of_prompt(reference: Mapping[str, Raw]) -> bool:
    """Whether the `ref` of a completion is of a prompt, else of a resource: its type alone says so."""
    return _text(reference.get("type")) == "ref/prompt"


def _text(value: Raw | None) -> str:
    return msgspec.json.decode(value, type=str) if value is not None else ""


def _encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _unknown_uri(uri: str) -> ProtocolFault:
    return _refused(f"no server is known to have the resource {uri[:MAX_NAMED_CHARS]!r}", "unknown_resource")


def _refused(message: str, code: str) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, code)
