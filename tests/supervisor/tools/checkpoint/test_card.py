"""What is kept before a file is changed."""

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from support.tools.cards import PlayedCard
from support.waiting import eventually_async

from quarterdeck.tools.checkpoint import card as checkpoint
from quarterdeck.tools.checkpoint.card import CheckpointingCard, maybe_wrap_checkpoint
from quarterdeck.tools.context import FileStat, ToolContext
from quarterdeck.tools.files.local_files import LocalFs, make_local_context
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.results import ToolResult
from quarterdeck_protocol.tools import CancelToken, ToolHints


@dataclass
class PlainStore:
    """Remembers what it is handed; raises when told to."""

    kept: list[tuple[str, bytes | None]] = field(default_factory=list)
    error: Exception | None = None

    async def record(self, path: str, previous: bytes | None) -> None:
        if self.error is not None:
            raise self.error
        self.kept.append((path, previous))


@dataclass
class Nodes(PlainStore):
    """One that has nodes."""

    begun: list[str] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    forgotten: list[object] = field(default_factory=list)

    def begin_node(self, name: str) -> str:
        self.begun.append(name)
        return f"{len(self.begun)}-{name}"

    async def record_gap(self, path: str, reason: str) -> None:
        self.gaps.append((path, reason))

    async def forget(self, node: object) -> None:
        if self.error is not None:
            raise self.error
        self.forgotten.append(node)


async def write(value: object, ctx: ToolContext) -> ToolResult:
    assert isinstance(value, Mapping)
    await ctx.fs.write_file(value["path"], value["content"])
    return ToolResult.of_text("written")


async def refuse(value: object, ctx: ToolContext) -> ToolResult:
    return ToolResult.of_error("no")


def place(directory: Path, name: str) -> str:
    return str(directory.resolve() / name)


class ClosedFs(LocalFs):
    """Files that can be looked at and not opened."""

    async def open_binary(self, path: str) -> BinaryIO:
        raise OSError(errno.EIO, "input/output error", path)


class BlindFs(LocalFs):
    """Files that cannot even be looked at."""

    async def stat(self, path: str) -> FileStat:
        raise PermissionError(errno.EACCES, "permission denied", path)


def test_without_a_handle_the_card_is_the_very_same() -> None:
    """An install without undo would behave otherwise than before."""
    card = PlayedCard("write")
    assert maybe_wrap_checkpoint(card, None) is card


def test_nothing_that_a_model_sees_changes() -> None:
    """A model would meet another tool where changes are kept."""
    card = PlayedCard("write", label="L", description="D", read_only=True, hints=ToolHints(), definition=b"{}")
    wrapped = CheckpointingCard(card, PlainStore())
    for name in ("name", "label", "description", "parameters", "read_only", "hints", "definition"):
        assert getattr(wrapped, name) == getattr(card, name), name


async def test_the_content_before_the_call_is_kept_and_the_call_goes_on(tmp_path: Path) -> None:
    """An undo would bring back what the call wrote."""
    (tmp_path / "a").write_bytes(b"before \xff")
    store, card = PlainStore(), PlayedCard("write", write)
    value = {"path": "a", "content": "after"}
    ctx = make_local_context(tmp_path)
    await CheckpointingCard(card, store).run(value, ctx)
    assert store.kept == [(place(tmp_path, "a"), b"before \xff")]
    assert (tmp_path / "a").read_text() == "after"
    assert card.seen == [(value, ctx)]


@pytest.mark.parametrize(
    ("path", "target", "content"),
    [
        *((path, "new", None) for path in ("new", "./new")),
        *((path, "deep/er/new", None) for path in ("deep/er/new", "deep//er/new")),
        pytest.param("link", "real", b"before", id="a link, as what it leads to"),
    ],
)
async def test_a_file_is_kept_under_its_real_path(
    tmp_path: Path, path: str, target: str, content: bytes | None
) -> None:
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    store = PlainStore()
    await CheckpointingCard(PlayedCard("write"), store).run({"path": path}, make_local_context(tmp_path))
    assert store.kept == [(place(tmp_path, target), content)]


@pytest.mark.parametrize(
    "value", [None, 5, "x", {}, *({"path": path} for path in (5, "", "a\0b", "../out", "new/../a", "dir", "a/b/c"))]
)
async def test_what_the_tool_will_refuse_is_left_to_it(tmp_path: Path, value: object) -> None:
    """A wrong call would be answered by the wrapper, in other words, or leave a checkpoint of nothing."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "a").write_text("a file")
    store, card = Nodes(), PlayedCard("write", refuse)
    result = await CheckpointingCard(card, store).run(value, make_local_context(tmp_path))
    assert result == ToolResult.of_error("no")
    assert store.kept == []
    assert len(card.seen) == 1


async def test_a_cancelled_call_keeps_nothing(tmp_path: Path) -> None:
    """A change that never was would be listed."""
    store, token = Nodes(), CancelToken()
    token.cancel()
    ctx = make_local_context(tmp_path, token)
    await CheckpointingCard(PlayedCard("write"), store).run({"path": "a"}, ctx)
    assert store.begun == []


@pytest.mark.parametrize("there", [True, False])
async def test_a_call_that_failed_and_changed_nothing_is_forgotten(tmp_path: Path, there: bool) -> None:
    """Edits that found no match would fill the list of what can be undone."""
    if there:
        (tmp_path / "a").write_text("before")
    store = Nodes()
    await CheckpointingCard(PlayedCard("edit", refuse), store).run({"path": "a"}, make_local_context(tmp_path))
    assert store.forgotten == ["1-edit"]


async def test_a_call_that_failed_after_it_changed_something_is_kept(tmp_path: Path) -> None:
    """A half-done change could not be undone."""

    async def write_and_fail(value: object, ctx: ToolContext) -> ToolResult:
        await write(value, ctx)
        return ToolResult.of_error("no")

    store = Nodes()
    value = {"path": "a", "content": "x"}
    await CheckpointingCard(PlayedCard("edit", write_and_fail), store).run(value, make_local_context(tmp_path))
    assert store.forgotten == []


@pytest.mark.parametrize("store", [PlainStore(error=OSError("disk full")), Nodes(error=OSError("disk full"))])
async def test_a_store_that_fails_stops_no_write_and_is_reported(
    tmp_path: Path, store: PlainStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A full state directory would stop all work, or undo would be lost without a word."""
    card = CheckpointingCard(PlayedCard("write", write), store)
    result = await card.run({"path": "a", "content": "x"}, make_local_context(tmp_path))
    assert not result.is_error
    assert "disk full" in caplog.text


