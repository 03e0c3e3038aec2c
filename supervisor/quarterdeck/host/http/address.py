"""Where the HTTP server listens: judge the address, and have a socket there.

Apart from `serve`, so that a wrong address is known before anything is started or imported for it.
"""

import errno
import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import Final

from quarterdeck_protocol.faults import FaultKind, ProtocolFault

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""One request of a client: room for a file in the arguments."""

BACKLOG: Final = 128
"""Connections that wait in the kernel; the client's own tries again where there are more."""

_REASONS: Final = {
    errno.EADDRINUSE: (
        "another program listens on this port",
        "choose another port (0 for any that is free), or end that program",
    ),
    errno.EADDRNOTAVAIL: ("this machine does not have the address", "name an address of this machine"),
    errno.EACCES: ("this user may not listen on this port", "choose a port above 1023"),
}
"""Of the operating system's refusals those that a person can do something about, and what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How the HTTP server listens.

    Attributes:
        bind: a host name or address.
        port: 0 lets the system choose.
        token: what clients must show; None for no check, on loopback only.
        allow_remote: whether `bind` may be reachable from other machines.
        hosts: further names to be called by, such as that of a remote machine; one without a port goes with each.
        max_body_bytes: of one request.
    """

    bind: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    allow_remote: bool = False
    hosts: tuple[str, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES


def listen(options: HttpOptions) -> socket.socket:
    """A listening socket where the options say.

    Raises:
        ProtocolFault: `transport`; with the code `config_invalid` when the address is wrong or not loopback, and that
            was not allowed, else when it cannot be had at present.
    """
    where = f"[{options.bind}]:{options.port}" if ":" in options.bind else f"{options.bind}:{options.port}"
    try:
        found = socket.getaddrinfo(options.bind, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # a name can be too long, or no name at all
        raise ProtocolFault(
            FaultKind.TRANSPORT,
            f"cannot listen on {where}: the name {options.bind!r} has no address",
            error,
            code="config_invalid",
            remedy="name an address of this machine, such as 127.0.0.1, or a name that has one",
        ) from None
    family, _, _, _, address = found[0]
    _check_reach(options, str(address[0]))
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        number = error.errno or 0
        why, remedy = _REASONS.get(number, (os.strerror(number).lower(), "choose another address or port"))
        is_wrong = number == errno.EADDRNOTAVAIL
        raise ProtocolFault(
            FaultKind.TRANSPORT,
            f"cannot listen on {where}: {why}",
            error,
            code="config_invalid" if is_wrong else None,
            remedy=remedy,
        ) from None


def is_taken(fault: ProtocolFault) -> bool:
    """Whether `listen` failed because another program listens there."""
    return isinstance(fault.cause, OSError) and fault.cause.errno == errno.EADDRINUSE


def _check_reach(options: HttpOptions, address: str) -> None:
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    if not options.allow_remote:
        reason = "other machines could reach it"
        remedy = "name a loopback address, or add --allow-remote (which needs the token)"
    elif options.token is None:
        reason = "other machines could reach it, and no token is required"
        remedy = "name a loopback address, or leave --no-token out"
    else:
        return
    raise ProtocolFault(
        FaultKind.TRANSPORT, f"refusing to listen on {address}: {reason}", code="config_invalid", remedy=remedy
    )
