"""What the command line's tests share."""

from collections.abc import Iterator

import pytest
from support.processes.one_program import program_made_once
from support.suite.loggers import untouched_logging


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    """Commands set logging up for a process of their own."""
    with untouched_logging():
        yield


@pytest.fixture(autouse=True)
def command_line_made_once() -> Iterator[None]:
    """Hundreds of commands run here."""
    with program_made_once():
        yield
