"""What a person decides, as events: all of it, and only what is on offer."""

import pytest
from support.trust.approvals import FILE, LAUNCH, book_of, tool_key

from quarterdeck.ledger.events.events import Approved, Authority, Blocked, Seen, Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import hash_of
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError, decide

SCOPE = str(FILE)


def seen(name: str, digest: str) -> Seen:
    return Seen(scope=SCOPE, server="fs", subject=Subject.TOOL, name=name, hash=digest)


def approved(name: str, digest: str) -> Approved:
    return Approved(scope=SCOPE, server="fs", subject=Subject.TOOL, name=name, hash=digest, by=Authority.PERSON)


def blocked(name: str) -> Blocked:
    return Blocked(scope=SCOPE, server="fs", subject=Subject.TOOL, name=name)


def wish(key: ItemKey, digest: str = "", body: bytes = b"") -> Decision:
    return Decision(SCOPE, "fs", key, digest, body)


def test_the_form_on_offer_is_approved_by_a_person() -> None:
    """An approval would count for another form, or as somebody else's."""
    record = decide(book_of(seen("a", "h1")), [wish(tool_key("a"), "h1")])
    assert record.events == (approved("a", "h1"),)
    assert record.documents == {}


def test_the_form_that_was_approved_before_can_be_approved_again() -> None:
    """A block that was a mistake could only be lifted while the server runs."""
    at = book_of(seen("a", "h1"), approved("a", "h1"), seen("a", "h2"), blocked("a"))
    assert decide(at, [wish(tool_key("a"), "h1")]).events == (approved("a", "h1"),)


@pytest.mark.parametrize("digest", ["h1", "never"])
def test_a_form_that_is_not_on_offer_is_refused_and_nothing_is_recorded(digest: str) -> None:
    """A person would approve what they did not see: it changed while they looked."""
    at = book_of(seen("a", "h1"), seen("a", "h2"), seen("b", "h3"))
    with pytest.raises(StaleDecisionError, match=r"fs: a is no longer offered in that form.*trust diff fs"):
        decide(at, [wish(tool_key("b"), "h3"), wish(tool_key("a"), digest)])


def test_a_tool_of_one_file_is_not_approved_by_that_of_another() -> None:
    """A project could borrow the approvals of the user's own server of the same id."""
    with pytest.raises(StaleDecisionError):
        decide(book_of(seen("a", "h1")), [Decision("/elsewhere.json", "fs", tool_key("a"), "h1")])


def test_a_block_needs_no_form() -> None:
    """What was never seen could not be kept out."""
    assert decide(book_of(), [wish(tool_key("a"))]).events == (blocked("a"),)


@pytest.mark.parametrize("key", [LAUNCH, tool_key("a"), ItemKey(Subject.INSTRUCTIONS)])
def test_what_a_trial_showed_is_approved_with_its_document(key: ItemKey) -> None:
    """`add` would ask, and its first start would approve whatever the server then says in its place."""
    body = b'{"name": "a"}'
    at = book_of(seen("a", "h1"), approved("a", "h1"))
    record = decide(at, [wish(key, hash_of(body), body)])
    about = {"scope": SCOPE, "server": "fs", "subject": key.subject, "name": key.name, "hash": hash_of(body)}
    assert record.events == (Seen(**about), Approved(**about, by=Authority.PERSON))
    assert record.documents == {hash_of(body): body}


@pytest.mark.parametrize("key", [LAUNCH, tool_key("a"), ItemKey(Subject.INSTRUCTIONS)])
def test_a_document_that_does_not_fit_its_hash_is_refused(key: ItemKey) -> None:
    """A person would approve another text than the one that is kept as approved."""
    with pytest.raises(StaleDecisionError):
        decide(book_of(), [wish(key, "0" * 64, b'{"command": "run"}')])
