"""The report for programs: JSON, JUnit XML, SARIF."""

import re
from xml.etree import ElementTree

import msgspec

from quarterdeck.check.catalogue import CHECKS
from quarterdeck.check.report import as_json, as_junit, as_sarif
from quarterdeck.check.verdicts import Measured, Report, Verdict, outcomes

VERDICTS = (
    Verdict("ping", "no answer\x00 <in time>"),
    Verdict("call-survived", "it ended", "tool-a"),
    Verdict("call-survived", "it ended", "tool-b"),
    Verdict("memory", "it took 1 GiB"),
    Verdict("idle", "it takes 90%"),
    Verdict("tool-name"),
)
REPORT = Report("s", "näme", "1", (), outcomes(VERDICTS, ("idle",)), Measured(took_s=1.5), ("calls: --no-calls",))


def test_json_has_every_check_with_its_state() -> None:
    """A script could not tell what held from what was not tried."""
    document = msgspec.json.decode(msgspec.json.encode(as_json(REPORT)))
    states = {each["id"]: each["state"] for each in document["checks"]}
    assert len(states) == len(CHECKS)
    assert [states[check] for check in ("ping", "tool-name", "idle", "greeting")] == [
        "found",
        "passed",
        "ignored",
        "untried",
    ]
    assert document["counts"] == {"error": 2, "warning": 0, "note": 1}


def test_junit_fails_the_cases_that_count_and_tells_the_others() -> None:
    """A CI would show a failure that does not fail it, or hide one that does."""
    suite = ElementTree.fromstring(as_junit(REPORT, "error").encode()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == (str(len(CHECKS)), "2")
    cases = {case.get("name"): case for case in suite}
    failure = cases["call-survived"].find("failure")
    assert failure is not None
    assert "tool-a: it ended\ntool-b: it ended" in (failure.text or "")
    assert cases["memory"].findtext("system-out", "").endswith("it took 1 GiB")
    assert cases["idle"].find("failure") is None
    assert cases["greeting"].find("skipped") is not None
    assert "failures" in as_junit(REPORT, "never")


def test_sarif_has_a_rule_for_each_check_and_a_result_for_each_finding() -> None:
    """Code scanning would refuse the file, or show findings under the wrong rule."""
    document = as_sarif(REPORT, "server.py")
    [run] = document["runs"]  # type: ignore[misc]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert len(run["results"]) == 5
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "server.py"
    assert [result["ruleId"] for result in run["results"] if "suppressions" in result] == ["idle"]


def test_no_form_lets_a_server_write_lines_or_turn_them_around() -> None:
    """A server's words would be a finding of another check, or an order to the CI that shows the file."""
    evil = "it\u202e is\n::error file=x::forged ##vso[task.complete]"
    report = Report("s", evil, "1", (), outcomes([Verdict("ping", evil, evil)]), Measured())
    for text in (as_junit(report, "error"), msgspec.json.encode(as_sarif(report, "x")).decode()):
        assert "\u202e" not in text
        assert "##vso[" not in text
        assert not re.search(r"^\s*::", text, re.MULTILINE)
        assert "is\\n\\x3a:error" in text.replace("\\\\", "\\")
