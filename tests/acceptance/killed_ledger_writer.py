"""Has writers append to a ledger until each is killed: `killed_ledger_writer.py DIRECTORY`.

For each line `SEED` on stdin one is forked, since dozens are wanted and importing takes longer than most of them live.
Printed are `pid N`, then by the writer 0 once it has opened and the number of the last event of each durable append
once it has returned, and `ended STATUS` (as of `waitpid`) once it is gone.
"""

import os
import random
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from quarterdeck.ledger.events.events import Approved, Authority, Enrolled, Subject
from quarterdeck.ledger.store.store import LedgerStore

WHERE = {"scope": "/home/u/mcp.json", "server": "fs"}


def main(directory: Path) -> None:
    """Until stdin ends."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            write(directory, int(line))
        say(f"pid {pid}")
        say(f"ended {os.waitpid(pid, 0)[1]}")


def write(directory: Path, seed: int) -> NoReturn:
    """Until killed; a writer that fails instead has its reason on stderr, and another status."""
    try:
        chance = random.Random(seed)
        store = LedgerStore.open(directory)
        say("0")
        while True:
            number = chance.randrange(10**6)
            name, digest = f"tool_{number}", sha256(f"document {number}".encode()).hexdigest()
            body = f"document {number}".encode() + os.urandom(chance.randrange(3_000))
            store.append([Enrolled(**WHERE, key="bk_0", tool=name, definition=digest)], {digest: body})
            stored = store.append(
                [
                    Enrolled(**WHERE, key=f"bk_{number}", tool=name, definition=digest),
                    Approved(**WHERE, subject=Subject.TOOL, hash=digest, by=Authority.PERSON, name=name),
                ]
            )
            say(str(stored[-1].seq))
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def say(words: str) -> None:
    """Tell the test; a line is written whole or not at all."""
    os.write(sys.stdout.fileno(), f"{words}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
