"""What may be shown and called, and what is held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trust.verdicts import (
    INSTRUCTIONS,
    OPEN,
    STRICT,
    ServerState,
    about,
    document,
    instructions,
    locked,
    row,
    tool,
)

from quarterdeck.ledger.events.events import Approved, Authority, Gone, Seen, Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.judge.server_rows import Rules
from quarterdeck.trust.judge.verdicts import Judgement, Verdict, judge_listing
from quarterdeck_protocol.configs import TrustMode


def test_baseline_approves_what_is_there_at_first_sight_and_says_so() -> None:
    """A user would have to approve every tool of every server before the first call."""
    state = ServerState()
    judgement = judge_listing(row(Rules()), state.entry, [instructions(), tool("a")])
    assert set(judgement.verdicts.values()) == {Verdict.ADMITTED}
    assert judgement.events == (
        Seen(**about(INSTRUCTIONS), hash=instructions().hash),
        Approved(**about(INSTRUCTIONS), hash=instructions().hash, by=Authority.BASELINE),
        Seen(**about(tool("a").key), hash=tool("a").hash),
        Approved(**about(tool("a").key), hash=tool("a").hash, by=Authority.BASELINE),
    )


def test_baseline_holds_what_changes_and_what_is_added_later() -> None:
    """A rug pull would go unseen."""
    state = ServerState()
    state.lists(instructions(), tool("a"), tool("b"))
    verdicts = state.lists(instructions(), tool("a", 1), tool("b"), tool("c"))
    assert [verdicts[tool(name).key] for name in "abc"] == [Verdict.CHANGED, Verdict.ADMITTED, Verdict.NEW]
    assert state.lists(instructions(), tool("a"), tool("b"))[tool("a").key] is Verdict.ADMITTED


def test_an_approval_of_any_order_admits_every_order_and_nothing_else() -> None:
    """A server with random defaults would be held at each start, or change its words under that approval."""

    def listed(*values: str) -> Document:
        body = msgspec.json.encode({"name": "a", "inputSchema": {"enum": values}})
        return Document(ItemKey(Subject.TOOL, "a"), hash_of(body), body)

    state, first = ServerState(), listed("x", "y")
    state.lists(instructions(), first)
    assert state.lists(instructions(), listed("y", "x"))[first.key] is Verdict.CHANGED
    state.record([Approved(**about(first.key), hash=first.hash, by=Authority.PERSON, unordered=first.unordered)])
    assert state.lists(instructions(), listed("y", "x"))[first.key] is Verdict.ADMITTED
    assert state.lists(instructions(), listed("y", "z"))[first.key] is Verdict.CHANGED


def test_what_is_listed_again_unchanged_is_nothing_to_write_down() -> None:
    """The ledger would grow with every reconnect."""
    state = ServerState()
    state.lists(instructions(), tool("a"))
    assert judge_listing(row(Rules()), state.entry, [instructions(), tool("a")]).events == ()


def test_what_is_not_listed_any_more_is_written_down_once_and_stays_approved() -> None:
    """A tool that comes back after an outage would have to be approved again."""
    state = ServerState()
    state.lists(instructions(), tool("a"), tool("b"))
    judgement = judge_listing(row(Rules()), state.entry, [instructions(), tool("a")])
    assert judgement.events == (Gone(**about(tool("b").key)),)
    state.record(judgement.events)
    assert judge_listing(row(Rules()), state.entry, [instructions(), tool("a")]).events == ()
    assert state.lists(instructions(), tool("a"), tool("b"))[tool("b").key] is Verdict.ADMITTED


def test_changed_instructions_hold_every_tool() -> None:
    """A model would be told the changed text with the first tool it is shown."""
    state = ServerState()
    state.lists(instructions(), tool("a"), tool("b"))
    verdicts = state.lists(instructions(1), tool("a"), tool("b", 1))
    assert list(verdicts.values()) == [Verdict.CHANGED, Verdict.UNDER_INSTRUCTIONS, Verdict.CHANGED]
    state.approve(instructions(1))
    assert state.lists(instructions(1), tool("a"), tool("b", 1))[tool("a").key] is Verdict.ADMITTED


@pytest.mark.parametrize("rules", [Rules(), STRICT, OPEN, locked(tool("a"))])
def test_what_a_person_blocked_stays_out_whatever_the_rules(rules: Rules) -> None:
    """A block would end when somebody edits a configuration file."""
    state = ServerState()
    state.lists(instructions(), tool("a"), rules=OPEN)
    state.block(tool("a").key)
    assert state.lists(instructions(), tool("a"), rules=rules)[tool("a").key] is Verdict.BLOCKED
    assert state.lists(instructions(), tool("a", 1), rules=rules)[tool("a").key] is Verdict.BLOCKED


def test_beside_a_lock_nothing_is_admitted() -> None:
    """A machine that follows the lock of a team would run something else."""
    state = ServerState()
    rules = locked(instructions(), tool("a"))
    verdicts = state.lists(instructions(), tool("a"), tool("b"), rules=rules)
    assert list(verdicts.values()) == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.DRIFTED]
    state.approve(tool("a", 1))
    assert state.lists(instructions(), tool("a", 1), rules=rules)[tool("a").key] is Verdict.DRIFTED


# The naive model: everything that ever happened is kept as a list, and every question is put to that list.

Happening = tuple[str, ItemKey, str]
"""What was done (`seen`, `approve`, `block`), to what, and the form's hash."""

