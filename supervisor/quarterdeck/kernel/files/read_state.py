"""What a session has read of each file, so that nothing is changed unseen.  Pure.

The file tools' gate: `read` remembers, `write` and `edit` check.  Files are told apart by real path, states of a file
by `FileStat.revision`.
"""

from collections import OrderedDict
from typing import Final

MAX_PATHS: Final = 4_096
"""Of one session; the file used longest ago is forgotten, and would have to be read again."""

NOT_READ: Final = "it has not been read in this session"
CHANGED_SINCE: Final = "it has changed on disk since it was last read"


class ReadState:
    """The revision of each file that the session knows."""

    def __init__(self) -> None:
        self._revisions: OrderedDict[str, str] = OrderedDict()

    def remember(self, real_path: str, revision: str) -> None:
        """The session knows the file as it is at `revision`: it has read or written that."""
        self._revisions[real_path] = revision
        self._revisions.move_to_end(real_path)
        if len(self._revisions) > MAX_PATHS:
            self._revisions.popitem(last=False)

    def check(self, real_path: str, revision: str) -> str | None:
        """Why a file that is at `revision` now may not be changed; None when it may."""
        known = self._revisions.get(real_path)
        if known is None:
            return NOT_READ
        self._revisions.move_to_end(real_path)
        return None if known == revision else CHANGED_SINCE
