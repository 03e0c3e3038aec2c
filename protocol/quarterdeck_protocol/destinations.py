"""`host:port`, the entries of a policy's network list.

A host is a name, which /etc/hosts maps to a loopback address of its own inside, or a whole address, which is the user's
word for exactly that one: `10.0.0.5:443`, `[fd00::5]:443`.  Pure.
"""

import re
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from quarterdeck_protocol.addresses import Place, parse_address, place_of, plain

MAX_DESTINATIONS: Final = 64
"""Each is a listening socket while the process lives."""

_MAX_HOST_CHARS: Final = 253
"""RFC 1035 §2.3.4, without the root's dot."""

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label in every spelling of an address that `inet_aton` reads, `127.1` and `0x7f000001` included."""

_IN_PART: Final = "is an incomplete address, or not in the usual spelling: write 10.0.0.5:443 or [fd00::5]:443"


class Destination(NamedTuple):
    """One entry; `host` in lower case, an address in its shortest spelling and without brackets; `port` 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(text: str) -> Destination:
    """Read `host:port`.

    Raises:
        ValueError: it is none; the text says why and does not repeat the entry.
    """
    host, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        raise ValueError("is neither a mode (none, loopback, internet, full) nor HOST:PORT")
    if _is_address(text):
        raise ValueError(_IN_PART)
    host = _address(host) or _name(host)
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 1 <= int(digits) <= 65535):
        raise ValueError("has no port: write NAME:PORT, with a port from 1 to 65535")
    return Destination(host, int(digits))


def _name(text: str) -> str:
    host = text.lower().removesuffix(".")
    if _NUMBER.fullmatch(host.rpartition(".")[2]) or _is_address(host.strip("[]")):
        raise ValueError(_IN_PART)
    if "*" in host:
        raise ValueError("has a wildcard, but only whole host names are supported: list each host")
    if len(host) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, host.split("."))):
        raise ValueError("is not a host name: use letters, digits, '-' and dots, as in example.com:443")
    return host


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


def _address(text: str) -> str:
    """The address that `text` is as a whole, IPv6 in brackets; empty for anything else.

    Raises:
        ValueError: nobody can be connected to there.
    """
    is_bracketed = text.startswith("[") and text.endswith("]")
    inner = text[1:-1] if is_bracketed else text
    try:
        address = plain(parse_address(inner))
    except ValueError:
        return ""
    if "%" in inner or is_bracketed is not (":" in inner):
        return ""
    place = place_of(address)
    is_linked = place is Place.LINK_LOCAL and not isinstance(address, IPv4Address)
    if place in {Place.UNSPECIFIED, Place.MULTICAST} or is_linked:
        raise ValueError(f"names an address that cannot be listed: it is {place}")
    return str(address)
