"""`read`: a text file's lines with their numbers; a picture or a PDF as what it is."""

import base64
import codecs
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.tools.contexts import UNLIMITED_BUDGET
from support.tools.file_tools import call, context_in, outcome_of, refusal

from quarterdeck.tools.files import read
from quarterdeck.tools.files.file_access import CHANGED_SINCE, NOT_READ, ReadState
from quarterdeck.tools.files.read import read_tool
from quarterdeck.tools.results import BudgetKind, OutputBudget
from quarterdeck_protocol.tools import CancelToken

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
READ = read_tool()


async def test_a_file_is_shown_whole_with_line_numbers(tmp_path: Path) -> None:
    """A model could not see what is in a file."""
    (tmp_path / "a.txt").write_text("one\n\nthree\n")
    answer = await call(READ, context_in(tmp_path), path="a.txt")
    assert answer.text == "Showing all 3 lines of a.txt.\n\n     1  one\n     2  \n     3  three"
    assert not answer.is_error


async def test_a_part_says_what_follows_and_how_to_see_it(tmp_path: Path) -> None:
    """A model would take a part for the whole."""
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(1, 11)))
    ctx = context_in(tmp_path)
    assert (await call(READ, ctx, path="a", offset=4, limit=2)).text == (
        "Showing lines 4–5 of 10 in a. 5 further lines follow: offset=6.\n\n     4  4\n     5  5"
    )
    assert (await call(READ, ctx, path="a", offset=8, limit=2)).text.startswith(
        "Showing lines 8–9 of 10 in a. 1 further line follows: offset=10.\n"
    )
    assert (await call(READ, ctx, path="a", offset=9)).text.startswith("Showing lines 9–10 of 10 in a.\n\n")


async def test_two_thousand_lines_are_shown_unless_others_are_asked_for(tmp_path: Path) -> None:
    """One call would fill the context."""
    (tmp_path / "a").write_text("x\n" * 3_000)
    text = (await call(READ, context_in(tmp_path), path="a")).text
    assert text.startswith("Showing lines 1–2,000 of 3,000 in a. 1,000 further lines follow: offset=2001.\n")
    assert text.count("\n") == 2_001


async def test_a_page_fits_the_budget_whole(tmp_path: Path) -> None:
    """A page would be cut in its middle, although the file can be read on."""
    (tmp_path / "a").write_text("x" * 99 + "\n" + "y" * 99 + "\n" * 1_000)
    budget = OutputBudget(BudgetKind.MIDDLE, 2_000)
    text = (await call(READ, context_in(tmp_path, budget=budget), path="a")).text
    assert "left out" not in text
    assert len(text) <= 2_000
    assert text.startswith("Showing lines 1–")
    small = await call(READ, context_in(tmp_path, budget=OutputBudget(BudgetKind.HEAD, 50)), path="a", offset=2)
    assert small.text.startswith("Showing line 2 of 1,001 in a. 999 further line")
    whole = await call(READ, context_in(tmp_path, budget=UNLIMITED_BUDGET), path="a")
    assert whole.text.startswith("Showing all 1,001 lines of a.")


async def test_an_empty_file_is_a_success(tmp_path: Path) -> None:
    """A model would look for what is wrong with it."""
    (tmp_path / "a").touch()
    answer = await call(READ, context_in(tmp_path), path="a")
    assert (answer.text, answer.is_error) == ("a is empty.", False)
    answer = await call(READ, context_in(tmp_path), path="a", offset=2)
    assert (answer.text, answer.is_error) == ("a has 0 lines: offset 2 is past its end.", True)


@pytest.mark.parametrize(
    ("data", "remark"),
    [
        (b"a\r\nb\r\n", "Its lines end in CRLF."),
        (b"a\r\nb\n", "Some of these lines end in CRLF, others in LF."),
        (b"a\rb\r", "Its lines end in CR."),
        (codecs.BOM_UTF8 + b"a\nb", "It is UTF-8 with a byte order mark."),
        ("\ufeffa\nb".encode("utf-16-le"), "It is UTF-16, little-endian, with a byte order mark."),
        (
            "\ufeffa\r\nb".encode("utf-16-be"),
            "Its lines end in CRLF. It is UTF-16, big-endian, with a byte order mark.",
        ),
    ],
)
async def test_what_the_lines_do_not_show_is_said(tmp_path: Path, data: bytes, remark: str) -> None:
    """A model could not know the file's line ends and encoding, or would see them as rubbish."""
    (tmp_path / "a").write_bytes(data)
    text = (await call(READ, context_in(tmp_path), path="a")).text
    assert text == f"Showing all 2 lines of a. {remark}\n\n     1  a\n     2  b"


