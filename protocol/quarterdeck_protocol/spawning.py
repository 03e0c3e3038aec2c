"""What supervisor and zygote say to each other: orders in, reports out, one JSON line each.  No secret of a server."""

import msgspec


class SpawnOrder(msgspec.Struct, frozen=True):
    """What a worker is born with: where its supervisor listens, and the one-time token (hex) that proves it is ours."""

    generation: int
    address: str
    token: str


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A worker was born; generation 0 says that the zygote itself is ready."""

    generation: int
    pid: int


class Died(msgspec.Struct, frozen=True, tag="died"):
    """A worker is gone: its exit status, or minus the signal."""

    generation: int
    pid: int
    returncode: int


Report = Forked | Died
