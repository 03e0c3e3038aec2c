"""A temporary folder that a hostile program could write to, and its removal whatever that has left there.

`tempfile` cannot: before Python 3.11.8 it opens up what it may not remove through symbolic links (CVE-2023-6597), and
it gives up with an exception on folders that are too deep.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[str]:
    """Its path, without symbolic links; it and all that is in it are removed in the end, when nothing writes there.

    It is made in `place`, or where the system keeps temporary files.
    """
    folder = os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=place))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: str) -> None:
    """Remove it with all that is in it, closed and deep folders too; what the system refuses to remove stays."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        # Neither of them follows a link that it meets, or has a limit of depth.
        for command in (("chmod", "-R", "u+rwX"), ("rm", "-rf")):
            with suppress(OSError):
                subprocess.run(
                    [*command, "--", folder],
                    check=False,
                    env={"PATH": os.defpath},  # on ours may be a folder that the program could write to
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
