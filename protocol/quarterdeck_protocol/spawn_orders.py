"""What supervisor and zygote say to each other: orders in, reports out, one JSON line each.  No secret of a server."""

import msgspec


class SpawnOrder(msgspec.Struct, frozen=True):
    """What a new worker is told.

    Attributes:
        address: where its supervisor listens.
        token: hex; proves once that the worker is ours.
        is_remote: whether its server is behind a URL.
    """

    generation: int
    address: str
    token: str
    is_remote: bool = False


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
