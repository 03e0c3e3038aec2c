"""What supervisor and zygote say to each other: orders in, reports out, one JSON line each.  No secret of a server."""

import msgspec


class SpawnOrder(msgspec.Struct, frozen=True):
    """An order to start a worker: its supervisor's address, and the hex token that proves once that it is ours."""

    generation: int
    address: str
    token: str
    is_remote: bool = False


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A worker was forked; generation 0: the zygote is ready, and `machine` is the sandbox's `Machine` as JSON."""

    generation: int
    pid: int
    machine: str = ""


class Died(msgspec.Struct, frozen=True, tag="died"):
    """A worker is gone: its exit status, or minus the signal."""

    generation: int
    pid: int
    returncode: int


Report = Forked | Died
