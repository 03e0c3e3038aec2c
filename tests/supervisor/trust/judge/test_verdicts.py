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
    LAUNCH,
    OPEN,
    SCOPE,
    SERVER,
    STRICT,
    ServerState,
    about,
    document,
    instructions,
    launch,
    locked,
    row,
    tool,
)

from quarterdeck.config.load.origin import Standing
from quarterdeck.config.native_tools import NO_SETTINGS
from quarterdeck.ledger.events.events import Approved, Authority, Gone, Seen, Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.judge.server_rows import NativeRow, OtherForm, Rules
from quarterdeck.trust.judge.verdicts import Judgement, Verdict, judge_launch, judge_listing, judge_native
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


def test_a_launch_that_was_approved_is_started_again() -> None:
    """Every restart would ask a person."""
    state = ServerState()
    assert state.launches(launch()) is Verdict.ADMITTED
    assert judge_launch(row(Rules(), launch()), state.entry).events == ()


@pytest.mark.parametrize("standing", [Standing.NAMED, Standing.USER, Standing.PROJECT])
def test_an_approved_launch_that_is_kept_in_another_form_now_is_still_approved(standing: Standing) -> None:
    """An update that hides more than the one before would hold every server."""
    state, rules = ServerState(), Rules(standing=standing)
    state.approve(launch())
    judgement = judge_launch(row(rules, launch(1)), state.entry, today=launch(1).hash)
    assert judgement.verdicts[LAUNCH] is Verdict.ADMITTED
    state.record(judgement.events)
    assert state.launches(launch(1), rules) is Verdict.ADMITTED
    assert state.entry.items[LAUNCH].by is Authority.PERSON
    state.block(LAUNCH)
    blocked = judge_launch(row(rules, launch(2)), state.entry, today=launch(2).hash)
    assert blocked.verdicts[LAUNCH] is Verdict.BLOCKED


@pytest.mark.parametrize("standing", [Standing.NAMED, Standing.USER])
def test_a_changed_launch_of_a_file_is_held(standing: Standing) -> None:
    """Whoever can write into a configuration file could run a program of their own."""
    state, rules = ServerState(), Rules(standing=standing)
    state.launches(launch(), rules)
    assert state.launches(launch(1), rules) is Verdict.CHANGED
    state.approve(launch(1))
    assert state.launches(launch(1), rules) is Verdict.ADMITTED


@pytest.mark.parametrize("mode", list(TrustMode))
def test_a_projects_server_waits_for_a_person_under_every_mode(mode: TrustMode) -> None:
    """Entering a stranger's directory would run the stranger's programs."""
    state, rules = ServerState(), Rules(mode, Standing.PROJECT)
    assert state.launches(launch(), rules, was_open=True) is Verdict.NEW
    state.approve(launch())
    assert state.launches(launch(), rules) is Verdict.ADMITTED
    assert state.launches(launch(1), rules, was_open=True) is Verdict.CHANGED


def test_a_row_does_not_open_itself() -> None:
    """One edit of a file, a new command with `trust: open` beside it, would run unasked."""
    state = ServerState()
    state.launches(launch())
    assert state.launches(launch(1), OPEN, was_open=False) is Verdict.CHANGED
    state.approve(launch(1))
    assert state.launches(launch(2), OPEN, was_open=True) is Verdict.ADMITTED


def test_a_blocked_launch_is_never_started() -> None:
    """A server that a person blocked would run again after an edit."""
    state = ServerState()
    state.launches(launch())
    state.block(LAUNCH)
    for rules in (Rules(), OPEN, Rules(standing=Standing.CODE)):
        assert state.launches(launch(), rules, was_open=True) is Verdict.BLOCKED
        assert state.launches(launch(1), rules, was_open=True) is Verdict.BLOCKED


def test_a_program_may_launch_what_it_likes() -> None:
    """An embedding program would have to approve its own code."""
    state, rules = ServerState(), Rules(standing=Standing.CODE)
    assert [state.launches(launch(form), rules) for form in (0, 1)] == [Verdict.ADMITTED] * 2


def test_a_command_line_may_be_another_at_each_start() -> None:
    """Who adds an option to their own command line would be asked whether they meant it."""
    for mode in TrustMode:
        state, rules = ServerState(), Rules(mode, Standing.COMMAND)
        assert [state.launches(launch(form), rules) for form in (0, 1)] == [Verdict.ADMITTED] * 2