async def test_a_node_that_cannot_be_forgotten_changes_no_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk would turn one error into another."""
    store = Nodes()

    async def refuse_and_break(value: object, ctx: ToolContext) -> ToolResult:
        store.error = OSError("disk full")
        return ToolResult.of_error("no")

    card = CheckpointingCard(PlayedCard("edit", refuse_and_break), store)
    assert await card.run({"path": "a"}, make_local_context(tmp_path)) == ToolResult.of_error("no")
    assert "disk full" in caplog.text


@pytest.mark.parametrize(("kind", "reason"), [(ClosedFs, "input/output error"), (BlindFs, "permission denied")])
async def test_a_file_that_cannot_be_read_is_a_gap_and_never_an_absence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[LocalFs], reason: str
) -> None:
    """An undo would delete the file."""
    (tmp_path / "a").write_text("before")
    base = make_local_context(tmp_path)
    ctx = ToolContext(base.cwd, kind(Roots(tmp_path), base.cwd), base.shell)
    plain, nodes = PlainStore(), Nodes()
    for store in (plain, nodes):
        await CheckpointingCard(PlayedCard("write"), store).run({"path": "a"}, ctx)
    assert plain.kept == nodes.kept == []
    assert [path for path, _ in nodes.gaps] == [place(tmp_path, "a")]
    assert reason in nodes.gaps[0][1]
    assert reason in caplog.text


async def test_calls_on_one_file_take_turns_and_others_do_not_wait(tmp_path: Path) -> None:
    """The second of two calls would keep what was there before the first; or a slow one would stop all."""
    go, started = asyncio.Event(), asyncio.Event()

    async def wait_and_write(value: object, ctx: ToolContext) -> ToolResult:
        started.set()
        await go.wait()
        return await write(value, ctx)

    store, ctx = PlainStore(), make_local_context(tmp_path)
    slow = CheckpointingCard(PlayedCard("write", wait_and_write), store)
    quick = CheckpointingCard(PlayedCard("edit", write), store)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(slow.run({"path": "a", "content": "first"}, ctx))
        await started.wait()
        second = tasks.create_task(quick.run({"path": "a", "content": "second"}, ctx))
        await quick.run({"path": "b", "content": "other"}, ctx)
        assert not second.done()
        go.set()
    assert store.kept == [(place(tmp_path, "a"), None), (place(tmp_path, "b"), None), (place(tmp_path, "a"), b"first")]
    assert (tmp_path / "a").read_text() == "second"


async def test_contents_are_held_one_after_another(tmp_path: Path) -> None:
    """Sixty calls on large files at a time held gigabytes, and each a thread."""
    held, most = 0, 0

    class Counting(PlainStore):
        async def record(self, path: str, previous: bytes | None) -> None:
            nonlocal held, most
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1
            await super().record(path, previous)

    store, ctx = Counting(), make_local_context(tmp_path)
    card = CheckpointingCard(PlayedCard("write", write), store)
    for number in range(10):
        (tmp_path / str(number)).write_text("old")
    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(card.run({"path": str(number), "content": "new"}, ctx))
    assert (len(store.kept), most) == (10, 1)


async def test_large_contents_of_all_sessions_take_turns_and_small_ones_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many sessions at a time would fill the memory all the same."""
    monkeypatch.setattr(checkpoint, "LARGE_BYTES", 10)
    go = asyncio.Event()

    class Waiting(PlainStore):
        async def record(self, path: str, previous: bytes | None) -> None:
            await super().record(path, previous)
            if previous:
                await go.wait()

    (tmp_path / "large").write_text("x" * 11)
    sessions = [(Waiting(), make_local_context(tmp_path)) for _ in range(checkpoint.LARGE_AT_A_TIME + 1)]
    async with asyncio.TaskGroup() as tasks:
        for number, (store, ctx) in enumerate(sessions):
            (tmp_path / str(number)).write_text("x" * 11)
            card = CheckpointingCard(PlayedCard("write", write), store)
            tasks.create_task(card.run({"path": str(number), "content": ""}, ctx))
        await eventually_async(lambda: sum(bool(store.kept) for store, _ in sessions) == checkpoint.LARGE_AT_A_TIME)
        small = CheckpointingCard(PlayedCard("write", write), PlainStore())
        await small.run({"path": "small", "content": "x"}, make_local_context(tmp_path))
        assert sum(bool(store.kept) for store, _ in sessions) == checkpoint.LARGE_AT_A_TIME
        go.set()
    assert all(store.kept for store, _ in sessions)
