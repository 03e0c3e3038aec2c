"""What the tests share: a file in which they note what they saw, a word and a number a line."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[[str, object], None]:
    def write(word: str, what: object) -> None:
        with Path(pytestconfig.rootpath, "notes").open("a") as notes:
            notes.write(f"{word} {what}\n")

    return write
