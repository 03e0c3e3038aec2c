"""What can be approved of a server, each with the hash that an approval names: its launch, its instructions, its tools.

A document is kept as it came; its hash is that of the JSON value in it, whatever the order of its keys.  Pure.
"""

from dataclasses import dataclass

import msgspec
from pydantic import ValidationError

from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck_protocol.contract import RemoteTool


@dataclass(frozen=True, slots=True)
class Document:
    """One thing that can be approved, in one form: the form as JSON, and its hash as 64 hex digits."""

    key: ItemKey
    hash: str
    body: bytes


def tool_document(tool: RemoteTool) -> Document:
    """A tool: the server's whole tool object, members that nobody knows included."""
    body = tool.descriptor.definition or b"null"
    return Document(ItemKey(Subject.TOOL, tool.ref.name), hash_of(body), body)


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
