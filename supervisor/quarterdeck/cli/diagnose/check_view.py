"""The report of a check as people read it: what was found, worst first, with its remedy; then a verdict."""

import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.output import paragraph_width, print_line, styled
from quarterdeck.common.words import counted, duration, printable, size

if TYPE_CHECKING:
    from quarterdeck.check.verdicts import Outcome, Report

STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan"}

SHOWN: Final = 5
"""Findings of one check that are shown, unless all are wanted."""


def print_report(report: "Report", *, in_full: bool) -> None:
    """Print it; `in_full` also what passed, what was not tried, and every finding."""
    from quarterdeck.check.catalogue import Severity
    from quarterdeck.check.verdicts import State

    name = f" ({printable(report.name)} {printable(report.version)})" if report.name else ""
    print_line(f"{printable(report.server)}{name}", "bold")
    print_line(f"  {', '.join(_figures(report))}", "dim")
    print_line()
    for severity in Severity:
        for outcome in report.outcomes:
            if outcome.state is State.FOUND and outcome.check.severity is severity:
                _print_finding(outcome, in_full=in_full)
    for outcome in report.outcomes:
        if outcome.state is State.IGNORED:
            print_line(
                f"ignored  {outcome.check.id}: {counted(len(outcome.findings) + outcome.more, 'finding')}", "dim"
            )
    if in_full:
        for state, style in ((State.PASSED, "green"), (State.UNTRIED, "dim")):
            for outcome in report.outcomes:
                if outcome.state is state:
                    print_line(f"{styled(f'{state:8}', style, sys.stdout)} {outcome.check.id}: {outcome.check.claim}")
        print_line()
    if report.stderr:
        print_line("The end of its stderr:")
        for line in report.stderr.splitlines():
            print_line(f"  {printable(line)}", "dim")
        print_line()
    for remark in report.remarks:
        _print_wrapped(printable(remark), "not tried: " if not remark.startswith("the sandbox") else "", "dim")
    _print_verdict(report)


def _figures(report: "Report") -> Iterator[str]:
    measured = report.measured
    yield f"protocol {', '.join(map(printable, report.eras))}" if report.eras else "no protocol"
    if measured.started_s is not None:
        yield f"greeted in {duration(measured.started_s)}"
    if measured.answered_s is not None:
        yield f"answers in {duration(measured.answered_s)}"
    if measured.peak_bytes is not None:
        yield f"memory {size(measured.peak_bytes)}"
    yield f"{counted(measured.tools, 'tool')}, {counted(measured.calls, 'call')}"
    yield f"checked in {duration(measured.took_s)}"


def _print_finding(outcome: "Outcome", *, in_full: bool) -> None:
    check = outcome.check
    print_line(f"{styled(f'{check.severity:8}', STYLES[check.severity], sys.stdout)} {check.id}: {check.claim}")
    shown = outcome.findings if in_full else outcome.findings[:SHOWN]
    for finding in shown:
        _print_wrapped(f"{finding.place}: {finding.problem}" if finding.place else finding.problem, "         - ")
    if more := len(outcome.findings) - len(shown) + outcome.more:
        print_line(f"         - and {more} more" + ("" if in_full else " (--all shows them)"))
    _print_wrapped(check.remedy, "         fix: ", "dim")
    print_line()


def _print_wrapped(text: str, lead: str, style: str = "") -> None:
    room = max(30, paragraph_width() - len(lead))
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    for at, line in enumerate(lines):
        print_line(f"{lead if at == 0 else ' ' * len(lead)}{line}", style)


def _print_verdict(report: "Report") -> None:
    from quarterdeck.check.catalogue import Severity
    from quarterdeck.check.verdicts import State

    counts = {severity: report.count(severity) for severity in Severity}
    passed = sum(outcome.state is State.PASSED for outcome in report.outcomes)
    told = [counted(count, str(severity)) for severity, count in counts.items() if count]
    worst = next((severity for severity, count in counts.items() if count), None)
    print_line(
        f"{', '.join(told) or 'nothing found'}; {counted(passed, 'check')} passed",
        STYLES[worst] if worst is not None else "green",
    )
