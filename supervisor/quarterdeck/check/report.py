"""The report in the forms that programs read: JSON, JUnit XML, SARIF.  Pure.  What people read is the command's."""

import re
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree

from quarterdeck.check.catalogue import Severity
from quarterdeck.check.verdicts import Outcome, Report, State, Verdict
from quarterdeck.common.words import flat, printable
from quarterdeck_protocol.identity import CLIENT_VERSION


def as_json(report: Report) -> dict[str, object]:
    """Return the report; times in seconds, sizes in bytes."""
    return {
        "server": report.server,
        "name": report.name,
        "version": report.version,
        "eras": report.eras,
        "counts": {str(severity): report.count(severity) for severity in Severity},
        "checks": [
            {
                "id": outcome.check.id,
                "severity": outcome.check.severity,
                "state": outcome.state,
                "claim": outcome.check.claim,
                "findings": [{"place": each.place, "problem": each.problem} for each in outcome.findings],
                "more": outcome.more,
                **({"remedy": outcome.check.remedy} if outcome.state is State.FOUND else {}),
            }
            for outcome in report.outcomes
        ],
        "measured": asdict(report.measured),
        "observed": asdict(report.observed) if report.observed is not None else None,
        "remarks": report.remarks,
        "stderr": report.stderr,
    }


_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def as_junit(report: Report, fail_on: str) -> str:
    """Return JUnit XML; a check fails its case if it is as bad as `fail_on`, else its findings are output."""
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


LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(report: Report, file: str) -> dict[str, object]:
    """Return SARIF; `file`, the configuration or the program, is where code scanning shows the findings."""
    told = [outcome for outcome in report.outcomes if outcome.state in (State.FOUND, State.IGNORED)]
    rules = [
        {
            "id": outcome.check.id,
            "shortDescription": {"text": outcome.check.claim},
            "help": {"text": outcome.check.remedy},
            "defaultConfiguration": {"level": LEVELS[outcome.check.severity]},
        }
        for outcome in told
    ]
    results = [
        {
            "ruleId": outcome.check.id,
            "ruleIndex": at,
            "level": LEVELS[outcome.check.severity],
            "message": {"text": flat(f"{finding.place}: {finding.problem}" if finding.place else finding.problem)},
            "locations": [_location(finding, file)],
            "partialFingerprints": {"checkAndPlace/v1": f"{outcome.check.id}:{flat(finding.place)}"},
            **({"suppressions": [{"kind": "external"}]} if outcome.state is State.IGNORED else {}),
        }
        for at, outcome in enumerate(told)
        for finding in outcome.findings
    ]
    driver = {"name": "quarterdeck check", "version": CLIENT_VERSION, "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _location(finding: Verdict, file: str) -> dict[str, object]:
    place: dict[str, object] = {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": 1}}}
    if finding.place:
        place["logicalLocations"] = [{"name": flat(finding.place), "kind": "function"}]
    return place
