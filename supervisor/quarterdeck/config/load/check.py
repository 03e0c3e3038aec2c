"""Everything that is wrong with configuration files, not only what stops a server first.  Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.config.native_tools import merge_native

from .gather import FileFound, gather
from .problems import Problem

SET_ASIDE: Final = "set_aside"
"""What is no error: it has no effect, and nothing else suffers."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know of a file.

    Attributes:
        file: the file.
        server: the id of the server that it is about, or the place of a row without one; empty for none.
        location: the place in the file; empty for the file as a whole.
        reason: what is wrong, and what to do; never a value that could be a secret.
        nearest: the known key that an unknown one resembles.
        is_error: whether something cannot be used; else it is only ignored or set aside.
        code: `config_invalid` or `unset_variable` of an error, else `set_aside`.
    """

    file: Path
    server: str
    location: str
    reason: str
    nearest: str | None = None
    is_error: bool = True
    code: str = "config_invalid"

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        return f"{self.file}: {place}{self.reason}"


def check_files(files: Iterable[FileFound]) -> tuple[Finding, ...]:
    """Everything there is to know of these files, file by file, what is wrong before what is ignored."""
    files = tuple(files)
    set_aside = [line for line in gather(files).warnings if not any(line in _warnings(found) for found in files)]
    wished = {found.candidate.path: found.loaded.native for found in files if found.loaded and found.loaded.native}
    set_aside += merge_native(wished)[1]
    return tuple(finding for found in files for finding in _check(found, set_aside))


def _check(found: FileFound, set_aside: Iterable[str]) -> Iterator[Finding]:
    path, loaded = found.candidate.path, found.loaded
    if found.error is not None:
        yield Finding(path, "", "", found.error.message)
    if loaded is None:
        return
    for problem in (*loaded.top_problems, *loaded.native_problems):
        yield _error(path, "", problem)
    for row in loaded.broken:
        for problem in row.problems:
            yield _error(path, row.id, problem)
    said = {f"{path}: ignored: {problem}" for problem in loaded.top_problems}
    for line in (*loaded.warnings, *set_aside):
        if line.startswith(f"{path}: ") and line not in said:
            yield Finding(path, "", "", line.removeprefix(f"{path}: "), is_error=False, code=SET_ASIDE)


def _error(path: Path, server: str, problem: Problem) -> Finding:
    return Finding(path, server, problem.location, problem.reason, problem.nearest, code=problem.code)


def _warnings(found: FileFound) -> tuple[str, ...]:
    return found.loaded.warnings if found.loaded is not None else ()
