"""Where the daemon is requested to listen on HTTP. Pure; a door imports it, so it imports nothing else."""

import msgspec


class HttpWish(msgspec.Struct, frozen=True):
    """Where the daemon is to listen on HTTP: `HOST:PORT`, with defaults for omitted parts, whether other machines may
    reach it there, and further names that clients may use for it.
    """

    address: str = ""
    allow_remote: bool = False
    allow_hosts: tuple[str, ...] = ()
