"""Write what is added to a ledger to where the user wants it as well: each target in a thread of its own.

A thread reads the ledger as any reader does: a target that is slow or away holds up no call, and nothing waits in
memory.  What was sent is kept in a file beside the ledger, so that the next process goes on there: a record may come
twice, and is missing only if it was deleted from the ledger before it could be sent, which is told.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.shielding import carried_through
from quarterdeck.config.load.own_keys import AuditTarget
from quarterdeck.ledger.errors import LedgerError
from quarterdeck.ledger.follow import POLL_S

from .feed import Feed, Place
from .sinks import Sink, make_sink

MAX_PAUSE_S: Final = 30.0
"""Between two tries of a target that takes nothing."""

LEAVE_S: Final = 1.0
"""Given to the last records at the end of the process; what is left is sent by the next."""

_log = logging.getLogger("quarterdeck.audit")


@asynccontextmanager
async def forwarding(directory: Path, targets: Sequence[AuditTarget]) -> AsyncIterator[None]:
    """Forward the ledger in `directory` for as long as the block takes."""
    threads = [Forwarder(directory, target) for target in targets]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        for each in threads:
            each.ending.set()
        await carried_through(partial(asyncio.to_thread, _join, threads))


def _join(threads: Sequence["Forwarder"]) -> None:
    end = monotonic() + LEAVE_S
    for each in threads:
        each.join(max(0.0, end - monotonic()))


class Forwarder(threading.Thread):
    """Forwards one ledger to one target until `ending` is set, and then once more."""

    def __init__(self, directory: Path, target: AuditTarget, sink: Sink | None = None) -> None:
        super().__init__(name=f"audit {target}", daemon=True)  # no target keeps a process from its end
        self.ending: Final = threading.Event()
        self._directory = directory
        self._target = target
        self._sink = sink or make_sink(target)
        name = sha256(f"{target.kind} {target}".encode()).hexdigest()[:12]
        self._place_path = directory / f"sent-{name}.json"
        self._problem = ""

    def run(self) -> None:
        """See `threading.Thread`."""
        pause_s, is_last = POLL_S, False
        with Feed(self._directory, self._read_place()) as feed:
            while not is_last:
                is_last = self.ending.is_set()
                try:
                    self._forward(feed)
                except (LedgerError, OSError) as error:
                    pause_s = min(2 * pause_s, MAX_PAUSE_S)
                    self._tell(str(error))
                else:
                    pause_s = POLL_S
                    self._tell("")
                self.ending.wait(pause_s)
        self._sink.close()

    def _forward(self, feed: Feed) -> None:
        """Forward all that is new; what was sent counts also if the rest fails."""
        before = feed.place
        while items := feed.read():
            try:
                for item in items:
                    self._sink.write(item.record)
                    feed.place = item.place
            finally:
                self._keep_place(feed.place)
        if feed.place != before:
            self._keep_place(feed.place)

    def _read_place(self) -> Place | None:
        try:
            return msgspec.json.decode(self._place_path.read_bytes(), type=Place)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("%s is read from its beginning for %s: %s", self._directory, self._target, error)
            return Place()

    def _keep_place(self, place: Place | None) -> None:
        replace_file(self._place_path, msgspec.json.encode(place), is_locked=True)

    def _tell(self, problem: str) -> None:
        if problem and not self._problem:
            _log.warning("the audit to %s waits: %s", self._target, problem)
        elif self._problem and not problem:
            _log.info("the audit to %s goes on", self._target)
        self._problem = problem
