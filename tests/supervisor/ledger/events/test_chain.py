"""The chain alone: what a hash covers, and that no change of a single byte, no cut and no swap goes unseen."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.ledger.ledgers import AT, EVENTS, enrolled, head_of, rows_of

from quarterdeck.ledger.events.chain import GENESIS, Head, Verdict, link, row_hash, verify
from quarterdeck.ledger.events.events import LedgerEvent, Redacted, encode_json

CHAINS = st.lists(EVENTS, min_size=1, max_size=8).map(rows_of)


def test_the_hash_is_over_exactly_these_bytes() -> None:
    """Nobody else could check an export, and no later version of ours."""
    body = b'{"kind":"retire"}'
    spelled = bytes(32) + (1).to_bytes(8) + len(AT).to_bytes(4) + AT.encode() + body
    assert row_hash(GENESIS, 1, AT, body) == sha256(spelled).digest()


@given(CHAINS, st.data())
def test_a_changed_bit_is_found_where_it_is(rows, data) -> None:
    """Somebody could approve a tool with an editor."""
    index = data.draw(st.integers(0, len(rows) - 1))
    row = rows[index]
    part = data.draw(st.sampled_from(["at", "body", "hash"]))
    value = getattr(row, part)
    raw = bytearray(value.encode() if isinstance(value, str) else value)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 6))
    changed = row._replace(**{part: raw.decode("latin-1") if part == "at" else bytes(raw)})
    found = verify([*rows[:index], changed, *rows[index + 1 :]], head_of(rows))
    assert (found.verdict, found.broken_seq, found.tip.count) == (Verdict.BROKEN, row.seq, index)


@given(CHAINS, st.data())
def test_a_missing_a_doubled_and_a_moved_event_are_found(rows, data) -> None:
    """A decision could be taken out, or replayed."""
    index = data.draw(st.integers(0, len(rows) - 1))
    without = verify([*rows[:index], *rows[index + 1 :]], head_of(rows))
    assert without.verdict is (Verdict.TRUNCATED if index == len(rows) - 1 else Verdict.BROKEN)
    doubled = verify([*rows[: index + 1], *rows[index:]], head_of(rows))
    assert (doubled.verdict, doubled.broken_seq) == (Verdict.BROKEN, index + 2)


@given(CHAINS, st.data())
def test_events_beyond_the_head_are_no_flaw_and_less_than_it_is_a_cut(rows, data) -> None:
    """A crash between an event and its head would shut a user out; or events cut off would not show."""
    length = data.draw(st.integers(0, len(rows)))
    assert verify(rows, head_of(rows[:length])).is_intact
    found = verify(rows[:length], head_of(rows))
    assert found.verdict is (Verdict.INTACT if length == len(rows) else Verdict.TRUNCATED)


@given(CHAINS)
def test_a_chain_that_was_written_anew_does_not_fit_the_head(rows) -> None:
    """Whoever can write the database could rewrite history whole."""
    forged = list(link(Head(), "2030-01-01T00:00:00.000Z", [row.body for row in rows]))
    found = verify(forged, head_of(rows))
    assert (found.verdict, found.broken_seq) == (Verdict.BROKEN, len(rows))


@given(CHAINS)
def test_without_a_head_a_chain_is_said_to_be_unanchored(rows) -> None:
    """A verification would promise what it cannot know."""
    assert verify(rows, None).verdict is Verdict.UNANCHORED


def test_time_never_falls(seen: LedgerEvent) -> None:
    """A look at a moment would find the wrong events."""
    early, late = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"
    [first] = link(Head(), late, [encode_json(seen)])
    [second] = link(head_of([first]), early, [encode_json(seen)])
    found = verify([first, second], None)
    assert (found.verdict, found.broken_seq, found.reason) == (Verdict.BROKEN, 2, "it is older than the one before")


def test_a_head_from_before_a_redaction_is_told_from_a_forgery(seen: LedgerEvent) -> None:
    """A person could not accept a redacted ledger whose head was not written; or could accept a forged one."""
    old, other = head_of(rows_of([seen, seen])), Head(2, "00" * 32)
    rows = rows_of([enrolled(2), enrolled(3), Redacted(scope="", server="", before=str(old))])
    assert verify(rows, old).verdict is Verdict.UNANCHORED
    assert verify(rows, other).verdict is Verdict.BROKEN
    assert verify(rows, head_of(rows)).is_intact


def test_a_part_of_a_chain_is_verified_from_the_head_before_it(seen: LedgerEvent) -> None:
    """A start, which looks at the last events alone, would find every ledger broken, or none."""
    rows = rows_of([seen, seen, seen])
    before = head_of(rows[:1])
    assert verify(rows[1:], head_of(rows), before).is_intact
    assert verify(rows[1:], before, before).is_intact
    assert verify(rows[1:], replace(before, hash="00" * 32), before).verdict is Verdict.BROKEN
    assert verify(rows[1:], None, replace(before, hash="00" * 32)).broken_seq == 2


@pytest.fixture
def seen() -> LedgerEvent:
    return enrolled(1)


@given(st.integers(0, 2**63), st.binary(min_size=32, max_size=32))
def test_a_head_is_one_line_of_text_and_back(count: int, digest: bytes) -> None:
    """What was printed could not be held against the ledger later."""
    head = Head(count, digest.hex())
    assert Head.parse(f"{head}\n") == head


@pytest.mark.parametrize("text", ["", "1", "x " + "0" * 64, "1 " + "0" * 63, "1 " + "g" * 64, "-1 " + "0" * 64])
def test_what_is_no_head_is_refused(text: str) -> None:
    """A damaged file would be taken for an empty ledger's."""
    with pytest.raises(ValueError):
        Head.parse(text)
