"""`ls`: what is in a directory, one row an entry."""

import os
from pathlib import Path

import pytest
from support.tools.file_tools import call, context_in, refusal

from quarterdeck.tools.files import ls
from quarterdeck.tools.files.ls import ls_tool

LS = ls_tool()


async def test_each_entry_is_a_row_and_directories_come_first(tmp_path: Path) -> None:
    """A model could not see what there is."""
    (tmp_path / "B.txt").write_text("12345678901")
    (tmp_path / "a.txt").write_text("1")
    (tmp_path / "zoo").mkdir()
    (tmp_path / ".hidden").touch()
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    ctx = context_in(tmp_path)
    answer = await call(LS, ctx, path=".")
    head, *rows = answer.text.split("\n")
    assert head == "6 entries in .: 1 hidden entry not listed (showHidden)."
    assert rows == [
        "kind     size  name",
        "dir         0  zoo/",
        "file        1  a.txt",
        "file       11  B.txt",
        "symlink     0  dangling",
        "symlink     0  link",
        "other       0  pipe",
    ]
    assert not answer.is_error
    whole = await call(LS, ctx, path=".", showHidden=True)
    assert whole.text.split("\n") == ["7 entries in .:", *rows[:2], "file        0  .hidden", *rows[2:]]


async def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    """A model would take an empty answer for a failure."""
    ctx = context_in(tmp_path)
    assert (await call(LS, ctx, path=".")).text == ". is empty."
    (tmp_path / ".a").touch()
    assert (await call(LS, ctx, path=".")).text == ". has only 1 hidden entry: set showHidden to list them."


async def test_a_large_directory_is_listed_in_part_and_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call would fill the context, or hide that there is more."""
    monkeypatch.setattr(ls, "MAX_ROWS", 3)
    for number in range(5):
        (tmp_path / f"f{number}").touch()
        (tmp_path / f".h{number}").touch()
    ctx = context_in(tmp_path)
    some = "Only 3 of them are listed; find can narrow them down."
    assert (await call(LS, ctx, path=".")).text.split("\n") == [
        f"5 entries in .: {some} 5 hidden entries not listed (showHidden).",
        "kind     size  name",
        "file        0  f0",
        "file        0  f1",
        "file        0  f2",
    ]
    text = (await call(LS, ctx, path=".", showHidden=True)).text
    assert text.startswith(f"10 entries in .: {some}\n")
    monkeypatch.setattr(ls, "MAX_HIDDEN", 1)
    assert (await call(LS, ctx, path=".")).text.startswith("5 entries in .: Only 0 of them are listed;")


async def test_what_cannot_be_listed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A model would try the same again."""
    (tmp_path / "file").touch()
    ctx = context_in(tmp_path)
    assert await refusal(LS, ctx, path="file") == "file is not a directory. Use read to see what is in a file."
    assert "outside of what this session may touch" in await refusal(LS, ctx, path="..")
