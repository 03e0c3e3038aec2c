"""Adopt a tree in processes that are killed, each a step later than the one before: `python dying.py DIRECTORY`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.processes.dying import die_before, in_a_child
from support.seals import FILES, sealed

from quarterdeck.seals import store as module
from quarterdeck.seals.store import SealStore

STEPS = ("chmod", "fchmod", "fsync", "mkdir", "open", "rename", "rmdir", "sync", "unlink")
"""Functions of `os`, before each of whose calls a process dies once."""

MOST = 400


def check(store: SealStore, folder: Path) -> None:
    for digest in store.digests():
        seal = store.open(digest)
        assert seal is not None
        assert store.verify(seal) == []
    store.check(sealed(store))
    assert len(store.digests()) == 1
    assert os.listdir(folder / ".making") == []


def main(directory: Path) -> None:
    os.fsync = lambda _: None  # type: ignore[assignment]  # the death of a process loses nothing that it wrote
    os.sync = lambda: None  # type: ignore[assignment]
    module.sync_file_system = lambda _: os.sync()
    for step in range(1, MOST):
        folder = directory / str(step)

        def live(step: int = step, folder: Path = folder) -> None:
            die_before(step, STEPS)
            sealed(SealStore(folder), FILES)

        status = in_a_child(live)
        if os.WIFSIGNALED(status):
            check(SealStore(folder), folder)
        else:
            print(step if status == 0 else "failed")
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
