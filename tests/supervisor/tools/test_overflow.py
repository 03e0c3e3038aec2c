"""What is too long for a model."""

import os
from pathlib import Path

import pytest

from quarterdeck.tools import overflow
from quarterdeck.tools.overflow import OverflowFiles, fit_result
from quarterdeck.tools.results import BudgetKind, JsonContentBlock, OutputBudget, TextContentBlock, ToolResult
from quarterdeck_protocol.tools import WireResult

pytestmark = pytest.mark.anyio

BUDGET = OutputBudget(BudgetKind.MIDDLE, 10)


def text_of(result: ToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContentBlock)
    return block.text


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


async def test_without_a_place_a_text_is_only_cut() -> None:
    """A tool in a bare context would fail on a long output."""
    assert "left out]" in text_of(await fit_result(ToolResult.of_text("x" * 99), "probe", BUDGET, None))


async def test_a_budgets_own_notice_wins(tmp_path: Path) -> None:
    """A host that words its notices would see ours instead."""
    budget = OutputBudget(BudgetKind.HEAD, 2, notice=lambda omitted: f"<{omitted}>")
    assert text_of(await fit_result(ToolResult.of_text("abcdef"), "probe", budget, OverflowFiles(tmp_path))) == "ab<4>"


async def test_old_texts_make_room_for_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chatty session would fill the disk."""
    monkeypatch.setattr(overflow, "MAX_KEPT_BYTES", 250)
    files = OverflowFiles(tmp_path)
    for _ in range(5):
        await files.keep("probe", "x" * 100)
    assert sorted(os.listdir(tmp_path)) == ["probe-4.txt", "probe-5.txt"]


async def test_an_immense_text_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One output would fill the disk."""
    monkeypatch.setattr(overflow, "MAX_TEXT_BYTES", 100)
    await OverflowFiles(tmp_path).keep("probe", "x" * 1000)
    assert (tmp_path / "probe-1.txt").stat().st_size == 100
