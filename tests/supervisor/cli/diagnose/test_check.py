"""`check`: what its words mean."""

from pathlib import Path

import pytest
from support.command_line import Said
from support.config.places import write_config

from quarterdeck.check.verdicts import Measured, Report, Verdict, outcomes
from quarterdeck.cli.diagnose.check import files_after_id, print_report


def test_a_configuration_may_be_named_after_the_id(tmp_path: Path) -> None:
    """All other commands take it there."""
    one, two = (write_config(tmp_path / name) for name in ("one.json", "two.json"))
    assert files_after_id(["notes", "-c", str(one)]) == (["notes"], [one])
    assert files_after_id(["notes", "--config", str(one), "-c", str(two)]) == (["notes"], [one, two])


def test_a_command_line_is_left_as_it_is(tmp_path: Path) -> None:
    """A program's own option would be taken from it."""
    file = str(write_config(tmp_path / "one.json"))
    for words in (["python", "-c", "print()"], ["/bin/x", "-c", file], ["x", "-c"], ["x", "-v", file], ["x"]):
        assert files_after_id(words) == (words, [])


def test_an_id_that_the_configuration_after_it_does_not_have_is_told(tmp_path: Path, said: Said) -> None:
    """A typo would be started as a program."""
    file = str(write_config(tmp_path / "one.json"))
    err = said(2, "check", "no-such-server", "-c", file).err
    assert "there is no server 'no-such-server' in that configuration" in err


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
