"""Verdicts on everything that was tried, and the report that they add up to.  Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from .catalogue import BY_ID, CHECKS, RANKS, Check, Severity
from .observed import Observed

MAX_FINDINGS: Final = 20


class Verdict(NamedTuple):
    """The result of a check at one `place`; `problem` is empty if it passed."""

    check: str
    problem: str = ""
    place: str = ""


class State(StrEnum):
    """The state of one check."""

    PASSED = "passed"
    FOUND = "found"
    UNTRIED = "untried"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check and its findings, at most `MAX_FINDINGS`, and how many `more` were left out."""

    check: Check
    state: State
    findings: tuple[Verdict, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one server; None where something was not measured."""

    started_s: float | None = None
    listed_s: float | None = None
    answered_s: float | None = None
    cpu_s: float | None = None
    peak_bytes: int | None = None
    tools: int = 0
    calls: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The report on one server.

    Attributes:
        server: its id, or its command line.
        name: its name in its own words; untrusted.
        eras: the revisions that it speaks.
        outcomes: in the catalogue's order.
        remarks: what was not tried and why, and what is weaker on this machine.
        stderr: its last lines, if it was of no use.
        observed: what it did in its world of decoys; None if it was of no use, or is remote.
    """

    server: str
    name: str
    version: str
    eras: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    measured: Measured
    remarks: tuple[str, ...] = ()
    stderr: str = ""
    observed: Observed | None = None

    def count(self, severity: Severity) -> int:
        """Return how many checks of this severity found something."""
        return sum(each.state is State.FOUND and each.check.severity is severity for each in self.outcomes)

    def fails_at(self, check: Check, at: str) -> bool:
        """Return whether a finding of this check is as bad as `at`; nothing is as bad as `never`."""
        return at in tuple(Severity) and RANKS[check.severity] <= RANKS[Severity(at)]

    def fails(self, at: str) -> bool:
        """Return whether a finding is as bad as `at`."""
        return any(each.state is State.FOUND and self.fails_at(each.check, at) for each in self.outcomes)


def outcomes(verdicts: Iterable[Verdict], ignored: Collection[str] = ()) -> tuple[Outcome, ...]:
    """Return the outcome of every check of the catalogue."""
    tried: dict[str, dict[Verdict, None]] = {}
    for verdict in verdicts:
        assert verdict.check in BY_ID, verdict.check
        tried.setdefault(verdict.check, {})[verdict] = None
    return tuple(_outcome(check, tuple(tried.get(check.id, ())), check.id in ignored) for check in CHECKS)


def _outcome(check: Check, verdicts: tuple[Verdict, ...], is_ignored: bool) -> Outcome:
    found = [verdict for verdict in verdicts if verdict.problem]
    kept, more = tuple(found[:MAX_FINDINGS]), max(0, len(found) - MAX_FINDINGS)
    if not verdicts:
        return Outcome(check, State.UNTRIED)
    if is_ignored and found:
        return Outcome(check, State.IGNORED, kept, more)
    return Outcome(check, State.FOUND if found else State.PASSED, kept, more)
