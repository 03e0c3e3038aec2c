"""Races for the file tools: a thread that lets a name lead elsewhere and back, as fast as it can."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

END_S: Final = 30.0
"""How long a thread may take to finish its round."""


@contextmanager
def swapping(place: Path, lure: Path) -> Iterator[None]:
    """Until the end of the block `place` is by turns itself, nothing, and a link to `lure`; then itself again."""
    aside, link = place.with_name(f"{place.name}.aside"), place.with_name(f"{place.name}.link")
    link.symlink_to(lure)

    def turn() -> None:
        os.rename(place, aside)
        os.rename(link, place)
        os.rename(place, link)
        os.rename(aside, place)

    with meanwhile(turn):
        yield
    link.unlink()


@contextmanager
def alternating(place: Path, make: Callable[[Path], None], make_other: Callable[[Path], None]) -> Iterator[None]:
    """Until the end of the block `place` is by turns what either callable makes, and never nothing."""
    draft = place.with_name(f"{place.name}.next")

    def turn() -> None:
        for each in (make_other, make):
            each(draft)
            os.replace(draft, place)

    turn()
    with meanwhile(turn):
        yield


@contextmanager
def meanwhile(turn: Callable[[], None]) -> Iterator[None]:
    """Until the end of the block `turn` is called again and again, and must not fail."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                turn()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
    assert not thread.is_alive()
    assert failures == []
