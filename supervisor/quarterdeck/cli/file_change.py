"""Change a file of the user's: shown as a diff, written whole, with a copy of it as it was."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from quarterdeck.common.words import utf8
from quarterdeck.config.clients.link_entry import show_change
from quarterdeck.config.clients.user_file import UserFile, UserFileError, read_user_file, write_user_file
from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.text_edit import EditError

from .exits import UsageError, as_command_error
from .output import print_line

STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class FileChange:
    """The text of a file when it was read, and the new one."""

    path: Path
    old: str = field(repr=False)
    new: str = field(repr=False)

    @property
    def diff(self) -> list[str]:
        """The lines that change, secrets masked."""
        return show_change(str(self.path), self.old, self.new)

    def check(self) -> UserFile:
        """Return the file; raise CommandError unless it still holds `old` and can be written."""
        with as_command_error(UserFileError, remedy=f"make {self.path} a file of your own that can be written"):
            file = read_user_file(self.path)
        if file.text != self.old:
            raise UsageError(f"{self.path} has changed meanwhile, and is not changed", "run the command again")
        nearest = next(each for each in (file.target, *file.target.parents) if each.exists())
        if not os.access(nearest, os.W_OK):
            remedy = "make it writable, or name another with -c FILE"
            raise UsageError(f"{self.path} is read-only, and is not changed", remedy)
        return file

    def write(self) -> Path | None:
        """Write the new text. Return the backup; raise CommandError if the file changed or cannot be written."""
        return write_file(self.check(), self.new)


@contextmanager
def file_errors(path: Path, instead: str, *, correct: str) -> Iterator[None]:
    """Raise errors of a user's file in the block as CommandError; `instead` names another file, `correct` mends it."""
    unreadable = as_command_error(UserFileError, remedy=f"make {path} a file of your own, or {instead}")
    with unreadable, as_command_error(DocumentError, EditError, remedy=correct, what=f"{path} is not changed: "):
        yield


def write_file(file: UserFile, text: str) -> Path | None:
    """Write a user's file, private if new. Return the backup; raise CommandError if it cannot be written."""
    with as_command_error(UserFileError, remedy=f"make {file.path} a file of your own that can be written"):
        return write_user_file(file, text, datetime.now(UTC), is_private=file.status is None)


def print_diff(lines: list[str]) -> None:
    """Print a diff for people."""
    for line in lines:
        style = STYLES.get(line[:1], "") if line[:3] not in {"+++", "---"} else "bold"
        print_line(line.replace("\t", "    "), style, wraps=False)


def as_it_was(backup: Path | None) -> str:
    """Return where the backup of a changed file is, to follow a sentence."""
    return f"; as it was: {backup}" if backup else ""


def view_change(diff: list[str], backup: Path | None, *, is_changed: bool) -> dict[str, object]:
    """Return a change for programs."""
    return {"changed": is_changed, "diff": [utf8(line) for line in diff], "backup": utf8(backup) if backup else None}
