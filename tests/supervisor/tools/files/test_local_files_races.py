"""A session's files while somebody swaps what paths lead to: at each moment in turn, and as fast as a thread can."""

import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from support.waiting import meanwhile

from quarterdeck.common.file_changes import DRAFT_PREFIX
from quarterdeck.tools.context import OutsideRootsError
from quarterdeck.tools.files.local_files import LocalFs

Flip = Callable[[], None]
"""Changes what is at a place, and called again changes it back."""


@contextmanager
def swap(place: Path, lure: Path) -> Iterator[Flip]:
    """`place` as itself or, by way of nothing, as a link to `lure`; in the end it must be itself."""
    aside, link = place.with_name(f"{place.name}.aside"), place.with_name(f"{place.name}.link")
    link.symlink_to(lure)

    def flip() -> None:
        if aside.exists():
            os.rename(place, link)
            os.rename(aside, place)
        else:
            os.rename(place, aside)
            os.rename(link, place)

    yield flip
    link.unlink()


def alternation(place: Path, make: Callable[[Path], object], make_other: Callable[[Path], object]) -> Flip:
    """`place` as what either callable makes, and never nothing; now it is the first."""
    draft = place.with_name(f"{place.name}.next")
    makers = cycle((make, make_other))

    def flip() -> None:
        next(makers)(draft)
        os.replace(draft, place)

    flip()
    return flip


@contextmanager
def flipping(flip: Flip) -> Iterator[None]:
    """Until the end of the block it is called as fast as a thread can, then all is as before."""

    def turn() -> None:
        flip()
        flip()

    with meanwhile(turn):
        yield


WIDTHS: Final = (1, 2, 1000)  # how many system calls see the change before it is undone; the last: all that follow


class Moments:
    """Calls `flip` before the system calls of given numbers, in the threads that it is the profiler of."""

    def __init__(self, flip: Callable[[], None]) -> None:
        self._flip = flip
        self._due = set[int]()
        self._calls = self.flips = 0

    def set(self, due: set[int]) -> None:
        """From now on calls are counted from 0."""
        self._due, self._calls, self.flips = due, 0, 0

    def profile(self, frame: FrameType, event: str, called: Any) -> None:
        """What `threading.setprofile` wants; nothing is profiled while it runs, so flipping counts for nothing."""
        if event == "c_call" and getattr(called, "__module__", None) == "posix":
            if self._calls in self._due:
                self._flip()
                self.flips += 1
            self._calls += 1


async def at_every_moment(use: Callable[[], Awaitable[object]], flip: Callable[[], None]) -> set[object]:
    """All answers, and the types of the failures, of `use` in threads, with a change at each moment of it.

    Args:
        use: what is tried, from both states that there are.
        flip: changes the one state into the other; in the end all is as it was.
    """
    answers = set[object]()
    with _watched(flip) as moments:
        for _ in range(2):
            for width in WIDTHS:
                for moment in count():
                    moments.set({moment, moment + width})
                    answers.add(await answer(use))
                    flips = moments.flips
                    moments.set(set())
                    if flips == 1:
                        flip()
                    if not flips:
                        break
            flip()
    return answers


async def answer(use: Callable[[], Awaitable[object]]) -> object:
    """What it returns, or the type of its failure."""
    try:
        return await use()
    except OSError as error:
        return type(error)


@contextmanager
def _watched(flip: Callable[[], None]) -> Iterator[Moments]:
    moments = Moments(flip)
    threading.setprofile(moments.profile)
    try:
        yield moments
    finally:
        threading.setprofile(None)
        moments.set(set())


TIMES: Final = 100  # of one verb against a thread: what no single change at a moment of ours shows

pytestmark = pytest.mark.nightly


@pytest.fixture
def work(tmp_path: Path) -> Path:
    base = Path(os.path.realpath(tmp_path))
    for place, text in (("work/d", "inside"), ("outside", "secret")):
        (base / place / "tree" / text).mkdir(parents=True)
        (base / place / "f").write_text(text)
        (base / place / text).write_text("")
    return base / "work"


def outside_of(work: Path) -> dict[str, str]:
    outside = work.with_name("outside")
    return {str(path.relative_to(outside)): path.read_text() if path.is_file() else "" for path in outside.rglob("*")}


async def answers_of(flip: Flip, *uses: Callable[[], Awaitable[object]]) -> set[object]:
    """All answers, and the types of the failures, while what is there changes and changes back."""
    answers = set[object]()
    for use in uses:
        answers |= await at_every_moment(use, flip)
    with flipping(flip):
        answers |= {await answer(use) for use in uses for _ in range(TIMES)}
    return answers


IN_A_SWAP: Final = {FileNotFoundError, OutsideRootsError}
"""What may go wrong while a directory is by turns there, away, and a link that leads out."""


async def test_nothing_is_read_through_a_swapped_directory(work: Path, files: LocalFs) -> None:
    """A command of the session could make its file tools read any file of this machine."""

    async def read_opened() -> object:
        with await files.open_binary("d/f") as file:
            return file.read().decode()

    with swap(work / "d", work.with_name("outside")) as flip:
        answers = await answers_of(flip, lambda: files.read_text("d/f"), read_opened)
    assert "inside" in answers
    assert answers <= {"inside", *IN_A_SWAP}


