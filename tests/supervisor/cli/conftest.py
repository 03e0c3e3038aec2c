"""What the command line's tests share."""

from collections.abc import Iterator

import pytest
from support.loggers import untouched_logging


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    """Commands set logging up for a process of their own."""
    with untouched_logging():
        yield
