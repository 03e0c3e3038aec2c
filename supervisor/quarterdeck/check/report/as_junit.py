"""The report as JUnit XML: one test case for each check, which every CI knows how to show.  Pure."""

import re
from typing import Final
from xml.etree import ElementTree

from quarterdeck.check.verdicts import Outcome, Report, State
from quarterdeck.common.words import flat, printable

_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, escaped or not."""


def as_junit(report: Report, fail_on: str) -> str:
    """The document; a check fails its case when what it found is as bad as `fail_on`, else it is told in its output."""
    cases = [_case(outcome, report, fail_on) for outcome in report.outcomes]
    suite = ElementTree.Element(
        "testsuite",
        name=_fit(flat(f"quarterdeck check {report.server}")),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors="0",
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{report.measured.took_s:.3f}",
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(outcome: Outcome, report: Report, fail_on: str) -> ElementTree.Element:
    check = outcome.check
    case = ElementTree.Element(
        "testcase", name=check.id, classname=_fit(flat(f"quarterdeck.{report.name or report.server}")), time="0"
    )
    told = "\n".join(flat(f"{each.place}: {each.problem}" if each.place else each.problem) for each in outcome.findings)
    if outcome.more:
        told += f"\nand {outcome.more} more"
    match outcome.state:
        case State.FOUND if report.fails_at(check, fail_on):
            said = f"not so: {check.claim}"
            failure = ElementTree.SubElement(case, "failure", type=str(check.severity), message=said)
            failure.text = _fit(f"{told}\n{check.remedy}")
        case State.FOUND | State.IGNORED:
            ElementTree.SubElement(case, "system-out").text = _fit(f"{check.severity}: not so: {check.claim}\n{told}")
        case State.UNTRIED:
            ElementTree.SubElement(case, "skipped", message="it could not be tried")
        case State.PASSED:
            pass
    return case


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", printable(text))