KEYS: Final = (INSTRUCTIONS, *(ItemKey(Subject.TOOL, name) for name in "abc"))


@dataclass(frozen=True)
class Listing:
    """The server lists these forms of these things, under these rules; the instructions are always there."""

    forms: Mapping[ItemKey, int]
    mode: TrustMode
    lock: Mapping[ItemKey, int] | None

    @property
    def documents(self) -> list[Document]:
        return [document(key, form) for key, form in self.forms.items()]

    @property
    def rules(self) -> Rules:
        named = None if self.lock is None else [document(key, form) for key, form in self.lock.items()]
        return Rules(self.mode) if named is None else locked(*named, mode=self.mode)


@dataclass(frozen=True)
class Person:
    """A person approves a form, or blocks every form (None)."""

    key: ItemKey
    form: int | None


FORMS = st.integers(0, 2)
SOME = st.dictionaries(st.sampled_from(KEYS), FORMS)
LISTINGS = st.builds(
    Listing, SOME.map(lambda forms: {INSTRUCTIONS: 0, **forms}), st.sampled_from(TrustMode), st.none() | SOME
)
STEPS = st.lists(LISTINGS | st.builds(Person, st.sampled_from(KEYS), st.none() | FORMS), max_size=12)


def may_be_used(history: Sequence[Happening], key: ItemKey, hash_: str) -> bool:
    """Whether the last word on this thing was an approval of just this form."""
    words = [(what, form) for what, about_key, form in history if about_key == key and what in {"approve", "block"}]
    return bool(words) and words[-1] == ("approve", hash_)


def may_speak(history: Sequence[Happening], listing: Listing, key: ItemKey, hash_: str) -> set[Authority]:
    """Whose approval the rules allow of this form at this moment, in the words of the documentation."""
    words = [what for what, about_key, _ in history if about_key == key and what in {"approve", "block"}]
    if "block" in words[-1:]:
        return set()
    if listing.lock is not None:
        names_it = key in listing.lock and document(key, listing.lock[key]).hash == hash_
        if not names_it:
            return set()
    if listing.mode is TrustMode.OPEN:
        return {Authority.OPEN}
    is_first_sight = not any(what == "seen" and about.subject is Subject.TOOL for what, about, _ in history)
    is_unapproved = "approve" not in words
    return {Authority.BASELINE} if listing.mode is TrustMode.BASELINE and is_first_sight and is_unapproved else set()


@given(STEPS)
def test_nothing_is_ever_admitted_that_was_not_approved_by_the_rules_own_words(
    steps: Sequence[Listing | Person],
) -> None:
    """A model would be shown a tool that nobody, and no rule, let in."""
    state, history = ServerState(), list[Happening]()
    for step in steps:
        if isinstance(step, Person):
            decided = document(step.key, step.form or 0)
            if step.form is None:
                state.block(step.key)
            else:
                state.approve(decided)
            history.append(("block" if step.form is None else "approve", step.key, decided.hash))
            continue
        judgement = judge_listing(row(step.rules), state.entry, step.documents)
        state.record(judgement.events)
        check_words(history, step, judgement)
        check_verdicts(history, step, judgement)


def check_words(history: list[Happening], listing: Listing, judgement: Judgement) -> None:
    """Every approval among the events is one that the rules allow; they are added to the history."""
    before = tuple(history)
    for event in judgement.events:
        if isinstance(event, Approved):
            key = ItemKey(event.subject, event.name)
            assert event.by in may_speak(before, listing, key, event.hash)
            history.append(("approve", key, event.hash))
        elif isinstance(event, Seen):
            history.append(("seen", ItemKey(event.subject, event.name), event.hash))
        else:
            assert isinstance(event, Gone)


def check_verdicts(history: Sequence[Happening], listing: Listing, judgement: Judgement) -> None:
    """Just what is approved, in the lock's words too, and not below held instructions, is admitted."""
    usable = {
        each.key
        for each in listing.documents
        if may_be_used(history, each.key, each.hash)
        and (listing.lock is None or listing.lock.get(each.key) == listing.forms[each.key])
    }
    expected = usable if INSTRUCTIONS in usable else set()
    admitted = {key for key, verdict in judgement.verdicts.items() if verdict is Verdict.ADMITTED}
    assert admitted == expected
    assert set(judgement.verdicts) == set(listing.forms)


@given(STEPS)
def test_what_is_written_down_is_what_is_offered(steps: Sequence[Listing | Person]) -> None:
    """A person who looks would see another form than the one that is there."""
    state = ServerState()
    for step in steps:
        if isinstance(step, Person):
            continue
        state.lists(*step.documents, rules=step.rules)
        offered = {key: item.seen for key, item in state.entry.items.items() if item.seen}
        assert offered == {each.key: each.hash for each in step.documents}
