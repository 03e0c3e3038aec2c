"""Noticing changes of files: real files, and the system's own hints."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
from support.processes.running import loaded_by
from support.sandbox.machine_facts import LINUX_ONLY
from support.waiting import PATIENCE_S, eventually_async
from watchfiles import _rust_notify

from quarterdeck.config import file_watch
from quarterdeck.config.file_watch import changes_of


class Notify:
    """The library's watcher, and what was asked of every one of them."""

    real = _rust_notify.RustNotify
    made: "list[Notify]"

    def __init__(self, paths: list[str], **options: Any) -> None:
        self.paths, self.options = set(paths), options
        self.watching = 0
        self.is_closed = False
        self._real = self.real(paths, **options)
        self.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._real.close()
        self.is_closed = True

    def watch(self, *args: Any) -> object:
        """See `RustNotify.watch`; called in a thread."""
        self.watching += 1
        try:
            return self._real.watch(*args)
        finally:
            self.watching -= 1


@pytest.fixture(autouse=True)
def watchers(monkeypatch: pytest.MonkeyPatch) -> list[Notify]:
    monkeypatch.setattr(file_watch, "STEP_S", 0.01)
    monkeypatch.setattr(file_watch, "SETTLE_S", 0.01)
    Notify.made = []
    monkeypatch.setattr(_rust_notify, "RustNotify", Notify)
    return Notify.made


@asynccontextmanager
async def changing(*files: Path) -> AsyncIterator[AsyncGenerator[None, None]]:
    """Changes of these files; no test waits for them for ever."""
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(changes_of(files)) as changes:
            yield changes


async def is_watched(watchers: list[Notify], directory: Path) -> None:
    """Wait until hints of this directory are waited for."""
    await eventually_async(lambda: any(str(directory) in made.paths and made.watching for made in watchers))


def write(file: Path) -> None:
    """As a simple program writes."""
    file.write_text("written in place")


def replace(file: Path) -> None:
    """As an editor saves."""
    (file.parent / "new").write_text("saved")
    (file.parent / "new").rename(file)


def replace_directory(file: Path) -> None:
    """As a checkout of another branch does."""
    shutil.rmtree(file.parent)
    file.parent.mkdir()
    file.write_text("another branch")


