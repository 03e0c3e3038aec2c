"""Where a server's configuration comes from, and how far its author is trusted.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final


class Standing(StrEnum):
    """Whose word a row is."""

    NAMED = "named"
    """The user's: they named the file on the command line."""

    USER = "user"
    """The user's: it was found in their own directories."""

    PROJECT = "project"
    """A stranger's, until it is approved: it was found in the working directory."""

    CODE = "code"
    """The embedding program's: there is no file."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file that values of a row were taken from.

    Attributes:
        value: of `${file:…}` the text, of an env file its variables.
    """

    path: Path
    value: str | Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one server is written down.

    Attributes:
        path: the file, as it was named or found; None without one.
        location: the place in the file, as messages call it.
        standing: whose word it is.
        row: what is written there, variables unexpanded; values in its `env` and `headers` may be secrets.
        pointer: the place in the file as a JSON pointer.
        files: what its values were taken from beside that, by path as it is written.
        expanded: values that were put in for its variables, and must not be shown.
    """

    path: Path | None
    location: str
    standing: Standing
    row: Mapping[str, object] = field(repr=False)
    pointer: str = ""
    files: Mapping[str, FileRead] = field(default_factory=dict, repr=False)
    expanded: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file that the row was read from, its own first."""
        return (*((self.path,) if self.path is not None else ()), *(file.path for file in self.files.values()))

    @property
    def shown(self) -> Mapping[str, object]:
        """The row as it may be shown: all of it but the secrets that are written into `env`, `headers` and the URL."""
        from quarterdeck.config.secrets.masking import mask_row  # `ps` names files, and shows no row of them

        return mask_row(self.row)


FROM_CODE: Final = Origin(None, "", Standing.CODE, {})
"""The origin of a server that no file describes."""
