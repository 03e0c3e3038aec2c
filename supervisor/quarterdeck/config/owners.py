"""Tell whether somebody other than the user and root may change what a path names.

Above: readers of what is the user's own word.  A path is another's word when its file, a directory that leads to it,
or a link on the way may be changed by another; where the sticky bit is set (`/tmp`) others may add, but not replace.
"""

import os
import stat
from typing import Final

from quarterdeck_sandbox.links import follow
from quarterdeck_sandbox.paths import ancestors

ROOT: Final = 0


def other_writer(path: str | os.PathLike[str]) -> str | None:
    """Who else may change what `path` names, as a sentence about it with the remedy; None for nobody.

    What cannot be looked at is nobody's: whoever opens it says why.
    """
    followed = follow(os.path.join(os.getcwd(), os.fspath(path)))
    own = {ROOT, os.geteuid()}
    for place in (followed.real, *(link for link, _ in followed.links)):
        for step in ancestors(place):
            try:
                status = os.lstat(step)
            except OSError:
                continue
            if problem := _problem(step, status, own):
                return problem
    return None


def _problem(path: str, status: os.stat_result, own: set[int]) -> str | None:
    if status.st_uid not in own:
        return f"{path} belongs to uid {status.st_uid}, who can change what is read: {_remedy('chown', path)}"
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return None
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status)):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        return f"{path} may be changed by other users (mode {mode}): {_remedy('chmod', path)}"
    return None


def _is_own_group(status: os.stat_result) -> bool:
    """Many systems give each user a group of their own, which nobody else is in; root's is another matter."""
    return os.geteuid() != ROOT and status.st_gid == os.getegid()


def _remedy(what: str, path: str) -> str:
    owner = "root" if os.geteuid() == ROOT else str(os.geteuid())
    return f"run `chown {owner} {path}`" if what == "chown" else f"run `chmod go-w {path}`"
