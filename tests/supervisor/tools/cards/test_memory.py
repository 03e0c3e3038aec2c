"""The working note and where it is kept."""

import asyncio
import os
from pathlib import Path

import pytest
from support.tools.cards import ask, text_of

from quarterdeck.tools.card_types import DeckFramework
from quarterdeck.tools.cards import memory
from quarterdeck.tools.cards.memory import MAX_NOTE_BYTES, FileMemoryStore, InMemoryStore, memory_tool


async def test_a_note_is_read_appended_to_and_replaced() -> None:
    """A model would forget."""
    run = ask(memory_tool)
    assert text_of(await run(action="read")) == "Working memory:\n(empty)"
    await run(action="append", content="one")
    assert text_of(await run(action="append", content="two")) == "Working memory:\none\ntwo"
    assert text_of(await run(action="append")) == "Working memory:\none\ntwo"
    assert text_of(await run(action="replace", content="three")) == "Working memory:\nthree"
    assert text_of(await run(action="read")) == "Working memory:\nthree"
    assert text_of(await run(action="replace")) == "Working memory:\n(empty)"


async def test_the_hosts_store_is_used() -> None:
    """What was noted would be gone with the session."""
    store = InMemoryStore()
    await store.write("from before")
    run = ask(memory_tool, DeckFramework(memory=store))
    await run(action="append", content="and now")
    assert await store.read() == "from before\nand now"


async def test_two_calls_that_append_at_once_are_both_heard() -> None:
    """A note taken at the same time as another would be lost."""

    class SlowStore(InMemoryStore):
        async def read(self) -> str:
            text = await super().read()
            await asyncio.sleep(0)
            return text

    store = SlowStore()
    run = ask(memory_tool, DeckFramework(memory=store))
    await asyncio.gather(*(run(action="append", content=str(number)) for number in range(5)))
    assert sorted((await store.read()).splitlines()) == list("01234")


async def test_a_note_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in a loop would fill memory and disk."""
    monkeypatch.setattr(memory, "MAX_NOTE_BYTES", 10)
    run = ask(memory_tool)
    await run(action="append", content="ä" * 5)
    result = await run(action="append", content="x")
    assert result.is_error
    assert "it may hold 10 bytes, not 12" in text_of(result)
    assert text_of(await run(action="read")) == f"Working memory:\n{'ä' * 5}"


async def test_a_store_that_fails_is_an_error_of_the_call() -> None:
    """A full disk would end the session."""

    class FullStore(InMemoryStore):
        async def write(self, text: str) -> None:
            raise OSError(28, "No space left on device")

    result = await ask(memory_tool, DeckFramework(memory=FullStore()))(action="append", content="x")
    assert result.is_error
    assert "No space left" in text_of(result)


async def test_a_file_keeps_the_note_private_and_whole(tmp_path: Path) -> None:
    """A note would be gone after a restart, or be read by others."""
    path = tmp_path / "session" / "memory.md"
    store = FileMemoryStore(path)
    assert await store.read() == ""
    assert not path.parent.exists()
    await store.write("one\r\ntwo ä \udcff")
    assert await FileMemoryStore(path).read() == "one\r\ntwo ä ?"
    assert path.stat().st_mode & 0o777 == 0o600
    await store.write("")
    assert await store.read() == ""
    assert os.listdir(path.parent) == ["memory.md"]


async def test_a_file_that_is_no_note_is_refused(tmp_path: Path) -> None:
    """A file that grew elsewhere would fill the memory."""
    path = tmp_path / "memory.md"
    path.write_bytes(b"x" * (MAX_NOTE_BYTES + 1))
    with pytest.raises(OSError, match="larger than"):
        await FileMemoryStore(path).read()
