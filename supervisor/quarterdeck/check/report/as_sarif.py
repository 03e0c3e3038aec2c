"""The report as SARIF 2.1.0, which code scanning shows: one rule for each check, one result for each finding.  Pure."""

from typing import Final

from quarterdeck.check.catalogue import Severity
from quarterdeck.check.verdicts import Report, State, Verdict
from quarterdeck.common.words import flat
from quarterdeck_protocol.identity import CLIENT_VERSION

LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(report: Report, file: str) -> dict[str, object]:
    """The document; `file` is what code scanning shows a finding at: the configuration's file, or the program's."""
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
    place: dict[str, object] = {
        "physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": 1}},
    }
    if finding.place:
        place["logicalLocations"] = [{"name": flat(finding.place), "kind": "function"}]
    return place
