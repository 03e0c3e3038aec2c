"""What verdicts add up to."""

import pytest

from quarterdeck.check.catalogue import CHECKS
from quarterdeck.check.verdicts import MAX_FINDINGS, Measured, Report, State, Verdict, outcomes


def report(*verdicts: Verdict, ignored: tuple[str, ...] = ()) -> Report:
    return Report("s", "s", "1", ("2025-11-25",), outcomes(verdicts, ignored), Measured())


def test_a_check_passed_found_something_or_was_not_tried() -> None:
    """What was never tried would look as if it held."""
    whole = report(Verdict("ping"), Verdict("ping", "no answer"), Verdict("idle"))
    states = {outcome.check.id: outcome.state for outcome in whole.outcomes}
    assert (states["ping"], states["idle"], states["memory"]) == (State.FOUND, State.PASSED, State.UNTRIED)
    assert len(states) == len(CHECKS)


def test_findings_are_told_once_and_not_without_end() -> None:
    """A server with a thousand tools would fill the report with one mistake."""
    many = [Verdict("tool-described", "it has no description", str(number)) for number in range(100)]
    [found] = [each for each in report(*many, *many).outcomes if each.state is State.FOUND]
    assert (len(found.findings), found.more) == (MAX_FINDINGS, 100 - MAX_FINDINGS)


@pytest.mark.parametrize(
    ("check", "fails"),
    [
        ("ping", {"error": True, "warning": True, "note": True, "never": False}),
        ("idle", {"error": False, "warning": True, "note": True, "never": False}),
        ("memory", {"error": False, "warning": False, "note": True, "never": False}),
    ],
)
def test_a_report_fails_from_a_severity_on(check: str, fails: dict[str, bool]) -> None:
    """A pipeline would stop for a remark, or go on with a broken server."""
    whole = report(Verdict(check, "something"))
    assert {at: whole.fails(at) for at in fails} == fails
    assert not report(Verdict(check, "something"), ignored=(check,)).fails("note")
    assert not report(Verdict(check)).fails("note")
