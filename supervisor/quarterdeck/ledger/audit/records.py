"""Calls and events of the ledger as records that other systems read: JSON, CEF, and a line of syslog.

Each record is one line and names the end of the chain, as `ledger verify --against` takes it: a reader of the records
can tell whether the ledger was changed since.  Texts may be anybody's: they are cut, and controls in them escaped.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

import msgspec

from quarterdeck.common.words import flat, printable_json
from quarterdeck.ledger.events.chain import ChainRow, Head
from quarterdeck.ledger.events.events import Approved, Blocked, LedgerEvent, encode_json
from quarterdeck.ledger.events.history import in_words
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck_protocol.identity import CLIENT_VERSION

BOUNDS: Final = ((500, 30), (100, 5), (30, 3))
"""Characters of a text (CEF's own bounds are 1,023 and more), and members of a list; the first that let a line fit."""

MAX_LINE_BYTES: Final = 8 * 1024
"""What syslog receivers take in one message (RFC 5424 asks for 2 KiB); what is longer is cut to its core."""

_AUDIT_FACILITY: Final = 13


class Severity(IntEnum):
    """As syslog numbers it."""

    WARNING = 4
    NOTICE = 5
    INFO = 6


_CEF_SEVERITIES: Final = {Severity.WARNING: 6, Severity.NOTICE: 4, Severity.INFO: 2}


class Record(msgspec.Struct, frozen=True):
    """One record.

    Attributes:
        kind: `call-ok`, `approve`, `gap` and so on.
        words: for people.
        members: for programs.
        extension: the same under CEF's keys.
    """

    kind: str
    at: str
    severity: Severity
    words: str
    members: Mapping[str, Any]
    extension: Mapping[str, object]


def record_of_call(call: CallRow, head: Head) -> Record:
    """Return the record of a call; `head` is the end of the chain when it is made."""
    kept = {name: getattr(call, name) for name in CallRow.__struct_fields__ if name != "dossier"}
    return Record(
        kind=f"call-{call.outcome}",
        at=call.at,
        severity=Severity.WARNING if call.outcome == "fault" or call.denied else Severity.INFO,
        words=f"call of a tool: {call.outcome}",
        members={"type": "call", **kept, "head": spell(head)},
        extension={
            "externalId": call.number,
            "suser": call.client,
            "requestClientApplication": call.program,
            "act": call.tool,
            "destinationServiceName": call.server,
            "filePath": call.scope,
            "outcome": call.outcome,
            "reason": call.code,
            "out": call.bytes,
            **_custom("cs1", "delivery", call.delivery),
            **_custom("cs2", "denied", call.denied),
            **_custom("cs3", "ledgerHead", spell(head)),
            **_custom("cfp1", "durationMs", call.duration_ms),
            **_custom("cfp2", "queuedMs", call.queued_ms),
            **_custom("cfp3", "wokeMs", call.woke_ms),
        },
    )


def record_of_event(row: ChainRow, event: LedgerEvent) -> Record:
    """Return the record of an event of the chain."""
    kind, words = str(type(event).__struct_config__.tag), in_words(event)
    head = spell(Head(row.seq, row.hash.hex()))
    return Record(
        kind=kind,
        at=row.at,
        severity=Severity.NOTICE if isinstance(event, Approved | Blocked) else Severity.INFO,
        words=words.what,
        members={"type": "event", "seq": row.seq, "at": row.at, "event": msgspec.to_builtins(event), "head": head},
        extension={
            "externalId": row.seq,
            "suser": words.who,
            "act": kind,
            "destinationServiceName": event.server,
            "filePath": event.scope,
            "msg": words.what,
            **_custom("cs3", "ledgerHead", head),
        },
    )


def record_of_gap(missing: int, before: CallRow, head: Head) -> Record:
    """Return the record of calls that were deleted before they could be sent: those right `before` this one."""
    last = (before.number or 0) - 1
    return Record(
        kind="gap",
        at=before.at,
        severity=Severity.WARNING,
        words="calls are missing",
        members={"type": "gap", "missing": missing, "last": last, "at": before.at, "head": spell(head)},
        extension={"cnt": missing, "externalId": last, **_custom("cs3", "ledgerHead", spell(head))},
    )


def spell(head: Head) -> str:
    """Return the end of a chain as `verify` prints and takes it."""
    return f"{head.count}:{head.hash}"


def as_json(record: Record) -> str:
    """Return one line of JSON."""
    for chars, members in BOUNDS:
        line = printable_json(encode_json(_cut(record.members, chars, members)).decode())
        if len(line.encode()) <= MAX_LINE_BYTES:
            return line
    core = {name: record.members.get(name) for name in ("type", "seq", "number", "at", "head")}
    return msgspec.json.encode({**core, "kind": record.kind, "is_cut": True}).decode()


_EQUALS: Final = r"\="


def as_cef(record: Record) -> str:
    """Return one line of ArcSight's Common Event Format, version 0."""
    header = ("Quarterdeck", "quarterdeck", CLIENT_VERSION, record.kind, record.words, _CEF_SEVERITIES[record.severity])
    fields = {"rt": _milliseconds(record.at), **record.extension}
    said = {key: value for key, value in fields.items() if value not in ("", None)}
    for chars, _ in BOUNDS:
        escaped = (_text(value, chars).replace("|", "\\|") for value in header)
        extension = " ".join(f"{key}={_text(value, chars).replace('=', _EQUALS)}" for key, value in said.items())
        line = "|".join(("CEF:0", *escaped, extension))
        if len(line.encode()) <= MAX_LINE_BYTES:
            break
    return line


FORMATS: Final = {"json": as_json, "cef": as_cef}


def as_syslog(record: Record, line: str, host: str, pid: int) -> bytes:
    """Return a message as RFC 5424 has it, without a frame."""
    priority = _AUDIT_FACILITY * 8 + record.severity
    name = "".join(each for each in host if "!" <= each <= "~")[:255] or "-"
    return f"<{priority}>1 {record.at or '-'} {name} quarterdeck {pid} {record.kind} - {line}".encode()


def _cut(value: object, chars: int, members: int) -> object:
    match value:
        case str():
            return value if len(value) <= chars else f"{value[:chars]}…"
        case Mapping():
            kept = list(value.items())[:members]
            return {str(_cut(key, chars, members)): _cut(each, chars, members) for key, each in kept}
        case list() | tuple():
            return [_cut(each, chars, members) for each in value[:members]]
        case _:
            return value


def _custom(key: str, label: str, value: object) -> dict[str, object]:
    return {key: value, f"{key}Label": label} if value not in ("", None) else {}


def _text(value: object, chars: int) -> str:
    return flat(str(_cut(str(value), chars, 0))).replace("\\", "\\\\")


def _milliseconds(at: str) -> str:
    try:
        return str(int(datetime.fromisoformat(at).timestamp() * 1000))
    except (ValueError, OverflowError):
        return ""
