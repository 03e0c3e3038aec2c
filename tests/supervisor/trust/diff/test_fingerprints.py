"""How two fingerprints of a program compare, and what people are shown of the difference."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from quarterdeck.ledger.events.events import Authority, Subject
from quarterdeck.ledger.events.fold import Item, ItemKey
from quarterdeck.trust.diff.changes import diff_server
from quarterdeck.trust.diff.fingerprints import FileMark, Fingerprint, changed_files, fingerprint_of
from quarterdeck.trust.judge.documents import value_of
from quarterdeck.trust.judge.verdicts import judge_program
from quarterdeck_protocol.configs import TrustMode

MARK = FileMark("/bin/real", 3, 7, 1_000, 2_000, "aa")
UNREAD = replace(MARK, sha256="")
OLD = Fingerprint("words", {"/bin/x": MARK})
TOUCHED = Fingerprint("words", {"/bin/x": replace(MARK, mtime_ns=9, ctime_ns=9, inode=8)})
NEW = Fingerprint("words", {"/bin/x": replace(MARK, sha256="bb")})
OTHER_WORDS = replace(NEW, words="others")


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"a": MARK}, {"a": MARK}, ()),
        ({"a": MARK}, {"a": replace(MARK, mtime_ns=9, ctime_ns=9, inode=8, real="/other")}, ()),
        ({"a": MARK}, {"a": replace(MARK, sha256="bb")}, ("a",)),
        ({"a": UNREAD}, {"a": UNREAD}, ()),
        ({"a": UNREAD}, {"a": replace(UNREAD, ctime_ns=9)}, ("a",)),
        ({"a": MARK}, {"a": UNREAD}, ("a",)),
        ({"a": MARK}, {"a": MARK, "b": MARK}, ("b",)),
        ({"a": MARK, "b": MARK}, {"a": MARK}, ("b",)),
    ],
)
def test_files_with_other_contents_and_files_that_came_or_went_have_changed(
    before: dict[str, FileMark], after: dict[str, FileMark], changed: tuple[str, ...]
) -> None:
    """A program that was replaced would count as approved, or a copy of the same one as another."""
    assert changed_files(Fingerprint("", before), Fingerprint("", after)) == changed


@dataclass(frozen=True)
class Judged:
    """One row of the table: what was approved, what is found, and who approves that."""

    approved: Fingerprint | None
    found: Fingerprint
    mode: TrustMode
    by: Authority | None
    is_blocked: bool = False
    is_lost: bool = False


@pytest.mark.parametrize(
    "row",
    [
        Judged(None, OLD, TrustMode.STRICT, Authority.BASELINE),
        Judged(OLD, OLD, TrustMode.STRICT, None),
        Judged(OLD, TOUCHED, TrustMode.STRICT, Authority.PERSON),
        Judged(OLD, NEW, TrustMode.STRICT, None),
        Judged(OLD, NEW, TrustMode.BASELINE, None),
        Judged(OLD, NEW, TrustMode.OPEN, Authority.OPEN),
        Judged(OLD, OTHER_WORDS, TrustMode.STRICT, Authority.BASELINE),
        Judged(OLD, OTHER_WORDS, TrustMode.OPEN, None, is_blocked=True),
        Judged(OLD, NEW, TrustMode.STRICT, None, is_lost=True),
        Judged(OLD, OTHER_WORDS, TrustMode.STRICT, None, is_lost=True),
    ],
)
def test_the_first_start_approves_a_program_and_later_ones_only_what_is_the_same(row: Judged) -> None:
    """A changed program would be approved by nobody, or a program that was only touched be held."""
    item = Item(approved=row.approved.hash, by=Authority.PERSON) if row.approved is not None else Item()
    item.is_blocked = row.is_blocked
    approved = None if row.is_lost else row.approved
    assert judge_program(item, row.mode, approved, row.found) is row.by


def test_a_document_is_read_back_and_one_that_is_damaged_is_none() -> None:
    """What was approved could not be compared after a restart, or a damaged record would stop all starts."""
    assert fingerprint_of(OLD.body) == OLD
    assert fingerprint_of(b'{"words": 1}') is None
    assert fingerprint_of(None) is None


def test_a_difference_shows_each_file_that_changed_and_no_times() -> None:
    """A person would have to find the changed file among numbers."""
    key = ItemKey(Subject.PROGRAM)
    assert diff_server({key: value_of(OLD.body)}, {key: value_of(TOUCHED.body)}).changes == ()
    [change] = diff_server({key: value_of(OLD.body)}, {key: value_of(NEW.body)}).changes
    assert "The server's program" in change.sentence
    assert (change.before, change.after) == (
        "/bin/real: 3 bytes, sha256 aa",
        "/bin/real: 3 bytes, sha256 bb",
    )