def test_strict_asks_for_the_launch_of_a_found_file_but_not_for_one_that_was_named() -> None:
    """Who names a file on the command line would be asked whether they meant it."""
    assert ServerState().launches(launch(), Rules(TrustMode.STRICT, Standing.USER)) is Verdict.NEW
    assert ServerState().launches(launch(), Rules(TrustMode.STRICT, Standing.NAMED)) is Verdict.ADMITTED


EXPOSED = Rules(exposed="/w/mcp.json")
MORE: Final = ("preset",)


@pytest.mark.parametrize("mode", TrustMode)
def test_what_another_could_have_written_is_held_when_it_is_new_or_changed_whatever_the_mode(mode: TrustMode) -> None:
    """A program in its sandbox would add a row, and the next start run it outside of one."""
    exposed = Rules(mode, exposed="/w/mcp.json")
    assert ServerState().launches(launch(), exposed, was_open=True) is Verdict.EXPOSED
    state = ServerState()
    state.launches(launch())
    assert state.launches(launch(), exposed) is Verdict.ADMITTED
    assert state.launches(launch(1), exposed, was_open=True) is Verdict.EXPOSED
    state.approve(launch(1))
    assert state.launches(launch(1), exposed) is Verdict.ADMITTED


@pytest.mark.parametrize("standing", [Standing.NAMED, Standing.USER])
def test_what_asks_for_more_while_a_serve_runs_is_held_and_starts_with_the_next(standing: Standing) -> None:
    """An edit of the file that a serve follows would open any sandbox within a second, with nobody there."""
    state, rules = ServerState(), Rules(standing=standing)
    assert state.launches(launch(), rules, loosened=MORE) is Verdict.LOOSER
    assert state.launches(launch(), rules, loosened=MORE) is Verdict.LOOSER, "held stays held, however often it is read"
    assert state.launches(launch(), rules) is Verdict.ADMITTED
    assert state.launches(launch(), rules, loosened=MORE) is Verdict.ADMITTED


def test_an_open_row_that_asks_for_more_while_a_serve_runs_is_held_too() -> None:
    """Who trusts a server's words would have given away the machine."""
    state = ServerState()
    state.launches(launch(), OPEN)
    assert state.launches(launch(1), OPEN, was_open=True, loosened=MORE) is Verdict.LOOSER
    assert state.launches(launch(2), OPEN, was_open=True) is Verdict.ADMITTED
    assert ServerState().launches(launch(), Rules(standing=Standing.CODE), loosened=MORE) is Verdict.ADMITTED


def test_an_approval_of_the_other_form_counts_and_the_fuller_one_is_kept() -> None:
    """Every server would be held once a workspace is named; or a value that was approved could change later."""
    names, values = launch(), launch(1)
    state = ServerState()
    state.launches(names)
    assert state.launches(values, EXPOSED) is Verdict.EXPOSED
    assert state.launches(values, other_form=OtherForm(names.hash, is_fuller=False)) is Verdict.ADMITTED
    assert state.entry.items[LAUNCH].approved == values.hash
    assert state.launches(names, other_form=OtherForm(values.hash, is_fuller=True)) is Verdict.ADMITTED
    assert state.entry.items[LAUNCH].approved == values.hash
    assert state.launches(values, EXPOSED) is Verdict.ADMITTED
    state.block(LAUNCH)
    assert state.launches(names, other_form=OtherForm(values.hash, is_fuller=True)) is Verdict.BLOCKED


@pytest.mark.parametrize(
    ("loosened", "exposed", "is_live", "verdict"),
    [
        ((), False, False, Verdict.ADMITTED),
        ((), True, True, Verdict.ADMITTED),
        (MORE, False, False, Verdict.ADMITTED),
        (MORE, False, True, Verdict.LOOSER),
        (MORE, True, False, Verdict.EXPOSED),
        (MORE, True, True, Verdict.EXPOSED),
    ],
)
def test_native_tools_get_no_more_by_a_word_that_another_could_have_written_or_that_nobody_started_with(
    loosened: tuple[str, ...], exposed: bool, is_live: bool, verdict: Verdict
) -> None:
    """`bash` could write itself out of its sandbox."""
    state, native = ServerState(), NativeRow(NO_SETTINGS, SCOPE, launch(), "/w/mcp.json" if exposed else "", id=SERVER)

    def judged() -> Verdict:
        found = judge_native(native, state.entry, loosened, is_live=is_live)
        state.record(found.events)
        return found.verdicts[LAUNCH]

    assert judged() is verdict
    assert state.entry.items[LAUNCH].seen == launch().hash, "a person can look at it"
    state.approve(launch())
    assert judged() is Verdict.ADMITTED
    state.block(LAUNCH)
    assert judged() is Verdict.BLOCKED
