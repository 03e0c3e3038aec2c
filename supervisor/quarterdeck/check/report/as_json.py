"""The report as one JSON document.  Pure."""

from quarterdeck.check.catalogue import Severity
from quarterdeck.check.verdicts import Report, State


def as_json(report: Report) -> dict[str, object]:
    """The document; times in seconds, sizes in bytes."""
    measured = report.measured
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
        "measured": {
            "started_s": measured.started_s,
            "listed_s": measured.listed_s,
            "answered_s": measured.answered_s,
            "cpu_s": measured.cpu_s,
            "peak_bytes": measured.peak_bytes,
            "tools": measured.tools,
            "calls": measured.calls,
            "took_s": measured.took_s,
        },
        "remarks": report.remarks,
        "stderr": report.stderr,
    }
