"""The lock of what is approved: what is in it, what stays as it was, and what is said to be missing."""

import pytest
from support.ledger.histories import (
    BODIES,
    EVIL,
    NOW,
    READ,
    SCOPE,
    TOLD,
    ZONE,
    approved,
    began,
    blocked,
    gone,
    seen,
    tool_form,
)

from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import Authority, LedgerEvent, Stored, Subject
from quarterdeck.ledger.events.fold import Book
from quarterdeck.trust.judge.documents import instructions_document, listed_documents
from quarterdeck.trust.judge.overview import survey
from quarterdeck.trust.lock.ignores import Ignores
from quarterdeck.trust.lock.lockfile import DeckLock, Draft, MissingDocumentError, draft_lock, drift, lock_of

PRESENT_HEAD = Head(9, "ab" * 32)
FIRST = [seen(TOLD), approved(TOLD), seen(NOW), approved(NOW), seen(ZONE), approved(ZONE)]


def draft(*events: LedgerEvent, old: DeckLock | None = None, ids: tuple[str, ...] = ("time",)) -> Draft:
    book = Book.of(Stored(seq, "2026-01-02T03:04:05.678Z", event) for seq, event in enumerate(events, 1))
    empty = DeckLock(PRESENT_HEAD, {}, Ignores.parse(""))
    servers = [each for each in survey(book) if each.server in ids and each.scope == SCOPE]
    return draft_lock(servers, ids, BODIES.get, empty, old)


def test_what_is_approved_and_offered_is_locked() -> None:
    """A lock would name less than what is used, or more."""
    made = draft(began(), *FIRST)
    assert made.lock == lock_of(
        {"time": [TOLD, NOW, ZONE]}, Ignores(), PRESENT_HEAD, {"time": "mcp-server-time 1.2 (PyPI)"}
    )
    assert (made.partial, made.kept, made.unknown) == ((), (), ())


def test_what_is_held_is_locked_as_it_was_approved() -> None:
    """A rug pull would go into version control as if somebody had wanted it."""
    made = draft(*FIRST, seen(EVIL))
    assert made.lock.servers["time"].forms_of(Subject.TOOL) == {"now": NOW.hash, "zone": ZONE.hash}
    assert made.partial == ("time",)


def test_what_is_new_blocked_or_gone_is_not_locked() -> None:
    """A lock would admit what a person kept out; or fail on what is not there any more."""
    made = draft(*FIRST[:2], seen(NOW), *FIRST[4:], blocked(ZONE))
    assert made.lock.servers["time"].forms_of(Subject.TOOL) == {}
    assert made.partial == ("time",)
    made = draft(*FIRST, gone(ZONE))
    assert made.lock.servers["time"].forms_of(Subject.TOOL) == {"now": NOW.hash}
    assert made.partial == ()


def test_a_server_that_was_never_ready_here_stays_as_it_was_locked() -> None:
    """Whoever lacks one server's credentials would delete it from everybody's lock."""
    old = lock_of({"time": [TOLD, NOW], "files": [READ], "left": [ZONE]}, Ignores(), Head())
    made = draft(*FIRST, old=old, ids=("time", "files", "broken"))
    assert (made.kept, made.unknown) == (("files",), ("broken",))
    assert set(made.lock.servers) == {"time", "files"}
    assert made.lock.servers["files"] == old.servers["files"]


def test_a_launch_alone_is_not_a_server_that_was_looked_at() -> None:
    """A server that could not start would be locked as one without tools."""
    made = draft(began(), approved(NOW, Authority.PERSON))
    assert made.lock.servers == {}
    assert made.unknown == ("time",)


def test_a_document_that_the_ledger_lost_is_said() -> None:
    """A lock would be written that names nothing that can be checked."""
    lost = tool_form("lost", "")
    with pytest.raises(MissingDocumentError, match=f"lacks the document {lost.hash[:12]}, an approved form of time"):
        draft(*FIRST, seen(lost), approved(lost))


def test_what_a_server_lists_is_held_against_a_lock() -> None:
    """`lock --check` would compare something else than what the ledger hashed."""
    lock = draft(*FIRST).lock
    assert drift(lock, {"time": listed_documents("Ask me for the time.", [NOW.body, ZONE.body])}) == ()
    documents = listed_documents("", [b'{"description": "no name"}', b"[]", b"\xff", NOW.body])
    assert documents == (instructions_document(""), NOW)
