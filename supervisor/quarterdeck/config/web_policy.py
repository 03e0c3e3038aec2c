"""Where `webfetch` may connect: the policy that a user writes, and the judgement of one resolved address.  Pure.

    FetchPolicy(allow=("localhost:8000", "127.0.0.1", "10.0.0.0/8", "[fd00::/8]:443"))

The internet is open.  All that is nearer is closed unless an entry opens it: by name (`host`, `host:port`), or by
address or network (`ip`, `ip:port`, `cidr`, `cidr:port`, IPv6 in brackets where a port follows).
"""

import re
from collections.abc import Collection, Sequence
from ipaddress import ip_network
from typing import Annotated, Final

import msgspec
from pydantic import AfterValidator, field_validator

from quarterdeck_protocol.addresses import (
    MAX_DESTINATIONS,
    NEVER_BY_NAME,
    Address,
    AddressKind,
    Net,
    kind_of_address,
    parse_address,
    parse_destination,
    parse_port,
    plain,
)
from quarterdeck_protocol.policy import FrozenModel, Text

_PROXY: Final = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?/?")
_RUNS: Final = ((6665, 6669),)
_SINGLE: Final = (
    *(0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104),
    *(109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526),
    *(530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045),
    *(4190, 5060, 5061, 6000, 6566, 6679, 6697, 10080),
)
BLOCKED_PORTS: Final = frozenset(_SINGLE).union(*(range(first, last + 1) for first, last in _RUNS))
"""Ports of other services, where a request could be smuggled.  Source: the Fetch standard, "Port blocking"."""


class Allowed(msgspec.Struct, frozen=True):
    """One entry of `allow`: a host's name in lower case or a network, and a port or None for each."""

    host: str | None
    net: Net | None
    port: int | None


def _proxy(text: str) -> str:
    if not _PROXY.fullmatch(text):
        raise ValueError("is not a proxy: write http://host:port or https://host:port")
    return text


Proxy = Annotated[Text, AfterValidator(_proxy)]
"""The URL of a proxy without a login."""


class FetchPolicy(FrozenModel):
    """What `webfetch` may reach besides the internet, and how.

    Attributes:
        allow: `host`, `host:port`, `ip`, `ip:port`, `cidr` or `cidr:port`; at most 64.  An entry with a port opens
            that port only, a name opens whatever it leads to, but for a cloud's metadata, the link and multicast.
            Metadata is opened by nothing but its own address.
        proxy: `http://host:port` or `https://host:port`, which every request then goes through; None connects
            directly, whatever the environment says.  The proxy resolves names: of these no address is seen or judged
            here, only a URL that holds an address itself is.
    """

    allow: tuple[Text, ...] = ()
    proxy: Proxy | None = None

    @field_validator("allow")
    @classmethod
    def _can_be_read(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        if len(allow) > MAX_DESTINATIONS:
            raise ValueError(f"has more than {MAX_DESTINATIONS} entries")
        for index, entry in enumerate(allow):
            try:
                parse_allowed(entry)
            except ValueError as error:
                raise ValueError(f"entry [{index}] {error}") from None
        return allow


def allowed_by(policy: FetchPolicy) -> tuple[Allowed, ...]:
    """Return the parsed entries of a policy."""
    return tuple(map(parse_allowed, policy.allow))


def parse_allowed(text: str) -> Allowed:
    """Parse one entry.  Raises `ValueError` if it is none; the text says why and does not repeat the entry."""
    head, port = _split_port(text)
    try:
        return Allowed(None, ip_network(head), port)
    except ValueError as error:
        if "/" in head:
            if "host bits" in str(error):
                raise ValueError("names an address inside a network: clear the bits behind the prefix") from None
            raise ValueError("is not a network: write it as in 10.0.0.0/8 or fd00::/8") from None
    try:
        # A port is asked for there; ours was read already.
        return Allowed(parse_destination(f"{head}:1").host, None, port)
    except ValueError as error:
        reason = "is not a whole address: write all of it" if " address" in str(error) else str(error)
        raise ValueError(reason) from None


def _split_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        head, bracket, tail = text[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError("has a bracket without its end: write [address] or [address]:port")
        return head, parse_port(tail[1:]) if tail else None
    head, colon, digits = text.rpartition(":")
    return (head, parse_port(digits)) if colon and ":" not in head else (text, None)


def refusal(
    host: str, port: int, address: str, allowed: Sequence[Allowed], own: Collection[Address] = frozenset()
) -> str | None:
    """Return why no connection may be made to `address`, which `host` (in lower case) was resolved to; None if it may.

    `own` has the addresses of this machine's interfaces.
    """
    given = parse_address(address)
    place = kind_of_address(given, own)

    def opens(entry: Allowed) -> bool:
        if entry.port not in (None, port):
            return False
        if entry.net is None:
            return entry.host == host.removesuffix(".") and place not in NEVER_BY_NAME
        if place is AddressKind.METADATA and entry.net.num_addresses > 1:
            return False
        return given in entry.net or plain(given) in entry.net

    opening = [entry for entry in allowed if opens(entry)]
    # Documentation's networks too, which sandboxes may reach: no page is there.
    if place is not AddressKind.INTERNET and not opening:
        return f"{address} is {place}"
    if port in BLOCKED_PORTS and not any(entry.port == port for entry in opening):
        return f"port {port} belongs to another service than the web"
    return None
