"""The events of the chain: a closed union, each about one server of one configuration file.  Pure.

Documents (a tool's whole definition, a server's instructions, how it is launched) are stored once, outside the chain,
under their hash; events name the hash.  Texts may hold lone surrogates, which servers send and UTF-8 cannot encode:
JSON keeps them as escapes, which the standard library's slower codec writes and reads when msgspec refuses.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NewType, TypeVar

import msgspec

from quarterdeck_protocol.schema.canonical import digest


def hash_of(body: bytes) -> str:
    """Return the hash of a JSON document; if it cannot be parsed, that of its bytes."""
    try:
        body = msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # deeper than any reader goes, or half a character: its very bytes count
    return hashlib.sha256(body).hexdigest()


BridgeKey = NewType("BridgeKey", str)
"""`bk_` and 32 hex digits, or `bk_` and a ULID."""

KEY_PREFIX: Final = "bk_"

KEY_DIGITS: Final = 32
"""128 bits of SHA-256: tools do not collide by chance."""


def key_of_qualified(name: str, parameters: Mapping[str, object] | None) -> BridgeKey:
    """Return `bridge_content_key` for a name that is qualified already."""
    return BridgeKey(KEY_PREFIX + digest({"name": name, "schema": parameters})[:KEY_DIGITS])


class Subject(StrEnum):
    """What can be approved of a server, in the order of display."""

    LAUNCH = "launch"
    """How it is started or reached: command line, environment names, URL, policy."""
    LOGIN = "login"
    """The terms of our login at a remote one: issuer, resource, scopes."""
    PROGRAM = "program"
    """Its program on this machine: the file, and those that its arguments name."""
    CAPABILITIES = "capabilities"
    """The capabilities that it announces: tools, prompts, resources, completion, extensions."""
    INSTRUCTIONS = "instructions"
    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"
    """Of resources, by its `uriTemplate`."""

    __hash__ = str.__hash__
    """An enumeration's own is written in Python; this one is called for every event of a fold."""


LISTED: Final = frozenset({Subject.TOOL, Subject.PROMPT, Subject.RESOURCE, Subject.TEMPLATE})
"""What a server lists: it may have many of these, told apart by name or URI."""

OURS: Final = frozenset({Subject.LAUNCH, Subject.LOGIN, Subject.PROGRAM})
"""What we find out ourselves of a server, on this machine: it lists none of it."""

ORDER: Final[Mapping[str, int]] = {subject.value: place for place, subject in enumerate(Subject)}


class Authority(StrEnum):
    """Who approves."""

    PERSON = "person"
    BASELINE = "baseline"
    """It was there at first sight."""
    OPEN = "open"
    """Its server's `trust` is open."""
    PROGRAM = "program"
    """An embedding program configured it."""
    NAMED = "named"
    """Its file was named on the command line, or is the user's own."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, gc=False):
    """Any event.  `scope` is the file that configures the server (`scope_of`): servers of two files may share an id.

    Nothing in one can form a cycle, so the collector need not walk a million of them.
    """

    scope: str
    server: str


class Enrolled(Event, frozen=True, tag="enroll"):
    """A tool joined the live set, or replaced the one that had its key; `tool` is the server's own name for it."""

    key: str
    tool: str
    definition: str


class Retired(Event, frozen=True, tag="retire"):
    """The tool of this key left the live set; `tool` is the server's own name for it, for people."""

    key: str
    tool: str = ""


class Seen(Event, frozen=True, tag="seen"):
    """The server offers this now, and did not, or not in this form, before; `hash` names the document."""

    subject: Subject
    hash: str
    name: str = ""


class Gone(Event, frozen=True, tag="gone"):
    """The server no longer offers this."""

    subject: Subject
    name: str = ""


class Approved(Event, frozen=True, tag="approve"):
    """Approval of exactly this form; it ends a block.

    `unordered` is the hash of its canonical form if a person approved all forms with that hash; else empty.  `seal` is
    the digest of the code that offered it; empty if that is not known.
    """

    subject: Subject
    hash: str
    by: Authority
    name: str = ""
    unordered: str = ""
    seal: str = ""


