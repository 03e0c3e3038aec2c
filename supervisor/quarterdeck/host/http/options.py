"""What the HTTP server is started with: its address, judged and listened on, and its bearer token.

Apart from `serve`, so that a wrong one is known before anything is started or imported for it.
"""

import errno
import ipaddress
import os
import secrets
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.common.file_changes import replace_file
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_sandbox import open_regular

from .admission import LOOPBACK_NAMES, Authority, parse_name

DEFAULT_HOST: Final = "127.0.0.1"

DEFAULT_PORT: Final = 8808
"""Fixed, since clients are configured with it."""

MAX_PORT: Final = 65_535

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""One request of a client: room for a file in the arguments."""

BACKLOG: Final = 128
"""Connections that wait in the kernel; the client's own tries again where there are more."""

_UNSPECIFIED: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, never bound

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
        token: the owner's, which clients must show; None for no check, on loopback only.
        tokens: the file of the tokens of others; None for none.
        allow_remote: whether `bind` may be reachable from other machines.
        hosts: further names to be called by, such as that of a remote machine; one without a port goes with each.
        max_body_bytes: of one request.
        deck: the name of the deck that is served, by which tokens may be bound to it; empty for one without.
        groups: the names of those that all clients are shown, together; empty for everything.
        search: show all clients two tools that find and call the others, in place of them.
    """

    bind: str = DEFAULT_HOST
    port: int = 0
    token: str | None = None
    tokens: Path | None = None
    allow_remote: bool = False
    hosts: tuple[str, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES
    deck: str = ""
    groups: tuple[str, ...] = ()
    search: bool = False


def split_address(text: str, usual_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """The host and the port of `HOST:PORT`, `HOST`, `PORT` or `[IPV6]:PORT`; what is left out is the default.

    Raises:
        ValueError: it is none of them.
    """
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        is_formed = bool(host and closed) and (not rest or rest.startswith(":"))
    elif text.isdigit():
        host, port, is_formed = "", text, True
    else:
        host, _, port = text.partition(":")
        is_formed = ":" not in port
    port = port or str(usual_port)
    if not (is_formed and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host or DEFAULT_HOST, int(port)


def accepted_names(options: HttpOptions) -> list[Authority]:
    """What requests may call the server.

    Raises:
        ProtocolFault: `transport`, `config_invalid`: one of `hosts` is no name that a request could have.
    """
    # The unspecified address is no name: browsers reach loopback services through it.
    own = () if options.bind in _UNSPECIFIED else (options.bind,)
    names = []
    for name in (*LOOPBACK_NAMES, *own, *options.hosts):
        try:
            names.append(parse_name(name))
        except ValueError as error:
            raise ProtocolFault(
                FaultKind.TRANSPORT,
                f"the name {name!r} {error}",
                code="config_invalid",
                remedy="for example --allow-host deck.example",
            ) from None
    return names


def listen(options: HttpOptions, offered: socket.socket | None = None) -> socket.socket:
    """Return a listening socket for these options: `offered` if it is one for them, else a new one.

    Raises:
        ProtocolFault: `transport`; with the code `config_invalid` when a name or the address is wrong, or not loopback,
            and that was not allowed, else when it cannot be had at present.
    """
    accepted_names(options)
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
    if offered is not None and _listens_at(offered, family, address):
        return offered
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


def _listens_at(found: socket.socket, family: int, address: tuple[object, ...]) -> bool:
    try:
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(listens) and found.family == family and found.getsockname()[:2] == address[:2]
    except OSError:
        return False


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


TOKEN_BYTES: Final = 32
"""256 random bits."""

_MIN_TOKEN_CHARS: Final = 32
"""A file with less holds no token of ours; a person's own must be as long."""


class TokenFileError(Exception):
    """The token's file cannot be used; the message says what to do."""


def load_or_create_token(path: Path) -> str:
    """The token in `path`, created when there is none: whole or not at all, readable by its owner only.

    Of several processes that create it at once, all get the same token.

    Raises:
        TokenFileError: the file is readable by others, or holds no token.
    """
    try:
        return load_token(path)
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):  # another process was first; its token is the token
        replace_file(path, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode(), must_be_new=True)
    return load_token(path)


def load_token(path: Path) -> str:
    """The token in `path`.

    Raises:
        FileNotFoundError: there is none.
        TokenFileError: the file is readable by others, or holds no token.
    """
    try:
        with open_regular(path, follow_link=False) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise TokenFileError(f"others may read the token: delete {path} to get a new one, or chmod 600 it")
            token = file.read(4096).decode(errors="replace").strip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenFileError(f"the token file cannot be read: {plain_words(error)}") from None
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenFileError(f"{path} contains no token of {_MIN_TOKEN_CHARS} characters: delete it to get a new one")
    return token
