"""Logging as it was before a test: commands that run in this process set it up for themselves."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def untouched_logging() -> Iterator[None]:
    """Undo what the body does to the root logger, to ours, and to warnings."""
    root, ours = logging.getLogger(), logging.getLogger("quarterdeck")
    handlers, level, our_level, show = root.handlers[:], root.level, ours.level, warnings.showwarning
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(our_level)
        logging.captureWarnings(capture=False)
        warnings.showwarning = show
