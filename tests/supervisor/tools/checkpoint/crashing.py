"""A session that dies by SIGKILL at one step on disk after another: one life each.

Arguments: a directory to work in.  On stdout the number of deaths; an exit status other than 0, and why on stderr,
when after one of them something could not be brought back.
"""

import gc
import os
import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[3]))

from support.processes.dying import die_before, in_a_child

from quarterdeck.tools.checkpoint.store import FileCheckpointStore
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots

STEPS = ("open", "write", "fsync", "replace", "rename", "unlink", "truncate", "mkdir", "fchmod")
"""What changes a disk, and opening, which may."""

MOST = 2_000  # more steps than the session has
STRIDE = 7  # steps from one death to the next: what a session does a dozen times is met at each of its steps


def files(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in work.iterdir() if not path.name.startswith(".quarterdeck-")}


def make(base: Path) -> None:
    """The world before the session."""
    (base / "work").mkdir(parents=True)
    (base / "work" / "old").write_bytes(b"original")
    (base / "work" / "old").chmod(0o640)


async def live(base: Path) -> None:
    """Change files, take one change back as failed, delete one, undo all, undo the undo."""
    work = base / "work"
    store, fs = FileCheckpointStore(base / "c", max_total_bytes=10_000), LocalFs(Roots(work), str(work))
    for name, content in (("old", b"x" * 50), ("new", b"made"), ("old", b"y" * 50)):
        store.begin_node("write")
        await store.record(str(work / name), files(work).get(name))
        await fs.write_file(str(work / name), content)
    node = store.begin_node("edit")
    await store.record(str(work / "new"), b"made")
    await store.forget(node)
    await fs.rm(str(work / "old"))
    for name in ("0001-write", "0005-restore"):
        done = await store.restore(name, fs)
        assert all(each.outcome != "failed" for each in done), done
    assert files(work) == {"new": b"made"}, files(work)


async def check(base: Path) -> None:
    """Undo everything; the world must be what it was before the session."""
    work = base / "work"
    store, fs = FileCheckpointStore(base / "c"), LocalFs(Roots(work), str(work))
    for node in (await store.nodes())[:1]:
        done = await store.restore(node.name, fs)
        assert all(each.outcome != "failed" for each in done), done
    assert files(work) == {"old": b"original"}, files(work)
    assert (work / "old").stat().st_mode & 0o777 == 0o640


def main(directory: Path) -> None:
    """Let one session after another die, each a step later."""
    os.fsync = lambda _: None  # the death of a process loses nothing that it wrote
    anyio.run(anyio.sleep, 0)  # what a loop imports, once for all lives
    gc.collect()
    gc.freeze()
    for step in range(1, MOST, STRIDE):
        base = directory / str(step)
        make(base)

        def live_until(step: int = step, base: Path = base) -> None:
            die_before(step, STEPS)
            anyio.run(live, base)

        status = in_a_child(live_until)
        if os.WIFSIGNALED(status) and in_a_child(lambda base=base: anyio.run(check, base)) == 0:  # type: ignore[misc]
            continue
        if status != 0:
            sys.exit(f"step {step}: status {status}")
        print(step // STRIDE)
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
