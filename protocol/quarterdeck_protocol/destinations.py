"""`host:port`, the entries of a policy's network list.

A host is a name and never an address: inside, /etc/hosts maps each name to a loopback address of its own, and an
address would need no mapping and get none.  Pure.
"""

import ipaddress
import re
from typing import Final, NamedTuple

MAX_DESTINATIONS: Final = 64
"""Each is a listening socket while the process lives."""

_MAX_HOST_CHARS: Final = 253
"""RFC 1035 §2.3.4, without the root's dot."""

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label in every spelling of an address that `inet_aton` reads, `127.1` and `0x7f000001` included."""


class Destination(NamedTuple):
    """One entry; `host` in lower case, `port` 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_destination(text: str) -> Destination:
    """Read `host:port`.

    Raises:
        ValueError: it is none; the text says why and does not repeat the entry.
    """
    host, colon, digits = text.rpartition(":")
    if not colon:
        raise ValueError(
            "names an address, and a host name is needed: /etc/hosts maps it"
            if _is_address(text)
            else "names no port: write host:port"
        )
    host = host.lower().removesuffix(".")
    if _is_address(host) or _is_address(text):
        raise ValueError("names an address, and a host name is needed: /etc/hosts maps it")
    if "*" in host:
        raise ValueError("has a wildcard, and only whole host names can be mapped: list each")
    if len(host) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, host.split("."))):
        raise ValueError("names no host: letters, digits, '-' and dots, as in example.com:443")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 1 <= int(digits) <= 65535):
        raise ValueError("names no port: 1 to 65535")
    return Destination(host, int(digits))


def _is_address(text: str) -> bool:
    if _NUMBER.fullmatch(text.rpartition(".")[2]):
        return True
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True