class Blocked(Event, frozen=True, tag="block"):
    """No form of this may be used, until one is approved."""

    subject: Subject
    name: str = ""


class Scanned(Event, frozen=True, tag="scan"):
    """The findings of the rules of `version` in a document, if any: a rule's id and a JSON pointer each."""

    hash: str
    version: int
    findings: tuple[tuple[str, str], ...]


class Sealed(Event, frozen=True, tag="seal"):
    """The server runs from this seal from now on, the digest of an installed package tree.

    `words` are those of the row that ask for it, `package` and `version` what they were resolved to, `lock` the hash of
    the document that installs the same again; `has_run_scripts` tells whether install scripts were run.
    """

    words: str
    seal: str
    package: str
    version: str
    lock: str
    by: Authority
    has_run_scripts: bool = False


class Began(Event, frozen=True, tag="began"):
    """A server became ready.

    `era` is the protocol revision spoken, `program` its own name and version, `package` the one that a runner resolved,
    or that it was sealed from; `seal` is the digest of that, empty without one.
    """

    pid: int | None = None
    worker_pid: int | None = None
    era: str = ""
    program: str = ""
    package: str = ""
    seal: str = ""


class Ended(Event, frozen=True, tag="ended"):
    """A server that had begun ended, or one that was to begin could not; `message` is redacted."""

    code: str
    message: str
    exit_status: int | None = None
    signal: int | None = None
    limit: str | None = None


class Redacted(Event, frozen=True, tag="redact"):
    """Secrets were removed from the events before this one, which changed their hashes.  Names no scope and no server.

    `before` is the end of the chain before that, as `Head` writes it.
    """

    before: str


LedgerEvent = Enrolled | Retired | Seen | Gone | Approved | Blocked | Scanned | Sealed | Began | Ended | Redacted

TRUST_EVENTS: Final = (Approved, Blocked, Sealed)
"""Events that a person would have to repeat: written through to the disk before they count."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An event in its place: `seq` from 1 without gaps, `at` ISO-8601 UTC with milliseconds and `Z`, for people."""

    seq: int
    at: str
    event: LedgerEvent


def decode_event(body: bytes) -> LedgerEvent:
    """Decode the event of `body`.  Raises `msgspec.MsgspecError` if it is none."""
    try:
        event: LedgerEvent = _events.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        event = msgspec.convert(_load_escaped(body), LedgerEvent)
    return event


def decode_events(bodies: Sequence[bytes]) -> list[LedgerEvent]:
    """Decode the events of many bodies, for a fraction of the cost of one by one."""
    try:
        events = _event_lists.decode(b"[" + b",".join(bodies) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [decode_event(body) for body in bodies]
    # A damaged body may hold two, or swallow its neighbour.
    return events if len(events) == len(bodies) else [decode_event(body) for body in bodies]


_events: Final = msgspec.json.Decoder(LedgerEvent)
_event_lists: Final = msgspec.json.Decoder(list[LedgerEvent])


T = TypeVar("T")

_ESCAPE: Final = b"\\ud"
"""The beginning of a surrogate's escape, as we write it."""


def encode_json(value: object) -> bytes:
    """Return the value as JSON, and an event as the chain hashes it; ASCII only if it has a lone surrogate."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")


def _load_escaped(data: bytes) -> Any:
    """Return the plain value of JSON that the quick codec refused because of a surrogate in it.  Raises
    `msgspec.DecodeError` if there is none, so that it was right to refuse; or it is not JSON for other reasons.
    """
    if _ESCAPE not in data.lower():
        raise msgspec.DecodeError("it is not JSON")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def decode_json(data: bytes, kind: type[T]) -> T:
    """Decode a value of this type.  Raises `msgspec.MsgspecError` if it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(_load_escaped(data), kind)
