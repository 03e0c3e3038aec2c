"""`bg-process`: what a model is told of its background processes."""

import asyncio
import os
from pathlib import Path

import pytest
from support.benches import Session, session
from support.identities import give_to_commands
from support.leftovers import eventually_async, running_with

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.catalogue import find_card
from quarterdeck.tools.commands.jobs import STOP_GRACE_MS
from quarterdeck.tools.commands.output import MAX_BUFFERED_LINES
from quarterdeck.tools.commands.process import BgProcessCard, bg_process_tool
from quarterdeck.tools.context import Stream
from quarterdeck.tools.results import TextContentBlock

pytestmark = pytest.mark.anyio


def build(s: Session, captures: Path | None = None) -> BgProcessCard:
    """The card of a session."""
    card = bg_process_tool(DeckContext(str(s.workspace), captures=captures))
    assert isinstance(card, BgProcessCard)
    return card


async def said(card: BgProcessCard, s: Session, *, is_error: bool = False, **given: object) -> str:
    """What a call says."""
    result = await card.run(given, s.ctx)
    [block] = result.content
    assert isinstance(block, TextContentBlock)
    assert result.is_error is is_error, block.text
    return block.text


def test_the_row_is_as_the_catalogue_knows_it() -> None:
    """The card would be missing from the deck, or known by another name."""
    row = find_card("bg-process")
    assert row is not None
    assert (row.id, row.title, row.profiles) == ("bg-process", "Background process", (Profile.ALL,))
    card = row.build(DeckContext("/"))
    assert (card.name, card.label, card.read_only) == (row.id, row.title, False)
    assert (MAX_BUFFERED_LINES, STOP_GRACE_MS) == (2_000, 3_000)
    assert row.build(DeckContext("/")) is not card


async def test_a_process_is_started_polled_listed_and_stopped(tmp_path: Path) -> None:
    """A model could not work with a server."""
    async with session(tmp_path) as s:
        card = build(s)
        assert await said(card, s, action="list") == "There are no background processes."
        text = await said(card, s, action="start", command="echo up; echo oops >&2; exec sleep 4701.5")
        assert text.startswith("Started bg-1 (pid ")
        assert '{"action": "poll", "id": "bg-1"}' in text
        job = card.table.jobs[0]
        await eventually_async(lambda: all(ring.has_news for ring in job.lines.values()))
        expected = "Process bg-1 — running\n--- stdout ---\nup\n--- stderr ---\noops"
        assert await said(card, s, action="poll", id="bg-1") == expected
        assert await said(card, s, action="poll", id="bg-1") == expected
        assert await said(card, s, action="poll", id="bg-1", sinceLast=True) == (
            "Process bg-1 — running\nNo new output since the last poll."
        )
        assert await said(card, s, action="list") == "bg-1 [running] echo up; echo oops >&2; exec sleep 4701.5"
        assert await said(card, s, action="stop", id="bg-1") == (
            "Stopped bg-1 — signalled (SIGTERM), with all that it had started."
        )
        assert not running_with("4701.5")
        assert "had ended before" in await said(card, s, action="stop", id="bg-1")
        assert (await said(card, s, action="poll", id="bg-1")).startswith("Process bg-1 — signalled (SIGTERM)\n")


async def test_only_new_lines_are_shown_to_whoever_asks_for_them(tmp_path: Path) -> None:
    """A line that came in two pieces would be two, or a log be shown again at every poll."""
    async with session(tmp_path) as s:
        os.mkfifo(s.workspace / "go")
        give_to_commands(s.workspace / "go")
        card = build(s)
        await said(card, s, action="start", command="echo one; printf par; read _ <go; printf 'tial\\n'; exit 2")
        ring = card.table.jobs[0].lines[Stream.STDOUT]
        await eventually_async(lambda: ring.all_lines().lines == ("one", "par"))
        assert "--- stdout ---\none\npar" in await said(card, s, action="poll", id="bg-1", sinceLast=True)
        await asyncio.to_thread((s.workspace / "go").write_text, "\n")
        await eventually_async(lambda: not card.table.jobs[0].is_running)
        text = await said(card, s, action="poll", id="bg-1", sinceLast=True)
        assert text == "Process bg-1 — exited (code 2)\n--- stdout ---\npartial"
        text = await said(card, s, action="poll", id="bg-1")
        assert text == "Process bg-1 — exited (code 2)\n--- stdout ---\none\npartial"


async def test_two_cards_have_two_tables(tmp_path: Path) -> None:
    """Two sessions would share their processes."""
    async with session(tmp_path) as s:
        first, second = build(s), build(s)
        await said(first, s, action="start", command="sleep 4702.5")
        text = await said(second, s, is_error=True, action="poll", id="bg-1")
        assert text == "There is no process 'bg-1'. This session has no processes: start one first."


async def test_closing_the_card_ends_its_processes_and_removes_their_files(tmp_path: Path) -> None:
    """A session would leave processes and files behind."""
    async with session(tmp_path) as s:
        captures = tmp_path / "captures"
        card = build(s, captures)
        await said(card, s, action="start", command="setsid sleep 4703.5 & exec sleep 4703.5")
        assert sorted(path.name for path in captures.iterdir()) == ["bg-1.err", "bg-1.out"]
        await card.aclose()
        assert not running_with("4703.5")
        assert not captures.exists()
        assert "the session has ended" in await said(card, s, is_error=True, action="start", command="true")


async def test_what_is_missing_or_wrong_is_said(tmp_path: Path) -> None:
    """A model could not mend its call."""
    async with session(tmp_path, read=["/no/such/thing"]) as s:
        card = build(s)
        assert "needs a command" in await said(card, s, is_error=True, action="start", command=" ")
        assert "needs an id" in await said(card, s, is_error=True, action="poll")
        assert "expected one of" in await said(card, s, is_error=True, action="restart")
        assert "/no/such/thing" in await said(card, s, is_error=True, action="start", command="true")
        assert await said(card, s, action="list") == "There are no background processes."
