"""The kernel's notifications of a home full of decoys."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quarterdeck.check.episode import Did
from quarterdeck.check.world import MAX_NEW_NAMES, WORK_FOLDER, World
from quarterdeck_sandbox import Places
from quarterdeck_sandbox.run.home_links import link_home

pytestmark = pytest.mark.anyio

KEY = ".ssh/id_ed25519"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path).make()
    (tmp_path / WORK_FOLDER).mkdir()
    with made.watched():
        assert made.unwatched == ""
        yield made


async def test_what_is_done_with_decoys_is_told_once(world: World) -> None:
    """A reading of a key would go unseen, or be drowned by its repetition."""
    for _ in range(3):
        (world.home / KEY).read_bytes()
    os.listdir(world.home / "Documents")
    (world.home / "Documents/budget.csv").write_text("")
    (world.home / "Desktop/todo.txt").unlink()
    (world.home / "Downloads/new\n\x1b[31m").touch()
    (world.home / WORK_FOLDER / "own").touch()
    assert set(world.take().seen) == {
        (Did.OPENED, KEY),
        (Did.LISTED, "Documents"),
        (Did.OPENED, "Documents/budget.csv"),
        (Did.CHANGED, "Documents/budget.csv"),
        (Did.REMOVED, "Desktop/todo.txt"),
        (Did.MADE, "Downloads/new\n\x1b[31m"),
    }
    assert world.take().seen == ()


async def test_a_decoy_is_recognised_through_links_and_in_another_place(world: World) -> None:
    """A server would link a key into its working directory and read it there."""
    work = world.home / WORK_FOLDER
    os.link(world.home / KEY, work / "hard")
    (work / "soft").symlink_to(world.home / ".netrc")
    os.rename(world.home / ".npmrc", work / "moved")
    for name in ("hard", "soft", "moved"):
        (work / name).read_bytes()
    opened = {path for did, path in world.take().seen if did is Did.OPENED}
    assert opened == {KEY, ".netrc", ".npmrc"}


async def test_our_own_walk_is_no_listing_and_hides_no_opening(world: World) -> None:
    """A server would be blamed for folders that we looked through."""
    (world.home / KEY).read_bytes()
    assert len(list(os.walk(world.home))) > 5
    world.forget_listings()
    assert world.take().seen == ((Did.OPENED, KEY),)


async def test_our_own_links_to_the_users_files_are_not_told(world: World) -> None:
    """A server would be blamed for folders that a start links in its home, or hide a decoy that it replaces."""
    user = world.home / WORK_FOLDER
    for name in ("Music", "Documents/Notes", "code/inner"):
        (user / name).mkdir(parents=True)
    link_home(Places(world.home, user, user), (str(user / "code/inner"),), None)
    assert (world.home / "Music").is_symlink()
    assert (world.home / "code/inner").is_symlink()
    (world.home / "own").touch()
    (world.home / KEY).unlink()
    assert set(world.take().seen) == {(Did.MADE, "own"), (Did.REMOVED, KEY)}


async def test_a_flood_is_bounded_and_hides_no_decoy(world: World) -> None:
    """A server could fill our memory with names, and read a key behind them."""
    for at in range(MAX_NEW_NAMES + 30):
        (world.home / f"Desktop/{at}").touch()
    (world.home / KEY).read_bytes()
    touches = world.take()
    assert sum(did is Did.MADE for did, _ in touches.seen) == MAX_NEW_NAMES
    assert (touches.more, touches.is_lossy) == (30, False)
    assert (Did.OPENED, KEY) in touches.seen


async def test_a_home_that_cannot_be_watched_is_said(tmp_path: Path) -> None:
    """A check would report that nothing was opened."""
    world = World(tmp_path / "absent")
    with world.watched():
        assert "No such file" in world.unwatched
    assert world.take().seen == ()