@pytest.mark.parametrize(
    "edit",
    [
        write,
        replace,
        replace_directory,
        pytest.param(Path.unlink, id="remove"),
        pytest.param(lambda file: shutil.rmtree(file.parent), id="remove_directory"),
        pytest.param(lambda file: file.chmod(0o000), id="hide"),
    ],
)
async def test_whatever_is_done_to_a_file_is_noticed(
    edit: Callable[[Path], None], tmp_path: Path, watchers: list[Notify], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would save a file and nothing would happen; some editors never write into the file that they edit."""
    monkeypatch.setattr(file_watch, "LOOK_S", 3600.0)  # the hint alone must do
    file = tmp_path / "project" / "mcp.json"
    file.parent.mkdir()
    file.write_text("before")
    async with changing(file) as changes:
        noticed = asyncio.ensure_future(anext(changes))
        await is_watched(watchers, file.parent)
        edit(file)
        await noticed


async def test_a_file_that_does_not_exist_yet_is_noticed_when_it_does(tmp_path: Path, watchers: list[Notify]) -> None:
    """The first configuration of a project would need a restart."""
    file = tmp_path / ".indusvx" / "deep" / "mcp.json"
    async with changing(file) as changes:
        noticed = asyncio.ensure_future(anext(changes))
        await is_watched(watchers, tmp_path)
        file.parent.parent.mkdir()
        await is_watched(watchers, file.parent.parent)
        file.parent.mkdir()
        await is_watched(watchers, file.parent)
        file.write_text("first")
        await noticed


async def test_only_the_nearest_directories_are_watched_and_nothing_below(
    tmp_path: Path, watchers: list[Notify]
) -> None:
    """A home with a million files in it would be walked through, and the system's watches used up."""
    (tmp_path / "there").mkdir()
    files = [tmp_path / "there" / "a.json", tmp_path / "there" / "b.json", tmp_path / "missing" / "too" / "c.json"]
    async with changing(*files) as changes:
        noticed = asyncio.ensure_future(anext(changes))
        await is_watched(watchers, tmp_path)
        assert [made.paths for made in watchers] == [{str(tmp_path / "there"), str(tmp_path)}]
        assert watchers[0].options["recursive"] is False
        noticed.cancel()
        await asyncio.wait([noticed])


async def test_where_a_link_leads_is_watched_too(
    tmp_path: Path, watchers: list[Notify], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps configurations in one repository, linked from everywhere, would edit them in vain."""
    monkeypatch.setattr(file_watch, "LOOK_S", 3600.0)
    link, target = tmp_path / "home" / "mcp.json", tmp_path / "dotfiles" / "mcp.json"
    for file in (link, target):
        file.parent.mkdir()
    target.write_text("before")
    link.symlink_to(target)
    async with changing(link) as changes:
        for edit in (lambda: replace(target), lambda: (link.unlink(), link.write_text("no link any more"))):
            noticed = asyncio.ensure_future(anext(changes))
            await is_watched(watchers, link.parent)
            watchers.clear()
            edit()
            await noticed


async def test_what_others_do_in_the_directory_is_no_change(
    tmp_path: Path, watchers: list[Notify], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy project would make us read its configuration all day."""
    looks: list[object] = []
    look = file_watch._look

    def counted(files: tuple[Path, ...]) -> Any:
        looks.append(files)
        return look(files)

    monkeypatch.setattr(file_watch, "LOOK_S", 3600.0)
    monkeypatch.setattr(file_watch, "_look", counted)
    async with changing(tmp_path / "mcp.json") as changes:
        noticed = asyncio.ensure_future(anext(changes))
        await is_watched(watchers, tmp_path)
        before = len(looks)
        (tmp_path / "mcp.json.bak").write_text("a neighbour")
        await eventually_async(lambda: len(looks) > before)
        await is_watched(watchers, tmp_path)
        assert not noticed.done()
        (tmp_path / "mcp.json").write_text("ours")
        await noticed


async def test_changes_count_from_the_call_on_and_while_the_caller_works(tmp_path: Path) -> None:
    """What is saved while a configuration is being read would not be read."""
    file = tmp_path / "mcp.json"
    async with changing(file) as changes:
        file.write_text("before the first wait")
        await anext(changes)
        file.write_text("while the caller works, and more")
        await anext(changes)


async def test_a_save_in_several_steps_is_one_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file would be read while its editor has only emptied it."""
    steps = iter(["half", "whole", "whole", "later"])
    monkeypatch.setattr(file_watch, "_look", lambda _: (next(steps),))
    assert await file_watch._settled_look((tmp_path,), (None,), ("emptied",)) == ("whole",)
    assert next(steps) == "later"


async def test_a_file_that_never_rests_is_told_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that something writes to all the time would never be read."""
    looks = iter(range(1, 1000))
    monkeypatch.setattr(file_watch, "SETTLE_S", 0.0)
    monkeypatch.setattr(file_watch, "_look", lambda _: ((next(looks),),))
    assert await file_watch._settled_look((tmp_path,), (None,), ((0,),)) == ((file_watch.MAX_SETTLE_LOOKS,),)


async def test_a_change_that_is_undone_while_it_settles_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary file of that name, made and removed, would be told as a change."""
    monkeypatch.setattr(file_watch, "_look", lambda _: (None,))
    assert await file_watch._settled_look((tmp_path,), (None,), ("made",)) == (None,)


@pytest.mark.parametrize(
    "error", [OSError("OS file watch limit reached."), RuntimeError("Too many open files"), FileNotFoundError("gone")]
)
async def test_where_nothing_can_be_watched_the_files_are_looked_at(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose watches are used up by an editor would end the reloading, or the supervisor."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(_rust_notify, "RustNotify", refuse)
    monkeypatch.setattr(file_watch, "LOOK_S", 0.001)
    file = tmp_path / "mcp.json"
    async with changing(file) as changes:
        for edit in (write, replace, Path.unlink):
            edit(file)
            await anext(changes)


@LINUX_ONLY
async def test_a_name_that_is_no_text_does_not_end_the_watch(
    tmp_path: Path, watchers: list[Notify], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One strange file in a home would end the reloading."""
    monkeypatch.setattr(file_watch, "LOOK_S", 0.01)
    file = tmp_path / "mcp.json"
    async with changing(file) as changes:
        noticed = asyncio.ensure_future(anext(changes))
        await is_watched(watchers, tmp_path)
        write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
        await eventually_async(lambda: len(watchers) > 1)
        file.write_text("ours")
        await noticed


async def test_a_watch_that_is_cancelled_leaves_nothing(tmp_path: Path, watchers: list[Notify]) -> None:
    """A shutdown would wait for a thread, or leave it behind with its watches."""
    noticed = asyncio.ensure_future(anext(changes_of([tmp_path / "mcp.json"])))
    await is_watched(watchers, tmp_path)
    noticed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await noticed
    await eventually_async(lambda: all(made.is_closed and not made.watching for made in watchers))


async def test_a_watch_ends_with_its_task_group(
    tmp_path: Path, watchers: list[Notify], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown would take until the next look."""

    async def consume() -> None:
        async for _ in changes_of([tmp_path / "mcp.json"]):
            raise AssertionError("nothing changed")

    monkeypatch.setattr(file_watch, "LOOK_S", 3600.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await is_watched(watchers, tmp_path)
        tasks.cancel_scope.cancel()
    await eventually_async(lambda: all(made.is_closed and not made.watching for made in watchers))


async def test_nothing_is_held_while_the_caller_works(tmp_path: Path, watchers: list[Notify]) -> None:
    """A caller that never comes back would leave a thread behind."""
    file = tmp_path / "mcp.json"
    async with changing(file) as changes:
        noticed = asyncio.ensure_future(anext(changes))
        await is_watched(watchers, tmp_path)
        file.write_text("changed")
        await noticed
        await eventually_async(lambda: all(made.is_closed and not made.watching for made in watchers))


@pytest.mark.process
def test_the_library_is_not_loaded_before_something_is_watched() -> None:
    """Every command would start later for it."""
    assert "watchfiles" not in loaded_by("import quarterdeck.config.file_watch")
