"""How the demonstration is told, and how it ends; what it does is tried in the acceptance tests."""

import json
from collections.abc import Callable

import pytest
from support.command_line import Said

from quarterdeck.cli.diagnose import demo as demonstration
from quarterdeck.cli.program import run
from quarterdeck.demo.run import AnyEvent, Death, DemoError, End, Fact, Promise, Quote, Scene, Table
from quarterdeck_protocol.faults import Dossier

EVENTS: tuple[AnyEvent, ...] = (
    Scene("A beginning"),
    Fact("something happened\x1b[2J"),
    Quote("the server said so\n" + "word " * 40),
    Table(("NAME", "WHAT"), (("a", "b"),)),
    Death("fragile", Dossier(exit_status=70, stderr_tail="the end")),
    Promise("it holds", is_kept=True),
    Promise("it does not", is_kept=False),
    End(1, 1, 2.5),
)


def telling(monkeypatch: pytest.MonkeyPatch, *, is_kept: bool) -> None:
    async def run_demo(tell: Callable[[AnyEvent], None]) -> bool:
        for event in EVENTS:
            tell(event)
        return is_kept

    monkeypatch.setattr(demonstration, "run_demo", run_demo)


def test_it_reads_well_without_a_terminal(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A log of a CI run would be full of escape sequences."""
    telling(monkeypatch, is_kept=True)
    out = said(0, "demo").out
    assert "\x1b" not in out
    told = out[out.index(" 1  A beginning") :].splitlines()
    assert told[0:3] == [" 1  A beginning", "    something happened\\x1b[2J", "    │ the server said so"]
    assert told[3].rstrip() == "    │ " + "word " * 39 + "word"
    assert told[told.index("    NAME  WHAT") :] == [
        "    NAME  WHAT",
        "    a     b",
        "    the dossier of fragile's death:",
        "    │ exit status 70",
        "    │ stderr: the end",
        "    ✓ it holds",
        "    ✗ it does not",
        "",
        "1 of 2 promises were kept, in 2.5 s.",
    ]


def test_a_program_gets_every_event_and_a_broken_promise_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A check of the demonstration would have to parse prose."""
    telling(monkeypatch, is_kept=True)
    told = [json.loads(line) for line in said(0, "demo", "--json").out.splitlines()]
    kinds = ["scene", "fact", "quote", "table", "death", "promise", "promise", "end"]
    assert [event["event"] for event in told] == kinds
    assert told[4]["dossier"]["exit_status"] == 70
    telling(monkeypatch, is_kept=False)
    assert run(["demo"]) == 1


def test_a_demonstration_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """The first thing that a new user sees would be a traceback."""

    async def run_demo(tell: Callable[[AnyEvent], None]) -> bool:
        raise DemoError("`quarterdeck serve` does not start: no space left")

    monkeypatch.setattr(demonstration, "run_demo", run_demo)
    assert "no space left" in said(6, "demo").err
