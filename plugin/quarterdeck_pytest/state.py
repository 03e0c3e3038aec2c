"""What hooks and fixtures keep between them in pytest's stashes.  Nothing of the product is imported."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from .activation import Run, RunAddress
from .leaks import Watch
from .options import Options

if TYPE_CHECKING:
    from .client.pool import Pool
    from .client.server import McpServer

WORKER_INPUT: Final = "quarterdeck"
"""What xdist hands from the controller to its workers, and, as `WORKER_OUTPUT`, back."""

WORKER_OUTPUT: Final = "quarterdeck_leaks"


class McpLeakWarning(UserWarning):
    """Something was left behind by a test, with `--mcp-leaks=warn`."""


@dataclass(slots=True)
class Session:
    """This process's part of the run.

    Attributes:
        run: the supervisor's place where this process made it: the controller, or the only one.
        address: where the supervisor is; None until somebody needs it where there is no xdist.
        pool: the servers that tests of this process have; None before the first.
        watch: what tests make and may leave; None before the first.
        leaks: what was left, by xdist's workers too, one line each.
    """

    options: Options
    run: Run | None = None
    address: RunAddress | None = None
    pool: "Pool | None" = None
    watch: Watch | None = None
    leaks: list[str] = field(default_factory=list)

    def open_pool(self, worker: str) -> "Pool":
        """The pool, made now where there is none yet."""
        from .client.pool import Pool

        if self.pool is None:
            if self.address is None:
                self.run = Run()
                self.address = self.run.address
            self.pool = Pool(self.address, self.options, worker)
        return self.pool

    def open_watch(self) -> Watch | None:
        """The watch, made now where there is none yet and leaks are looked for."""
        if self.watch is None and self.options.leaks != "off":
            self.watch = Watch()
        return self.watch


SESSION: Final = pytest.StashKey[Session]()
SERVERS: "Final[pytest.StashKey[list[McpServer]]]" = pytest.StashKey()
"""Of a test: the servers that it has used."""
