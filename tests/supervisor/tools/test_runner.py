"""The box that a session calls, and what is too long for a model."""

import asyncio
import os
from pathlib import Path

import pytest
from support.tools.allowances import OnlyReads
from support.tools.cards import PlayedCard, text_of
from support.tools.contexts import inert_context

from quarterdeck.tools import runner
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import BudgetKind, JsonContentBlock, OutputBudget, TextContentBlock, ToolResult
from quarterdeck.tools.runner import DeckToolBox, OverflowFiles, fit_result
from quarterdeck_protocol.tools import CancelToken, Client, ProgressNote, ToolCall, ToolHints, ToolOutcome, WireResult


async def call(box: DeckToolBox, name: str, value: object = None) -> ToolOutcome:
    return await box.runner.run(ToolCall("7", name, value), CancelToken())


def test_descriptors_carry_all_that_a_client_is_shown() -> None:
    """A client would see a bare name, or a server's tool without what the server said of it."""
    hints = ToolHints(read_only=True)
    native = PlayedCard("look", label="Look around", hints=hints)
    grafted = PlayedCard("fs__read", label="fs__read", definition=b"{}")
    first, second = DeckToolBox([native, grafted], inert_context()).descriptors()
    assert (first.name, first.title, first.hints, first.definition) == ("look", "Look around", hints, None)
    assert (first.description, first.parameters) == ("Plays.", native.parameters)
    assert (second.name, second.title, second.hints, second.definition) == ("fs__read", "", None, b"{}")


async def test_of_two_cards_with_one_name_the_first_counts() -> None:
    """Clients refuse a list with one name twice, and a graft could take a built-in's place."""
    first, second = PlayedCard("look", label="First"), PlayedCard("look", label="Second")
    box = DeckToolBox([first, second], inert_context())
    assert [descriptor.title for descriptor in box.descriptors()] == ["First"]
    await call(box, "look")
    assert (len(first.seen), len(second.seen)) == (1, 0)


async def test_an_unknown_name_is_an_outcome_with_the_nearest() -> None:
    """A model could not correct a slip, or would be sent back a name of any length."""
    box = DeckToolBox([PlayedCard("look")], inert_context())
    outcome = await call(box, "lok")
    assert outcome == ToolOutcome("7", "There is no tool called 'lok': did you mean 'look'?", is_error=True)
    assert (await call(box, "x" * 1000)).output == f"There is no tool called '{'x' * 162}'."


async def test_nothing_is_suggested_that_its_client_may_not_use() -> None:
    """A client would learn what there is beside its group."""
    box = DeckToolBox([PlayedCard("look"), PlayedCard("readable")], inert_context())
    for name, hint in (("lok", "."), ("redable", ": did you mean 'readable'?")):
        outcome = await box.runner.run(ToolCall("7", name, {}, client=Client("c", "c", OnlyReads())), CancelToken())
        assert outcome.output == f"There is no tool called {name!r}{hint}"


async def test_whatever_a_card_raises_is_an_outcome() -> None:
    """One broken card would end a session."""

    async def fail(value: object, ctx: ToolContext) -> ToolResult:
        raise KeyError("gone")

    outcome = await call(DeckToolBox([PlayedCard("look", fail)], inert_context()), "look")
    assert outcome == ToolOutcome("7", "look did not finish: 'gone'", is_error=True)


async def test_a_cancelled_call_is_not_begun() -> None:
    """A file would be changed for a client that has given up."""
    card, token = PlayedCard("look"), CancelToken()
    token.cancel()
    outcome = await DeckToolBox([card], inert_context()).runner.run(ToolCall("7", "look", {}), token)
    assert outcome == ToolOutcome("7", "look was cancelled before it began.", is_error=True)
    assert card.seen == []


async def test_cancellation_of_the_task_passes() -> None:
    """A client that gives up would wait for a result nobody wants."""
    started = asyncio.Event()

    async def hang(value: object, ctx: ToolContext) -> ToolResult:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(call(DeckToolBox([PlayedCard("look", hang)], inert_context()), "look"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_calls_share_one_identity_and_neither_token_nor_progress() -> None:
    """A checklist would be empty for the next call, or one call's progress shown as another's."""
    card, base = PlayedCard("look"), inert_context()
    box = DeckToolBox([card], base)
    tokens, notes = [CancelToken(), CancelToken()], list[ProgressNote]()
    for token, report in zip(tokens, (notes.append, None), strict=True):
        await box.runner.run(ToolCall("7", "look", {"a": 1}, report), token)
    contexts = [ctx for _, ctx in card.seen]
    assert contexts == [base, base]
    assert [ctx.cancel for ctx in contexts] == tokens
    for ctx in contexts:
        ctx.tell(1)
    assert notes == [ProgressNote(1)]
    assert card.seen[0][0] == {"a": 1}


BUDGET = OutputBudget(BudgetKind.MIDDLE, 10)


async def test_what_fits_is_the_very_same(tmp_path: Path) -> None:
    """A server's or an image's own form would be lost on the way."""
    result = ToolResult((TextContentBlock("short"), JsonContentBlock("x" * 99)), wire=WireResult(b"{}", "2025-11-25"))
    assert await fit_result(result, "probe", BUDGET, OverflowFiles(tmp_path)) is result
    assert not os.listdir(tmp_path)


async def test_a_long_text_is_cut_and_kept_in_the_file_that_it_names(tmp_path: Path) -> None:
    """A model could never see the rest of what it asked for."""
    cut = await fit_result(ToolResult.of_error("0123456789abcdef"), "probe", BUDGET, OverflowFiles(tmp_path))
    assert text_of(cut) == f"01234\n[6 bytes left out; the full text is in {tmp_path}/probe-1.txt]\nbcdef"
    assert cut.is_error
    assert (tmp_path / "probe-1.txt").read_text() == "0123456789abcdef"


async def test_a_text_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    """A full disk would take away even what there is room for."""
    cut = await fit_result(ToolResult.of_text("0123456789abcdef"), "probe", BUDGET, OverflowFiles(tmp_path / "gone"))
    assert text_of(cut) == "01234\n[6 bytes left out]\nbcdef"


async def test_old_texts_make_room_for_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chatty session would fill the disk."""
    monkeypatch.setattr(runner, "MAX_KEPT_BYTES", 250)
    files = OverflowFiles(tmp_path)
    for _ in range(5):
        await files.keep("probe", "x" * 100)
    assert sorted(os.listdir(tmp_path)) == ["probe-4.txt", "probe-5.txt"]


async def test_an_immense_text_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One output would fill the disk."""
    monkeypatch.setattr(runner, "MAX_TEXT_BYTES", 100)
    await OverflowFiles(tmp_path).keep("probe", "x" * 1000)
    assert (tmp_path / "probe-1.txt").stat().st_size == 100
