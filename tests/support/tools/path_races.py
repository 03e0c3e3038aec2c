"""Races for the file tools: a thread that lets a name lead elsewhere and back, as fast as it can."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

END_S: Final = 30.0
"""How long a thread may take to finish its round."""


Flip = Callable[[], None]
"""Changes what is at a place, and called again changes it back."""


@contextmanager
def swap(place: Path, lure: Path) -> Iterator[Flip]:
    """`place` as itself or, by way of nothing, as a link to `lure`; in the end it must be itself."""
    aside, link = place.with_name(f"{place.name}.aside"), place.with_name(f"{place.name}.link")
    link.symlink_to(lure)

    def flip() -> None:
        if aside.exists():
            os.rename(place, link)
            os.rename(aside, place)
        else:
            os.rename(place, aside)
            os.rename(link, place)

    yield flip
    link.unlink()


def alternation(place: Path, make: Callable[[Path], None], make_other: Callable[[Path], None]) -> Flip:
    """`place` as what either callable makes, and never nothing; now it is the first."""
    draft = place.with_name(f"{place.name}.next")
    makers = cycle((make, make_other))

    def flip() -> None:
        next(makers)(draft)
        os.replace(draft, place)

    flip()
    return flip


@contextmanager
def alternating(place: Path, make: Callable[[Path], None], make_other: Callable[[Path], None]) -> Iterator[None]:
    """Until the end of the block `place` is by turns what either callable makes, and never nothing."""
    with flipping(alternation(place, make, make_other)):
        yield


@contextmanager
def flipping(flip: Flip) -> Iterator[None]:
    """Until the end of the block it is called as fast as a thread can, then all is as before."""

    def turn() -> None:
        flip()
        flip()

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
