"""What supervisor and zygote say to each other: orders in, reports out, one JSON line each.  No secret of a server."""

from enum import StrEnum

import msgspec


class WorkerKind(StrEnum):
    """What a worker drives its server by; a zygote forks workers of one kind."""

    STDIO = "stdio"
    REMOTE = "remote"


class SpawnOrder(msgspec.Struct, frozen=True):
    """What a new worker is told: where its supervisor listens, and the one-time token (hex) that proves it is ours."""

    generation: int
    address: str
    token: str


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A worker was forked; generation 0 says that the zygote itself is ready.

    Then `machine` is what can be enforced where it runs: the sandbox's `Machine` as JSON.
    """

    generation: int
    pid: int
    machine: str = ""


class Died(msgspec.Struct, frozen=True, tag="died"):
    """A worker is gone: its exit status, or minus the signal."""

    generation: int
    pid: int
    returncode: int


Report = Forked | Died
