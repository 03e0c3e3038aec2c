"""`write` and `edit`: a file with other content, or a part of it replaced."""

import codecs
import json
import os
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest
from support.tools.file_tools import Answer, call, context_in, outcome_of, refusal

from quarterdeck.tools.files.edit import edit_tool, write_tool
from quarterdeck.tools.files.file_access import CHANGED_SINCE, NOT_READ
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.read import read_tool
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.spec import DefinedTool

WRITE = write_tool()
EDIT = edit_tool()
READ = read_tool()


async def test_a_new_file_is_made_with_its_directories(tmp_path: Path) -> None:
    """A model would have to make every directory by itself."""
    answer = await call(WRITE, context_in(tmp_path), path="a/b/c.txt", content="café\r\n")
    assert (answer.text, answer.is_error) == ("Saved 7 bytes to a/b/c.txt. It is a new file.", False)
    assert (tmp_path / "a/b/c.txt").read_bytes() == "café\r\n".encode()


async def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The end of a longer file would be left behind the new content."""
    (tmp_path / "a").write_text("much longer than before")
    (tmp_path / "a").chmod(0o750)
    answer = await call(WRITE, context_in(tmp_path), path="a", content="x")
    assert answer.text == "Saved 1 byte to a. It replaced 23 bytes."
    assert (tmp_path / "a").read_text() == "x"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750
    assert (await call(WRITE, context_in(tmp_path), path="a", content="")).text.startswith("Saved 0 bytes to a.")


@pytest.mark.parametrize(
    ("tool", "given", "unread"),
    [
        (WRITE, {"content": "mine"}, "a was not written: {}. Read it first, then write it again."),
        (EDIT, {"oldText": "theirs", "newText": "mine"}, "a was not changed: {}. Read it first, then edit it."),
    ],
    ids=["write", "edit"],
)
async def test_a_file_is_changed_only_as_it_was_read(
    tmp_path: Path, tool: DefinedTool, given: dict[str, object], unread: str
) -> None:
    """A model would destroy what it never saw."""
    (tmp_path / "a").write_text("theirs")
    (tmp_path / "link").symlink_to("a")
    ctx = context_in(tmp_path, gate=True)
    assert await call(tool, ctx, path="a", **given) == Answer(unread.format(NOT_READ), is_error=True)
    await call(READ, ctx, path="link")
    (tmp_path / "a").write_text("theirs again")
    assert CHANGED_SINCE in await refusal(tool, ctx, path="a", **given)
    assert (tmp_path / "a").read_text() == "theirs again"
    await call(READ, ctx, path="link")
    assert not (await call(tool, ctx, path="a", **given)).is_error


async def test_what_was_written_counts_as_read(tmp_path: Path) -> None:
    """A model would have to read back what it has just said."""
    ctx = context_in(tmp_path, gate=True)
    assert not (await call(WRITE, ctx, path="a", content="one")).is_error
    assert not (await call(EDIT, ctx, path="a", oldText="one", newText="two")).is_error
    assert not (await call(WRITE, ctx, path="./a", content="three")).is_error
    assert (tmp_path / "a").read_text() == "three"


async def test_a_file_that_appears_meanwhile_is_not_replaced_unread(tmp_path: Path) -> None:
    """A file that a user makes at the same moment would be lost."""

    class Busy(LocalFs):
        async def mkdir(self, path: str, *, recursive: bool = False) -> None:
            await super().mkdir(path, recursive=recursive)
            (tmp_path / "dir/a").write_text("theirs")

    ctx = context_in(tmp_path, gate=True, fs=Busy(Roots(tmp_path), str(tmp_path)))
    await refusal(WRITE, ctx, path="dir/a", content="mine")
    assert (tmp_path / "dir/a").read_text() == "theirs"


async def test_what_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A model would try the same again."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    ctx = context_in(tmp_path)

    async def refused(path: str, content: str = "x") -> str:
        return await refusal(WRITE, ctx, path=path, content=content)

    assert await refused("dir") == "dir was not written: it is a directory."
    assert await refused("new/dir/") == "new/dir/ names a directory. Give the name of a file in it."
    assert not (tmp_path / "new").exists()
    assert await refused("pipe") == "pipe was not written: it is not a regular file, but a device, a pipe or a socket."
    assert await refused("a", "ab\ud800") == (
        "Nothing was written: the content's character 3 is half a surrogate pair, which no file can hold as text."
    )
    assert (await refused("file/x")).startswith("Nothing was written. file/x: a part of this path")
    assert "outside of what this session may touch" in await refused("../x")
    assert "outside of what this session may touch" in await refused("../x/y/z")
    assert (await refused("a\0b")).startswith("Nothing was written. a\\x00b")


async def test_a_part_is_replaced_and_the_change_is_shown(tmp_path: Path) -> None:
    """A model could not change a file, or see what it did."""
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "a.py").chmod(0o750)
    answer = await call(EDIT, context_in(tmp_path), path="a.py", oldText="1", newText="3")
    assert (answer.text, answer.is_error) == ("Updated a.py: applied 1 replacement.", False)
    assert answer.value == {"path": "a.py", "replacements": 1, "diff": "@@ -1,2 +1,2 @@\n-x = 1\n+x = 3\n y = 2\n"}
    assert (tmp_path / "a.py").read_text() == "x = 3\ny = 2\n"
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o750


async def test_a_match_with_other_blanks_is_said(tmp_path: Path) -> None:
    """A model would believe that the file is as it thought."""
    (tmp_path / "a").write_text("\tx  = 1\n")
    answer = await call(EDIT, context_in(tmp_path), path="a", oldText="    x = 1", newText="    x = 2")
    assert "oldText was found with other blanks" in answer.text
    assert (tmp_path / "a").read_text() == "\tx = 2\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"one\r\n2\r\nII\r\n"),
        (codecs.BOM_UTF8 + b"one\ntwo", codecs.BOM_UTF8 + b"one\n2\nII"),
        ("\ufeffone\r\ntwo".encode("utf-16-le"), "\ufeffone\r\n2\r\nII".encode("utf-16-le")),
        ("\ufeffone\ntwo".encode("utf-16-be"), "\ufeffone\n2\nII".encode("utf-16-be")),
    ],
)
async def test_encoding_and_line_ends_are_kept(tmp_path: Path, before: bytes, after: bytes) -> None:
    """One edit would rewrite a file of another system from end to end."""
    (tmp_path / "a").write_bytes(before)
    answer = await call(EDIT, context_in(tmp_path), path="a", oldText="two", newText="2\nII")
    assert not answer.is_error
    assert (tmp_path / "a").read_bytes() == after


async def test_a_change_of_others_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """What a user saves at the same moment would be overwritten."""
    (tmp_path / "a").write_text("old\n")

    class Busy(LocalFs):
        async def open_binary(self, path: str) -> BinaryIO:
            file = await super().open_binary(path)
            (tmp_path / "a").write_text("theirs, and old\n")
            return file

    ctx = context_in(tmp_path, fs=Busy(Roots(tmp_path), str(tmp_path)))
    assert await refusal(EDIT, ctx, path="a", oldText="old", newText="new") == (
        "a was not changed: another program changed it meanwhile. Read it again first."
    )
    assert (tmp_path / "a").read_text() == "theirs, and old\n"


async def test_edits_asked_for_at_once_are_all_made(tmp_path: Path) -> None:
    """Of several changes of one file, the last one written would win."""
    (tmp_path / "a").write_text("".join(f"<{number}>\n" for number in range(10)))
    ctx = context_in(tmp_path, gate=True)
    await call(READ, ctx, path="a")
    failed = []

    async def change(number: int) -> None:
        answer = await call(EDIT, ctx, path="a", oldText=f"<{number}>", newText=f"[{number}]")
        failed.extend([answer.text] * answer.is_error)

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(change, number)
    assert not failed
    assert (tmp_path / "a").read_text() == "".join(f"[{number}]\n" for number in range(10))


async def test_what_cannot_be_edited_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A model would try the same again."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "binary").write_bytes(b"old\0")
    os.mkfifo(tmp_path / "pipe")
    ctx = context_in(tmp_path)

    async def refused(path: str, old: str = "old", new: str = "new") -> str:
        return await refusal(EDIT, ctx, path=path, oldText=old, newText=new)

    assert await refused("dir") == "dir was not changed: it is a directory."
    assert await refused("pipe") == "pipe was not changed: it is not a regular file, but a device, a pipe or a socket."
    assert await refused("binary") == (
        "binary was not changed: it is binary (it holds NUL bytes). Change it with bash."
    )
    assert await refused("gone") == "Nothing was changed. gone does not exist. Look for it with ls or find."
    assert (await refused("file", "")).startswith("file was not changed: oldText is empty.")
    assert (await refused("file", "old", "\ud800")).startswith("file was not changed: newText holds half a surrogate")
    assert (await refused("file", "\ud800")).startswith("file was not changed: oldText was not found")
    assert "outside of what this session may touch" in await refused("../x")
    assert (tmp_path / "file").read_text() == "old"


async def test_an_mcp_client_is_shown_the_diff_as_it_is(tmp_path: Path) -> None:
    """A model would read its own change as one quoted line."""
    (tmp_path / "a.py").write_text("x = 1\n")
    outcome = await outcome_of(EDIT, context_in(tmp_path), path="a.py", oldText="1", newText="3")
    assert outcome.wire is not None
    [block] = json.loads(outcome.wire.body)["content"]
    assert block["text"] == "Updated a.py: applied 1 replacement.\n\n@@ -1,1 +1,1 @@\n-x = 1\n+x = 3\n"
