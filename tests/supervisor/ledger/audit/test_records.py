"""Records are one line in any format, whatever servers call themselves and their tools."""

import json

from hypothesis import example, given
from hypothesis import strategies as st
from support.ledger.ledgers import EVENTS, NAMES

from quarterdeck.ledger.audit.records import (
    MAX_LINE_BYTES,
    Record,
    as_cef,
    as_json,
    as_syslog,
    record_of_call,
    record_of_event,
    record_of_gap,
)
from quarterdeck.ledger.events.chain import ChainRow, Head
from quarterdeck.ledger.events.events import Approved, Authority, LedgerEvent, Scanned, Subject
from quarterdeck.ledger.store.queries import CallRow

AT = "2026-01-02T03:04:05.678Z"
HEAD = Head(7, "ab" * 32)
CALL = CallRow(AT, "/m.json", "fs", "read", "fault", "timeout", 1.5, 2, "ci", "editor", "read /a", number=3, seq=7)
HOSTILE = "a|b=c\\d\ne\rf\x1b[31m\u202eg \udcff"


def parse_cef(line: str) -> tuple[list[str], dict[str, str]]:
    """Read a line as a receiver does: by its escapes."""
    parts, part, at = list[str](), "", 0
    while len(parts) < 7:
        if line[at] == "\\":
            part, at = part + line[at + 1], at + 2
        elif line[at] == "|":
            parts, part, at = [*parts, part], "", at + 1
        else:
            part, at = part + line[at], at + 1
    fields: dict[str, str] = {}
    key = ""
    for word in line[at:].replace("\\\\", "\0").replace("\\=", "\1").split(" "):
        name, equals, value = word.partition("=")
        if equals:
            key, fields[name] = name, value
        else:
            fields[key] += f" {word}"
    return parts, {key: value.replace("\0", "\\").replace("\1", "=") for key, value in fields.items()}


def test_a_call_is_told_in_each_format_with_the_end_of_the_chain() -> None:
    """A copy elsewhere could not tell whether the ledger was changed since."""
    record = record_of_call(CALL, HEAD)
    found = json.loads(as_json(record))
    assert (found["type"], found["number"], found["tool"], found["head"]) == ("call", 3, "read", "7:" + "ab" * 32)
    assert "dossier" not in found
    header, fields = parse_cef(as_cef(record))
    assert header[:3] == ["CEF:0", "Quarterdeck", "quarterdeck"]
    assert header[4:] == ["call-fault", "call of a tool: fault", "6"]
    assert (fields["rt"], fields["suser"], fields["reason"], fields["cs2"]) == (
        "1767323045678",
        "ci",
        "timeout",
        "read /a",
    )
    assert (fields["cs3Label"], fields["cs3"]) == ("ledgerHead", found["head"])
    assert as_syslog(record, "text", "my host\n", 42) == f"<108>1 {AT} myhost quarterdeck 42 call-fault - text".encode()


def test_an_event_and_a_gap_are_told() -> None:
    """A decision would not be seen; or calls that were deleted unsent would leave no trace."""
    event = Approved(scope="/m.json", server="fs", subject=Subject.TOOL, hash="f0", by=Authority.PERSON, name="read")
    record = record_of_event(ChainRow(7, AT, b"", bytes.fromhex(HEAD.hash)), event)
    found = json.loads(as_json(record))
    assert (found["type"], found["seq"], found["head"]) == ("event", 7, "7:" + HEAD.hash)
    assert found["event"]["kind"] == "approve"
    header, fields = parse_cef(as_cef(record))
    assert (header[4], fields["suser"], fields["msg"]) == ("approve", "person", "approved tool read (f0)")
    gap = record_of_gap(5, CALL, HEAD)
    assert json.loads(as_json(gap)) == {"type": "gap", "missing": 5, "last": 2, "at": AT, "head": "7:" + HEAD.hash}
    assert parse_cef(as_cef(gap))[1]["cnt"] == "5"


def test_no_name_ends_a_line_or_forges_a_field() -> None:
    """A tool's name could write a second record, or say that another client called it."""
    record = record_of_call(CallRow(AT, HOSTILE, HOSTILE, f"x suser=root {HOSTILE}", "ok", client="ci"), HEAD)
    header, fields = parse_cef(as_cef(record))
    assert (header[4], fields["suser"]) == ("call-ok", "ci")
    assert fields["destinationServiceName"] == "a|b=c\\d\\ne\\x0df\\u202eg \\udcff"
    for line in (as_cef(record), as_json(record)):
        assert not any(each < " " or each == "\u202e" for each in line)


@given(EVENTS | st.just(Scanned(scope="s", server="x", hash="h", version=1, findings=((HOSTILE * 99,) * 2,) * 999)))
def test_every_event_has_a_bounded_line(event: LedgerEvent) -> None:
    """A receiver would cut a record in two, or one that cannot be written would hold up all that follow."""
    _check(record_of_event(ChainRow(1, AT, b"", b"\0" * 32), event))


@given(st.sampled_from([AT, "", "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"]), NAMES, st.just(1_000))
@example(AT, HOSTILE, 60_000)
def test_every_call_has_a_bounded_line(at: str, name: str, times: int) -> None:
    """The same for what clients and servers call themselves, of a megabyte even, and for any clock."""
    long = name * times
    _check(record_of_call(CallRow(at, long, long, long, "ok", long, client=long, program=long, denied=long), HEAD))


def _check(record: Record) -> None:
    json.loads(as_json(record))
    for line in (as_json(record), as_cef(record)):
        assert "\n" not in line
        assert len(as_syslog(record, line, "h" * 9_000, 1)) <= MAX_LINE_BYTES + 400
