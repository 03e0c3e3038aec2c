"""How a server may be started, and what native tools get."""

from typing import Final

import pytest
from support.trust.verdicts import LAUNCH, OPEN, SCOPE, SERVER, ServerState, launch, row

from quarterdeck.config.load.origin import Standing
from quarterdeck.config.native_tools import NO_SETTINGS
from quarterdeck.ledger.events.events import Authority
from quarterdeck.trust.judge.server_rows import NativeRow, OtherForm, Rules
from quarterdeck.trust.judge.verdicts import Verdict, judge_launch, judge_native
from quarterdeck_protocol.configs import TrustMode


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
