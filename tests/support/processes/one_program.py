"""The command line, put together once for all commands that run in this process: that is most of what one costs.

Nothing of a run stays in it.  That a program makes its own each time is tried where `make_program` is tested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

from quarterdeck.cli import program
from quarterdeck.cli.commands import ENTRIES, Entry
from quarterdeck.cli.program import make_program


@contextmanager
def program_made_once() -> Iterator[None]:
    """Have `run` use it."""
    with mock.patch.object(program, "make_program", _made):
        yield


@cache
def _made(entries: tuple[Entry, ...] = ENTRIES) -> Any:
    return make_program(entries)
