"""The state that hooks and fixtures share in pytest's stashes. Nothing of the product is imported."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from .activation import Run, RunAddress
from .leaks import Watch
from .options import Options

if TYPE_CHECKING:
    from .client.pool import Pool
    from .client.server import McpServer

WORKER_INPUT: Final = "quarterdeck"  # xdist's key for data to its workers, and, as `WORKER_OUTPUT`, back
WORKER_OUTPUT: Final = "quarterdeck_leaks"


class McpLeakWarning(UserWarning):
    """A test left something behind, with `--mcp-leaks=warn`."""


@dataclass(slots=True)
class Session:
    """This process's part of the run.

    `run` is the supervisor in the process that made it: the controller, or the only one. `address` is None until it is
    needed, `pool` and `watch` before the first test; `leaks` are those of xdist's workers too, one line each.
    """

    options: Options
    run: Run | None = None
    address: RunAddress | None = None
    pool: "Pool | None" = None
    watch: Watch | None = None
    leaks: list[str] = field(default_factory=list)

    def open_pool(self, worker: str) -> "Pool":
        """Return the pool, made now where there is none yet."""
        from .client.pool import Pool

        if self.pool is None:
            if self.address is None:
                self.run = Run()
                self.address = self.run.address
            self.pool = Pool(self.address, self.options, worker)
        return self.pool

    def open_watch(self) -> Watch | None:
        """Return the watch, made now where there is none yet; None if leaks are ignored."""
        if self.watch is None and self.options.leaks != "off":
            self.watch = Watch()
        return self.watch

    def close(self) -> list[str]:
        """Hang up, and end the run's supervisor if this process made it; repeatable. Return one line per leftover."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None
        return self.run.close(keep=self.options.keep) if self.run is not None else []


SESSION: Final = pytest.StashKey[Session]()
SERVERS: "Final[pytest.StashKey[list[McpServer]]]" = pytest.StashKey()
"""The servers that a test has used."""