async def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A model would try the same again."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "bin").write_bytes(b"\x7fELF\0")
    (tmp_path / "short").write_text("a\nb")
    os.mkfifo(tmp_path / "pipe")
    ctx = context_in(tmp_path)

    assert await refusal(READ, ctx, path="gone") == "gone does not exist. Look for it with ls or find."
    assert await refusal(READ, ctx, path="dir") == "dir is a directory, not a file. Use ls to see what is in it."
    assert await refusal(READ, ctx, path="pipe") == "pipe is not a regular file, but a device, a pipe or a socket."
    assert await refusal(READ, ctx, path="short", offset=3) == "short has 2 lines: offset 3 is past its end."
    assert (
        await refusal(READ, ctx, path="short", offset=10**18)
        == f"short has 2 lines: offset {10**18:,} is past its end."
    )
    assert (await refusal(READ, ctx, path="bin")).startswith(
        "bin is a binary file of 5 bytes, not text. Look into it with bash"
    )
    assert "outside of what this session may touch" in await refusal(READ, ctx, path="../x")


@pytest.mark.parametrize(
    ("data", "mime_type", "name"),
    [(PNG, "image/png", "PNG image"), (b"\xff\xd8\xff\xe0\0", "image/jpeg", "JPEG image")],
)
async def test_a_picture_is_a_picture(tmp_path: Path, data: bytes, mime_type: str, name: str) -> None:
    """A model with eyes would be shown nothing."""
    (tmp_path / "a.bin").write_bytes(data)
    outcome = await outcome_of(READ, context_in(tmp_path), path="a.bin")
    assert outcome.wire is not None
    assert not outcome.is_error
    text, image = msgspec.json.decode(outcome.wire.body)["content"]
    assert text == {"type": "text", "text": f"a.bin is a {name} of {len(data)} bytes."}
    assert image == {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


async def test_a_document_is_an_embedded_resource(tmp_path: Path) -> None:
    """A model that reads documents would be shown nothing."""
    data = b"%PDF-1.7\n" + bytes(range(256))
    (tmp_path / "a b.pdf").write_bytes(data)
    outcome = await outcome_of(READ, context_in(tmp_path), path="a b.pdf")
    assert outcome.wire is not None
    _, document = msgspec.json.decode(outcome.wire.body)["content"]
    resource = {
        "uri": (tmp_path / "a b.pdf").resolve().as_uri(),
        "mimeType": "application/pdf",
        "blob": base64.b64encode(data).decode(),
    }
    assert document == {"type": "resource", "resource": resource}


async def test_a_picture_or_document_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One picture would fill the context, or be refused by the model's host."""
    monkeypatch.setattr(read, "MAX_IMAGE_BYTES", len(PNG))
    monkeypatch.setattr(read, "MAX_PDF_BYTES", 10)
    (tmp_path / "fits.png").write_bytes(PNG)
    (tmp_path / "large.png").write_bytes(PNG + b"x")
    (tmp_path / "large.pdf").write_bytes(b"%PDF-123456")
    ctx = context_in(tmp_path)
    assert not (await outcome_of(READ, ctx, path="fits.png")).is_error
    answer = await call(READ, ctx, path="large.png")
    assert answer.text == (
        "large.png is a PNG image of 265 bytes; only those up to 264 bytes can be shown. "
        "Make a smaller one of it first."
    )
    assert answer.is_error
    assert "11 bytes; only those up to 10 bytes" in (await call(READ, ctx, path="large.pdf")).text


async def test_what_was_read_is_remembered_as_it_was_when_reading_began(tmp_path: Path) -> None:
    """An edit would be refused after a read, or allowed on what came later."""
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "bin").write_bytes(b"\0")
    ctx = context_in(tmp_path, gate=True)
    state = ctx.framework.read_state
    assert isinstance(state, ReadState)

    async def check(path: str) -> str | None:
        return state.check(await ctx.fs.real_path(path), (await ctx.fs.stat(path)).revision)

    assert await check("a") == NOT_READ
    await call(READ, ctx, path="a", offset=2)  # past the end: nothing was seen
    assert await check("a") == NOT_READ
    await call(READ, ctx, path="link", limit=1)
    assert await check("a") is None
    (tmp_path / "a").write_text("other\n")
    assert await check("a") == CHANGED_SINCE
    await call(READ, ctx, path="bin")  # there is no more to know about it
    assert await check("bin") is None


async def test_sparse_files_of_gigabytes_are_answered_at_once(tmp_path: Path) -> None:
    """One call on a disk image would hold a session up."""
    size = 5 * 1024**3
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(size)
    with (tmp_path / "line").open("wb") as file:
        file.write(b"x" * 100_000)
        file.truncate(size)
    ctx = context_in(tmp_path)
    assert (await call(READ, ctx, path="zeros")).text.startswith("zeros is a binary file of 5.0 GiB")
    text = (await call(READ, ctx, path="line")).text
    assert text.startswith("Showing line 1 of line. Its end is too far away to be read.\n\n     1  xxx")
    assert text.endswith("x… [much more on this line]")


async def test_a_cancelled_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would wait for the end of a file that it does not want any more."""
    (tmp_path / "a").write_text("x")
    cancel = CancelToken()
    with_file = read.with_file

    def cancel_first(*args: Any) -> Any:
        cancel.cancel()
        return with_file(*args)

    monkeypatch.setattr(read, "with_file", cancel_first)
    answer = await call(READ, context_in(tmp_path), cancel, path="a")
    assert (answer.text, answer.is_error) == ("Reading a was cancelled.", True)
