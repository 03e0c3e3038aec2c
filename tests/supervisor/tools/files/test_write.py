"""`write`: a file with the content given, whole or not at all."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.tools.file_tools import call, context_in

from quarterdeck.tools.files.edit import edit_tool
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.read import read_tool
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.files.write import write_tool
from quarterdeck_protocol.tools import CancelToken, ToolHints

pytestmark = pytest.mark.anyio

WRITE = write_tool()


def test_the_tool_is_announced_as_it_is_known() -> None:
    """Clients that know the tool would not recognise it, or let it run without asking."""
    properties: Any = WRITE.parameters["properties"]
    assert {name: each["type"] for name, each in properties.items()} == {"path": "string", "content": "string"}
    assert (WRITE.parameters["required"], WRITE.parameters["additionalProperties"]) == (["path", "content"], False)
    assert (WRITE.name, WRITE.label) == ("write", "Write file")
    assert WRITE.descriptor().hints == ToolHints(read_only=False, destructive=True, idempotent=True, open_world=False)


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


async def test_a_file_that_was_not_read_is_not_replaced(tmp_path: Path) -> None:
    """A model would destroy what it never saw."""
    (tmp_path / "a").write_text("theirs")
    ctx = context_in(tmp_path, gate=True)
    answer = await call(WRITE, ctx, path="a", content="mine")
    assert answer.is_error
    assert answer.text == "a was not written: it has not been read in this session. Read it first, then write it again."
    await call(read_tool(), ctx, path="a")
    (tmp_path / "a").write_text("theirs again")
    answer = await call(WRITE, ctx, path="a", content="mine")
    assert answer.is_error
    assert "it has changed on disk since it was last read" in answer.text
    assert (tmp_path / "a").read_text() == "theirs again"
    await call(read_tool(), ctx, path="a")
    assert not (await call(WRITE, ctx, path="a", content="mine")).is_error


async def test_what_was_written_counts_as_read(tmp_path: Path) -> None:
    """A model would have to read back what it has just said."""
    ctx = context_in(tmp_path, gate=True)
    assert not (await call(WRITE, ctx, path="a", content="one")).is_error
    assert not (await call(edit_tool(), ctx, path="a", oldText="one", newText="two")).is_error
    assert not (await call(WRITE, ctx, path="./a", content="three")).is_error
    assert (tmp_path / "a").read_text() == "three"


async def test_a_file_that_appears_meanwhile_is_not_replaced_unread(tmp_path: Path) -> None:
    """A file that a user makes at the same moment would be lost."""

    class Busy(LocalFs):
        async def mkdir(self, path: str, *, recursive: bool = False) -> None:
            await super().mkdir(path, recursive=recursive)
            (tmp_path / "dir/a").write_text("theirs")

    ctx = context_in(tmp_path, gate=True, fs=Busy(Roots(tmp_path), str(tmp_path)))
    answer = await call(WRITE, ctx, path="dir/a", content="mine")
    assert answer.is_error
    assert (tmp_path / "dir/a").read_text() == "theirs"


async def test_a_cancelled_call_writes_nothing(tmp_path: Path) -> None:
    """What a user stopped would happen all the same."""
    cancel = CancelToken()

    class Stopped(LocalFs):
        async def real_path(self, path: str) -> str:
            cancel.cancel()
            return await super().real_path(path)

    ctx = context_in(tmp_path, fs=Stopped(Roots(tmp_path), str(tmp_path)))
    answer = await call(WRITE, ctx, cancel, path="a", content="x")
    assert (answer.text, answer.is_error) == ("a was not written: the call was cancelled.", True)
    assert not (tmp_path / "a").exists()


async def test_what_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A model would try the same again."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    ctx = context_in(tmp_path)

    async def refusal(path: str, content: str = "x") -> str:
        answer = await call(WRITE, ctx, path=path, content=content)
        assert answer.is_error
        return answer.text

    assert await refusal("dir") == "dir was not written: it is a directory."
    assert await refusal("new/dir/") == "new/dir/ names a directory. Give the name of a file in it."
    assert not (tmp_path / "new").exists()
    assert await refusal("pipe") == "pipe was not written: it is not a regular file, but a device, a pipe or a socket."
    assert await refusal("a", "ab\ud800") == (
        "Nothing was written: the content's character 3 is half a surrogate pair, which no file can hold as text."
    )
    assert (await refusal("file/x")).startswith("Nothing was written. file/x: a part of this path")
    assert "outside of what this session may touch" in await refusal("../x")
    assert "outside of what this session may touch" in await refusal("../x/y/z")
    assert (await refusal("a\0b")).startswith("Nothing was written. a\\x00b")
