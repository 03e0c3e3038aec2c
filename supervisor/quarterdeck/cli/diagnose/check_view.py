"""The report of a check as people read it: what was found, worst first, with its remedy; then a verdict."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.output import Cell, print_line, print_paragraph, print_table
from quarterdeck.common.words import counted, duration, printable, size

if TYPE_CHECKING:
    from quarterdeck.check.verdicts import Outcome, Report

STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan", "passed": "green", "untried": "dim"}

SHOWN: Final = 5
"""Findings of one check that are shown, unless all are wanted."""


def print_report(report: "Report", *, in_full: bool) -> None:
    """Print it; `in_full` also what passed, what was not tried, and every finding."""
    from quarterdeck.check.catalogue import Severity
    from quarterdeck.check.verdicts import State

    name = f" ({report.name} {report.version})" if report.name else ""
    print_line(f"{report.server}{name}", "bold")
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
        rest = [
            outcome for state in (State.PASSED, State.UNTRIED) for outcome in report.outcomes if outcome.state is state
        ]
        print_table(
            ("CHECK", "STATE", "EXPECTED"),
            [[Cell(each.check.id), Cell(each.state, STYLES[each.state]), Cell(each.check.claim)] for each in rest],
        )
        print_line()
    if report.stderr:
        print_line("The end of its stderr:")
        for line in report.stderr.splitlines():
            print_line(f"  {line}", "dim")
        print_line()
    for remark in report.remarks:
        is_untried = not remark.startswith("the sandbox")
        print_paragraph(remark, "dim", lead=Cell("not tried: ", "dim") if is_untried else None)
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
    lead = Cell(f"{check.severity:9}", STYLES[check.severity])
    print_paragraph(f"{check.id}: expected: {check.claim}", "bold", lead=lead)
    shown = outcome.findings if in_full else outcome.findings[:SHOWN]
    for finding in shown:
        told = f"{finding.place}: {finding.problem}" if finding.place else finding.problem
        print_paragraph(told, lead=Cell("         - "))
    if more := len(outcome.findings) - len(shown) + outcome.more:
        print_line(f"         - and {more} more" + ("" if in_full else " (--all shows them)"))
    print_paragraph(check.remedy, "dim", lead=Cell("         fix: ", "dim"))
    print_line()


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
