"""What a test has for itself: short folders, directories for our state, and configuration files."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import platformdirs
import pytest

from quarterdeck.config.places.paths import APP_NAME
from quarterdeck_pytest.run_folders import make_held, sweep
from quarterdeck_sandbox.hostile_files import remove_tree
from support.processes.programs import SERVERS, server_argv
from support.waiting import eventually

PREFIX: Final = "qd-t-"
"""Of the names of such folders; what killed tests have left is swept by it."""


def make_deep(folder: str | Path, levels: int) -> None:
    """Make folders within one another, more than a path can name."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@contextmanager
def short_folder(mode: int = 0o700, parent: str | None = None) -> Iterator[Path]:
    """A folder in which a socket's path is short enough, where another user can be let in; removed at the end.

    Raises:
        AssertionError: something that the body has left goes on writing into it.
    """
    name, held = make_held(os.path.realpath(parent or usual_parent()), PREFIX)
    folder = Path(name)
    try:
        folder.chmod(mode)
        yield folder
    finally:
        remove_tree(name)
        os.close(held)
    eventually(lambda: is_removed(folder), what=f"the end of what writes into {folder}")


def usual_parent() -> str:
    # In a sandbox without a file system of its own, a test of ours that an agent runs has only its TMPDIR.
    return "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()


def is_removed(folder: Path) -> bool:
    """Whether a folder is gone, after one more attempt."""
    if folder.exists():
        remove_tree(str(folder))
    return not folder.exists()


def use_places(patch: pytest.MonkeyPatch, root: Path) -> None:
    """Have state, data and runtime directories be below `root`."""
    patch.setenv("QUARTERDECK_DATA_DIR", str(root / "data"))
    patch.setenv("QUARTERDECK_STATE_DIR", str(root / "state"))
    patch.setenv("QUARTERDECK_RUNTIME_DIR", str(root / "run"))


def write_document(path: Path, **document: object) -> Path:
    """A file with these keys; the folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def write_config(path: Path, **servers: object) -> Path:
    return write_document(path, mcpServers=servers)


def row(name: str, *arguments: str, **fields: object) -> dict[str, object]:
    program, *args = server_argv(name, *arguments)
    return {"command": program, "args": args, "sandbox": {"read": [str(SERVERS)]}, **fields}


def usual_state_dir() -> Path:
    """Where the user's state would be, whatever `QUARTERDECK_STATE_DIR` says."""
    return Path(platformdirs.user_state_path(APP_NAME))


@contextmanager
def own_state(usual: Path) -> Iterator[None]:
    """Within the block, the usual place for state is a folder that is removed in the end; killed tests' are swept.

    Args:
        usual: the user's state directory.

    Raises:
        AssertionError: it did not exist before the block, and something in the block made it.
    """
    sweep(usual_parent(), PREFIX)
    had_state = usual.exists()
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        patch.delenv("QUARTERDECK_STATE_DIR", raising=False)
        patch.setenv("QUARTERDECK_DATA_DIR", str(folder / "data"))
        # A daemon outlives the test that made it; those that are about doors say so.
        patch.setenv("QUARTERDECK_OWN", "1")
        yield
    # One that was there may be written by a `serve` of the user's meanwhile.
    assert had_state or not usual.exists(), f"a test wrote into the user's state directory: {usual} was made"
