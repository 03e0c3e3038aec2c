"""How prompts, resources and templates are shown to clients: the server's whole definition under its public name.

No I/O.  A client's program refuses a whole list for one item that it cannot read, in any revision; so an item is
checked here by what every revision takes, and left out otherwise.
"""

import logging
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import Client

_log = logging.getLogger("quarterdeck.host")

MEMBERS: Final = {Listing.PROMPTS: "name", Listing.RESOURCES: "uri", Listing.TEMPLATES: "uriTemplate"}
"""The member of a definition that holds what clients know it by."""


class OfferCatalog:
    """The published forms of offers; each list is made once while it is the same."""

    def __init__(self) -> None:
        self._known: dict[Listing, tuple[Sequence[Offered], list[tuple[Offered, bytes]]]] = {}

    def publish(self, listing: Listing, offered: Sequence[Offered], client: Client) -> list[bytes]:
        """The items of a list as JSON, as far as its client may use them."""
        known, forms = self._known.get(listing, (None, []))
        if known is not offered:
            forms = [(each, form) for each in offered if (form := _form_of(each))]
            self._known[listing] = offered, forms
        if client.allowance is None:
            return [form for _, form in forms]
        return [form for each, form in forms if client.allows(each.qualified, listing)]


def _form_of(offered: Offered) -> bytes:
    """A definition under its public name; empty where it cannot be shown."""
    member = MEMBERS[offered.listing]
    try:
        if b"\n" in offered.definition or b"\r" in offered.definition:
            raise BodyError("it holds a line break between its values")
        check_depth(offered.definition)
        _shapes[offered.listing].decode(offered.definition)
        if offered.public == offered.key:
            return offered.definition
        members = _members.decode(offered.definition)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BodyError) as error:
        _log.warning("%s of %s is not shown: %s", offered.key[:80], offered.server, error)
        return b""
    members[member] = Raw(msgspec.json.encode(offered.public))
    return msgspec.json.encode(members)


class _Icon(msgspec.Struct, gc=False):
    src: str
    mimeType: str | None = None  # noqa: N815 - the wire's names
    sizes: list[str] | None = None


class _Common(msgspec.Struct, gc=False):
    name: str
    title: str | None = None
    description: str | None = None
    icons: list[_Icon] | None = None
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class _Argument(msgspec.Struct, gc=False):
    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class _Prompt(_Common, gc=False):
    arguments: list[_Argument] | None = None


class _Annotations(msgspec.Struct, gc=False):
    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    lastModified: str | None = None  # noqa: N815


class _Resource(_Common, kw_only=True, gc=False):
    uri: str
    mimeType: str | None = None  # noqa: N815
    size: int | None = None
    annotations: _Annotations | None = None


class _Template(_Common, kw_only=True, gc=False):
    uriTemplate: str  # noqa: N815
    mimeType: str | None = None  # noqa: N815
    annotations: _Annotations | None = None


_members: Final = msgspec.json.Decoder(dict[str, Raw])
_shapes: Final[dict[Listing, msgspec.json.Decoder[_Prompt | _Resource | _Template]]] = {
    Listing.PROMPTS: msgspec.json.Decoder(_Prompt),
    Listing.RESOURCES: msgspec.json.Decoder(_Resource),
    Listing.TEMPLATES: msgspec.json.Decoder(_Template),
}
