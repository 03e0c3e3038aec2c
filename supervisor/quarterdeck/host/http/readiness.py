"""Why what is served is not ready for requests.  Whoever shows no token is told kinds alone, no names or causes."""

import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.config.places.paths import ledger_dir
from quarterdeck.ledger.store.database import DATABASE_NAME
from quarterdeck_protocol.plain_words import plain_words

MIN_FREE_BYTES: Final = 4 * 1024 * 1024
"""Below this the ledger's disk counts as full: a decision with its documents needs about as much."""


class Obstacle(StrEnum):
    """What keeps requests from being served."""

    DRAINING = "draining"
    LEDGER = "ledger"
    DECK_OPENING = "deck_opening"
    DECK_FAILED = "deck_failed"
    SERVER_STARTING = "server_starting"
    SERVER_FAILED = "server_failed"


class Unready(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason; `name` is that of its deck or server, `why` the cause in words."""

    kind: Obstacle
    name: str = ""
    why: str = ""


def encode_readiness(reasons: Iterable[Unready], *, in_full: bool) -> tuple[int, bytes]:
    """Return the status and the body that answer `GET /readyz`."""
    reasons = list(reasons)
    if not in_full:
        # Not how many there are, either.
        reasons = [Unready(kind) for kind in Obstacle if any(reason.kind is kind for reason in reasons)]
    return 503 if reasons else 200, msgspec.json.encode({"ready": not reasons, "reasons": reasons})


def ledger_obstacles(state: Path) -> Iterator[Unready]:
    """Yield why the ledger of this state directory cannot be written, as far as a few system calls tell."""
    directory = ledger_dir(state)
    for path in (directory, directory / DATABASE_NAME):
        try:
            disk = os.statvfs(path)
        except OSError as error:
            yield Unready(Obstacle.LEDGER, why=plain_words(error))
            return
        free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
        if not os.access(path, os.W_OK):
            yield Unready(Obstacle.LEDGER, why=f"{path} cannot be written")
            return
        if disk.f_blocks and free * disk.f_frsize < MIN_FREE_BYTES:
            yield Unready(Obstacle.LEDGER, why=f"the disk of {path} is full")
            return
