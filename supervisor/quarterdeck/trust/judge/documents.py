"""What can be approved of a server, each with the hash that an approval names: its launch, its words, what it lists.

A document is kept as it came, but for what a resource says of its contents, and capabilities of how they are told; its
hash is that of the JSON value in it, whatever the order of its keys.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from pydantic import ValidationError

from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.ledger.events.events import Approved, Enrolled, LedgerEvent, Scanned, Seen, Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.offers import Listing, Offered

from .canonical_forms import canonical_hash


class Document(msgspec.Struct, frozen=True):
    """One form of an approvable thing, and the hash that an approval names; `home` is its server's private home, if
    known.
    """

    key: ItemKey
    hash: str
    body: bytes
    home: str = ""

    @property
    def unordered(self) -> str:
        """The hash of the canonical form."""
        return canonical_hash(self.body, self.home)


def tool_document(tool: RemoteTool) -> Document:
    """A tool: the server's whole tool object, members that nobody knows included."""
    body = tool.descriptor.definition or b"null"
    return Document(ItemKey(Subject.TOOL, tool.ref.name), hash_of(body), body)


def offered_document(offered: Offered) -> Document:
    """A prompt, a resource or a template: the server's whole object, without size and date of what it leads to."""
    body = offered.definition
    if offered.listing in _LEADING and any(name in body for name in _OF_CONTENTS):
        body = _without_contents(body)
    return Document(key_of(offered), hash_of(body), body)


def key_of(offered: Offered) -> ItemKey:
    """What it is to trust."""
    return ItemKey(SUBJECTS[offered.listing], offered.key)


SUBJECTS: Final = {
    Listing.TOOLS: Subject.TOOL,
    Listing.PROMPTS: Subject.PROMPT,
    Listing.RESOURCES: Subject.RESOURCE,
    Listing.TEMPLATES: Subject.TEMPLATE,
}
"""What the items of a list are to trust."""

_LEADING: Final = frozenset({Listing.RESOURCES, Listing.TEMPLATES})

_OF_CONTENTS: Final = (b"size", b"lastModified")


def _without_contents(body: bytes) -> bytes:
    value = value_of(body)
    if not isinstance(value, dict):
        return body
    value.pop("size", None)
    if isinstance(annotations := value.get("annotations"), dict):
        annotations.pop("lastModified", None)
    return msgspec.json.encode(value)


def capabilities_document(body: bytes) -> Document:
    """What a server says that it has, and not how it tells of changes: that differs between eras."""
    value = value_of(body)
    told = value if isinstance(value, dict) else {}
    return _of_value(
        Subject.CAPABILITIES,
        {
            name: {key: each for key, each in has.items() if key not in _TELLING} if isinstance(has, dict) else has
            for name, has in told.items()
        },
    )


_TELLING: Final = frozenset({"listChanged", "subscribe"})


def instructions_document(text: str) -> Document:
    """A server's instructions; an empty text when it has none."""
    return _of_value(Subject.INSTRUCTIONS, sayable(text))


def native_document(settings: NativeSettings) -> Document:
    """What the configuration says of native tools, variables expanded."""
    return _of_value(Subject.LAUNCH, settings.model_dump(mode="json", exclude_defaults=True))


def read_native(body: bytes) -> NativeSettings:
    """The settings of such a document; of one that cannot be read, the default."""
    try:
        return NativeSettings.model_validate(value_of(body))
    except ValidationError:
        return NativeSettings()


def value_of(body: bytes) -> object:
    """The JSON value of a document, None for one that cannot be read."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value


def sayable(text: str) -> str:
    """`text` with what UTF-8 cannot encode escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _of_value(subject: Subject, value: object) -> Document:
    body = msgspec.json.encode(value, order="sorted")
    return Document(ItemKey(subject), hash_of(body), body)


OTHERS: Final = tuple(listing for listing in Listing if listing is not Listing.TOOLS)


class ServerLists(msgspec.Struct, frozen=True):
    """A server's words and lists at one moment; `offers` are its other lists that have come, `is_whole` if all have."""

    tools: tuple[RemoteTool, ...] = ()
    offers: Mapping[Listing, tuple[Offered, ...]] = msgspec.field(default_factory=dict)
    instructions: str = ""
    capabilities: bytes = b"{}"
    is_whole: bool = True

    def is_as(self, other: "ServerLists") -> bool:
        """Whether both are the same moment's: each list is the very same, which is quick to tell."""
        return (
            self.tools is other.tools
            and self.offers.keys() == other.offers.keys()
            and all(offers is other.offers[listing] for listing, offers in self.offers.items())
            and self.is_whole == other.is_whole
            and (self.instructions, self.capabilities) == (other.instructions, other.capabilities)
        )

    @property
    def size_bytes(self) -> int:
        """Of all definitions."""
        tools = sum(len(tool.descriptor.definition or b"") for tool in self.tools)
        return tools + sum(len(each.definition) for offers in self.offers.values() for each in offers)

    @property
    def unknown(self) -> frozenset[Subject]:
        """Of what it has not answered yet."""
        missing = frozenset(SUBJECTS[listing] for listing in OTHERS if listing not in self.offers)
        return missing if self.is_whole else missing | {Subject.CAPABILITIES}


def documents_of(lists: ServerLists, home: str = "") -> tuple[Document, ...]:
    """Return the lists' approvable documents, hashed; capabilities once all that they promise has come."""
    said = (capabilities_document(lists.capabilities),) if lists.is_whole else ()
    offered = (offered_document(each) for offers in lists.offers.values() for each in offers)
    found = (instructions_document(lists.instructions), *said, *map(tool_document, lists.tools), *offered)
    return tuple(msgspec.structs.replace(each, home=home) for each in found) if home else found


def bodies_of(documents: Iterable[Document], events: Sequence[LedgerEvent]) -> dict[str, bytes]:
    """Those of the documents that `events` name, by hash."""
    named = {event.hash for event in events if isinstance(event, Seen | Approved | Scanned)}
    named |= {event.definition for event in events if isinstance(event, Enrolled)}
    return {document.hash: document.body for document in documents if document.hash in named}


def listed_documents(
    instructions: str,
    definitions: Iterable[bytes],
    others: Mapping[Listing, Iterable[bytes]] = MappingProxyType({}),
    capabilities: bytes | None = None,
    home: str = "",
) -> tuple[Document, ...]:
    """Return listed definitions as documents, without nameless ones; `capabilities` is None if none were sent."""
    items = [] if capabilities is None else [capabilities_document(capabilities)]
    for listing, bodies in {Listing.TOOLS: definitions, **others}.items():
        for body in bodies:
            value = value_of(body)
            if isinstance(value, dict) and isinstance(key := value.get(_KEYS.get(listing, "name")), str):
                items.append(offered_document(Offered("", listing, key, body, key)))
    return tuple(msgspec.structs.replace(each, home=home) for each in (instructions_document(instructions), *items))


_KEYS: Final = {Listing.RESOURCES: "uri", Listing.TEMPLATES: "uriTemplate"}
"""What the items of a list are known by; the others by their names."""
