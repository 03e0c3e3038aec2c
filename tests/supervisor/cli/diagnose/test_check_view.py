"""The report of a check for people."""

import pytest

from quarterdeck.check.verdicts import Measured, Report, Verdict, outcomes
from quarterdeck.cli.diagnose.check_view import print_report


def test_a_server_begins_no_line_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Its name would forge a finding of another check, or give orders to the CI in whose log the report is."""
    evil = "notes\n::error file=app.py::forged\nerror    greeting: forged\u202e"
    verdicts = outcomes([Verdict("ping", evil, evil)])
    print_report(Report("s", evil, evil, (evil,), verdicts, Measured(), (evil,), evil), in_full=True)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert not [line for line in lines if line.lstrip().startswith("::")]
    assert [line for line in lines if line.startswith("error ")] == [
        "error    ping: expected: ping is answered with an empty result"
    ]
    assert "\u202e" not in out
