"""Try to close a part of a folder that may be written, by `inside/readonly`, and to write there all the same."""

import marshal
import os
import sys
from pathlib import Path
from typing import Final

from quarterdeck_sandbox.spawning import readonly_argv
from quarterdeck_sandbox.temporary import temporary_folder
from quarterdeck_sandbox.trials.running import run
from quarterdeck_sandbox.unnamed import unnamed_file

_SCRIPT: Final = 'cd "$0" && echo x >open && echo x >inner/closed; mv inner moved'


def try_closing(uid: int) -> bool:
    """Whether it holds for `uid`; one run of about 15 ms."""
    if sys.platform != "linux":
        return False
    with temporary_folder("quarterdeck-trial-") as name:
        folder = Path(name)
        closed = folder / "inner" / "closed"
        closed.parent.mkdir()
        for path in (folder / "open", closed):
            path.write_bytes(b"")
        for path in (folder, closed.parent, folder / "open", closed):
            os.chown(path, uid, -1)
        steps = [(str(closed.parent), False), (str(closed), True)]
        argv = ["/bin/sh", "-c", _SCRIPT, str(folder)]
        # As root does it where it stays root: see `Confinement.writes_by_mounts`.
        opened = [str(folder)] if uid == 0 else None
        order = unnamed_file(marshal.dumps({"open": opened, "steps": steps, "argv": argv}))
        try:
            run(readonly_argv(order), uid=uid, pass_fds=(order,))
        finally:
            os.close(order)
        try:
            return bool((folder / "open").read_bytes()) and not closed.read_bytes()
        except FileNotFoundError:
            return False  # it could be moved
