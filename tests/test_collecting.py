"""Tests are dealt to the workers such that none has the long ones for itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.suite.collecting import dealt

LONG = Path("tests/acceptance")


@dataclass(frozen=True)
class Item:
    """What is looked at of a test."""

    path: Path
    number: int


def items(folder: Path, files: int, each: int) -> list[Any]:
    return [Item(folder / f"test_{name}.py", number) for name in range(files) for number in range(each)]


@pytest.mark.parametrize(("workers", "long", "short"), [(1, 3, 7), (2, 4, 40), (5, 7, 300), (3, 0, 5), (4, 9, 0)])
def test_each_share_begins_with_as_many_long_files_as_another(workers: int, long: int, short: int) -> None:
    """All would wait in the end for the one worker that was given what starts processes."""
    given = items(LONG, long, 3) + items(Path("tests/unit"), short, 2)
    found = dealt(given, workers, [LONG])
    assert sorted(map(repr, found)) == sorted(map(repr, given))
    if short:
        counts = []
        for worker in range(workers):
            share = found[worker * len(found) // workers : (worker + 1) * len(found) // workers]
            is_long = [item.path.is_relative_to(LONG) for item in share]
            assert is_long == sorted(is_long, reverse=True)
            counts.append(len({item.path for item in share if item.path.is_relative_to(LONG)}))
        assert max(counts) - min(counts) <= 1
