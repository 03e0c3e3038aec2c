"""Appends to a ledger until it is killed: `killed_ledger_writer.py DIRECTORY SEED`.

Prints the number of the last event of each durable append once it has returned.  Imports little, since it is started
dozens of times.
"""

import os
import random
import sys
from hashlib import sha256
from pathlib import Path

from quarterdeck.ledger.compaction import compact
from quarterdeck.ledger.events import Approved, Enrolled, Subject, Voice
from quarterdeck.ledger.store import LedgerStore

WHERE = {"scope": "/home/u/mcp.json", "server": "fs"}


def main(directory: Path, seed: int) -> None:
    """Until killed."""
    chance = random.Random(seed)
    store = LedgerStore.open(directory, writable=True)
    say(0)
    while True:
        number = chance.randrange(10**6)
        name, digest = f"tool_{number}", sha256(f"document {number}".encode()).hexdigest()
        body = f"document {number}".encode() + os.urandom(chance.randrange(3_000))
        store.append([Enrolled(**WHERE, key="bk_0", tool=name, definition=digest)], {digest: body})
        stored = store.append(
            [
                Enrolled(**WHERE, key=f"bk_{number}", tool=name, definition=digest),
                Approved(**WHERE, subject=Subject.TOOL, hash=digest, by=Voice.PERSON, name=name),
            ]
        )
        say(stored[-1].seq)
        if chance.random() < 0.05:
            compact(store)


def say(number: int) -> None:
    """Tell the test."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
