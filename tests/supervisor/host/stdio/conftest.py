"""Pipes for tests of what reads and writes them."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from io import FileIO
from typing import NamedTuple

import pytest


class Pipe(NamedTuple):
    """The two ends of a pipe; a test may close either, and both are closed at its end."""

    reading: FileIO
    writing: FileIO


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    with ExitStack() as stack:
        yield Pipe(stack.enter_context(FileIO(reading, "rb")), stack.enter_context(FileIO(writing, "wb")))