@pytest.mark.parametrize("far", [False, True], ids=["link", "link to a link"])
async def test_nothing_is_read_through_a_swapped_file(work: Path, files: LocalFs, far: bool) -> None:
    """The same, by the last name of a path."""
    secret = work.with_name("outside") / "f"
    if far:
        (work / "far").symlink_to(secret)
        secret = work / "far"
    flip = alternation(work / "f", lambda path: path.write_text("inside"), lambda path: path.symlink_to(secret))
    answers = await answers_of(flip, lambda: files.read_text("f"))
    assert "inside" in answers
    assert answers <= {"inside", OutsideRootsError}


async def test_nothing_outside_is_told_of(work: Path, files: LocalFs) -> None:
    """Names, sizes and places of files would be seen that are none of the session's business."""
    outside = work.with_name("outside")
    (outside / "f").write_text("secret and longer")

    async def look() -> object:
        return (await files.stat("d/f")).size_bytes

    async def names() -> object:
        return tuple(await files.readdir("d"))

    async def entries() -> object:
        found, count = await files.list_directory("d", 10)
        return (*sorted(entry.name for entry in found), count)

    with swap(work / "d", outside) as flip:
        answers = await answers_of(flip, look, names, entries, lambda: files.real_path("d/f"))
    named = ("f", "inside", "tree")
    places = {str(work / place / "f") for place in ("d", "d.aside")}
    assert answers & places
    assert answers <= {len("inside"), named, (*named, 3), *places, *IN_A_SWAP}


async def test_nothing_is_written_through_a_swapped_directory(work: Path, files: LocalFs) -> None:
    """A command of the session could make its file tools replace any file of this machine."""
    before = outside_of(work)
    numbers = count()
    with swap(work / "d", work.with_name("outside")) as flip:
        answers = await answers_of(
            flip,
            lambda: files.write_file("d/f", "written"),
            lambda: files.write_file(f"d/new{next(numbers)}", "written"),
        )
    assert None in answers
    assert answers <= {None, *IN_A_SWAP}
    assert outside_of(work) == before
    assert (work / "d" / "f").read_text() == "written"
    assert [path for path in work.parent.rglob("*") if path.name.startswith(DRAFT_PREFIX)] == []


async def test_nothing_is_written_through_a_swapped_file(work: Path, files: LocalFs) -> None:
    """The same, by the last name of a path."""
    before = outside_of(work)
    secret = work.with_name("outside") / "f"
    flip = alternation(work / "f", lambda path: path.write_text("inside"), lambda path: path.symlink_to(secret))
    answers = await answers_of(flip, lambda: files.write_file("f", "written"))
    assert answers <= {None, OutsideRootsError}
    assert outside_of(work) == before


async def test_nothing_is_made_or_removed_through_a_swapped_link(work: Path, files: LocalFs) -> None:
    """A command of the session could make its file tools remove any directory of this machine."""
    before = outside_of(work)
    outside = work.with_name("outside")

    numbers = count()

    async def make() -> None:
        await files.mkdir(f"to/new{next(numbers)}/a", recursive=True)

    async def remove() -> None:
        (work / "d" / "tree" / "a").mkdir(parents=True, exist_ok=True)
        await files.rm("to/tree", recursive=True)

    flip = alternation(work / "to", lambda path: path.symlink_to("d"), lambda path: path.symlink_to(outside))
    answers = await answers_of(flip, make, remove)
    assert None in answers
    assert answers <= {None, OutsideRootsError}
    assert outside_of(work) == before


async def test_a_tree_that_is_swapped_while_it_is_removed_takes_nothing_outside_along(
    work: Path, files: LocalFs
) -> None:
    """The same, by a name that only the removal comes upon."""
    before = outside_of(work)
    outside, place, asides = work.with_name("outside"), work / "tree" / "a", map(str, count())

    def flip() -> None:
        with suppress(FileNotFoundError, FileExistsError):  # the tree goes, and comes again
            if place.is_symlink():
                place.unlink()
                place.mkdir()
            else:
                place.rename(work / next(asides))
                place.symlink_to(outside)

    async def remove() -> None:
        if place.is_symlink():
            place.unlink()
        (place / "b").mkdir(parents=True, exist_ok=True)
        await files.rm("tree", recursive=True, ignore_missing=True)

    async def make_and_remove() -> None:
        await files.mkdir("tree/b", recursive=True)
        await files.rm("tree", recursive=True, ignore_missing=True)

    def turn() -> None:
        with suppress(FileNotFoundError, FileExistsError):
            place.mkdir()
            flip()
            place.unlink()

    answers = await at_every_moment(remove, flip)
    with meanwhile(turn):
        answers |= {await answer(make_and_remove) for _ in range(TIMES)}
    assert None in answers
    assert OutsideRootsError not in answers
    assert outside_of(work) == before


async def test_a_pipe_that_takes_a_file_s_place_is_not_waited_for(work: Path, files: LocalFs) -> None:
    """One call would hold a thread of all sessions for good."""
    flip = alternation(work / "f", lambda path: path.write_text("inside"), os.mkfifo)
    answers = await answers_of(flip, lambda: files.read_text("f"), lambda: files.write_file("f", "inside"))
    assert "inside" in answers
    assert answers <= {"inside", None, OSError}


async def test_a_root_that_is_swapped_itself_leads_nowhere_else(work: Path, files: LocalFs) -> None:
    """Whoever may rename the workspace could open any directory."""
    before = outside_of(work)
    with swap(work, work.with_name("outside")) as flip:
        answers = await answers_of(
            flip,
            lambda: files.read_text("d/f"),
            lambda: files.read_text("f"),
            lambda: files.write_file("new", "written"),
        )
    assert "inside" in answers
    assert answers <= {"inside", None, *IN_A_SWAP}
    assert outside_of(work) == before
