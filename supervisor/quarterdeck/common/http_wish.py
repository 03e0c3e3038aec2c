"""Where the daemon is wished to listen on HTTP: by the user's own file, or by a command.  Pure.

A door imports it with the daemon's messages, so that it imports nothing but what those do.
"""

import msgspec


class HttpWish(msgspec.Struct, frozen=True):
    """Where the daemon is to listen on HTTP.

    Attributes:
        address: as in `HOST:PORT`; what is left out is the default.
        allow_remote: whether other machines may reach it.
        allow_hosts: further names by which it may be called.
    """

    address: str = ""
    allow_remote: bool = False
    allow_hosts: tuple[str, ...] = ()
