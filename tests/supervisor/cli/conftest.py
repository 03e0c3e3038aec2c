"""What the command line's tests share: logging as it was, and one program for all commands."""

import logging
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from support.command_line import Said

from quarterdeck.cli import program
from quarterdeck.cli.commands import ENTRIES, Entry
from quarterdeck.cli.program import make_program


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    """Commands set the root logger, ours, and warnings up for a process of their own."""
    root, ours = logging.getLogger(), logging.getLogger("quarterdeck")
    handlers, level, our_level, show = root.handlers[:], root.level, ours.level, warnings.showwarning
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.captureWarnings(capture=False)
    warnings.showwarning = show


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


@pytest.fixture(autouse=True)
def command_line_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of commands run here, and making it is most of what one costs; `test_program` tries its own making."""
    monkeypatch.setattr(program, "make_program", _made)


@cache
def _made(entries: tuple[Entry, ...] = ENTRIES) -> Any:
    return make_program(entries)
