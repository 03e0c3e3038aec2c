"""A store in files: what it keeps, and that it brings back what was."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from support.processes.running import output

from quarterdeck.tools.checkpoint.index import UnknownNodeError
from quarterdeck.tools.checkpoint.restore import RestoredPath, RestoreOutcome
from quarterdeck.tools.checkpoint.store import FileCheckpointStore
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots

CRASHING = Path(__file__).with_name("crashing.py")

CRASHES_S = 90.0  # fifty lives and deaths take some seconds, on a busy machine ten


def fs_of(work: Path) -> LocalFs:
    return LocalFs(Roots(work), str(work))


def outcomes(done: list[RestoredPath]) -> dict[str, str]:
    return {os.path.basename(each.path): each.outcome for each in done}


async def change(store: FileCheckpointStore, path: Path, content: bytes) -> None:
    """Change a file as a checkpointed tool does."""
    store.begin_node("write")
    await store.record(str(path), contents(path.parent).get(path.name))
    put(path, content)


def contents(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in work.iterdir() if not path.name.startswith(".quarterdeck-")}


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def test_an_undo_can_be_undone(work: Path, store: FileCheckpointStore) -> None:
    """What a user wrote since, or an undo by mistake, would be lost for good."""
    (work / "a").write_bytes(b"one")
    (work / "empty").touch()
    for name in ("a", "b", "empty"):
        await change(store, work / name, b"new")
    (work / "a").write_bytes(b"by hand\r\n")
    await store.restore("0001-write", fs_of(work))
    assert contents(work) == {"a": b"one", "empty": b""}
    assert [node.name for node in await store.nodes()][-1] == "0004-restore"
    done = await store.restore("0004-restore", fs_of(work))
    assert outcomes(done) == dict.fromkeys(("a", "b", "empty"), "restored")
    assert contents(work) == {"a": b"by hand\r\n", "b": b"new", "empty": b"new"}


async def test_an_undo_that_has_nothing_to_do_is_no_node(work: Path, store: FileCheckpointStore) -> None:
    """The list would grow with every look."""
    await change(store, work / "a", b"x")
    (work / "a").unlink()
    assert outcomes(await store.restore("0001-write", fs_of(work))) == {"a": "unchanged"}
    assert len(await store.nodes()) == 1


async def test_records_of_two_calls_at_once_keep_to_their_nodes(work: Path, store: FileCheckpointStore) -> None:
    """Undoing one call would undo another's file."""
    store.begin_node("write")
    first = asyncio.ensure_future(store.record(str(work / "a"), None))
    await asyncio.sleep(0)
    store.begin_node("edit")
    await asyncio.gather(first, store.record(str(work / "b"), None))
    tools = {node.paths: node.name.partition("-")[2] for node in await store.nodes()}
    assert tools == {(str(work / "a"),): "write", (str(work / "b"),): "edit"}


async def test_a_forgotten_node_leaves_nothing(work: Path, store: FileCheckpointStore, tmp_path: Path) -> None:
    """Failed edits would fill list and disk."""
    node = store.begin_node("edit")
    await store.forget(node)
    await store.record(str(work / "a"), b"content")
    await store.forget(node)
    assert await store.nodes() == []
    assert os.listdir(tmp_path / "checkpoints" / "blobs") == []
    store.begin_node("edit")
    await store.record(str(work / "a"), b"content")
    assert [node.name for node in await store.nodes()] == ["0002-edit"]


async def test_an_unknown_node_is_an_error(work: Path, store: FileCheckpointStore) -> None:
    """A slip would look like an undo of nothing."""
    with pytest.raises(UnknownNodeError, match="0009-write"):
        await store.restore("0009-write", fs_of(work))


async def test_what_could_not_be_kept_is_said_and_the_file_stays(work: Path, tmp_path: Path) -> None:
    """A file would silently be left as the agent made it, or be deleted."""
    store = FileCheckpointStore(tmp_path / "c", max_file_bytes=10)
    (work / "a").write_bytes(b"x" * 11)
    await change(store, work / "a", b"small")
    store.begin_node("write")
    await store.record_gap(str(work / "b"), "it could not be read")
    (work / "b").write_bytes(b"b")
    done = await store.restore("0001-write", fs_of(work))
    assert [(each.outcome, each.note) for each in done] == [
        (RestoreOutcome.FAILED, "it was not kept: it was larger than 10 bytes"),
        (RestoreOutcome.FAILED, "it was not kept: it could not be read"),
    ]
    assert (work / "a").read_bytes() == b"small"
    assert (work / "b").read_bytes() == b"b"


@pytest.mark.parametrize("previous", [None, b"old"])
async def test_an_undo_leaves_what_it_could_not_bring_back(work: Path, tmp_path: Path, previous: bytes | None) -> None:
    """A log that has grown beyond the bound since an agent began it would be gone for ever."""
    store = FileCheckpointStore(tmp_path / "c", max_file_bytes=10)
    if previous is not None:
        (work / "a").write_bytes(previous)
    await change(store, work / "a", b"small")
    (work / "a").write_bytes(b"x" * 11)
    [done] = await store.restore("0001-write", fs_of(work))
    assert done.outcome is RestoreOutcome.FAILED
    assert done.note == "it holds more than 10 bytes now, which could not be brought back: move it away"
    assert (work / "a").read_bytes() == b"x" * 11


async def test_an_undo_never_makes_room_by_what_it_brings_back(work: Path, tmp_path: Path) -> None:
    """Near its bound a store would lose the very content that is asked for."""
    store = FileCheckpointStore(tmp_path / "c", max_total_bytes=100)
    for name in "abc":
        (work / name).write_bytes(name.encode() * 30)
        await change(store, work / name, name.upper().encode() * 30)
    done = await store.restore("0001-write", fs_of(work))
    assert set(outcomes(done).values()) == {"restored"}
    assert (work / "c").read_bytes() == b"c" * 30
    assert len(await store.nodes()) == 1


@pytest.mark.nightly
@pytest.mark.process
def test_a_session_killed_at_any_step_leaves_a_store_that_brings_everything_back(tmp_path: Path) -> None:
    """A crash at the wrong moment would leave a file that can be brought back to no state at all."""
    steps = output(sys.executable, CRASHING, tmp_path, within_s=CRASHES_S)
    assert int(steps) > 40, "fewer steps than a session has"
