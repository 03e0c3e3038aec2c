"""The key `registry`: where servers are looked for, by `quarterdeck search` and its kin.

    {"registry": "https://registry.example/mcp"}       an MCP registry; with the API's version, or without
    {"registry": "~/registry.json"}                    a file with what a registry would answer
    {"registry": {"address": "https://…", "proxy": "http://proxy.example:3128"}}

Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from quarterdeck_protocol.names import did_you_mean

from .document import REGISTRY_KEY, JsonObject
from .problems import RowError, at, describe

OFFICIAL: Final = "https://registry.modelcontextprotocol.io"

MEMBERS: Final = ("address", "proxy")

_PROXY: Final = re.compile(r"https?://[^/@\s]+")


@dataclass(frozen=True, slots=True)
class RegistryWish:
    """Where servers are looked for.

    Attributes:
        address: a URL, or the absolute path of a file in place of a registry.
        proxy: what every request goes through; None for none, whatever the environment says.
    """

    address: str = OFFICIAL
    proxy: str | None = None

    @property
    def is_url(self) -> bool:
        """Whether it is asked over the network."""
        return self.address.startswith(("http://", "https://"))


def read_registry(document: JsonObject, locate: Callable[[str], Path]) -> RegistryWish | None:
    """What a file says of the registry; None when it says nothing.

    Args:
        document: the file's.
        locate: the path that a text of the file means.

    Raises:
        RowError: it says something else.
    """
    value = document.get(REGISTRY_KEY)
    match value:
        case None:
            return None
        case str():
            return registry_at(value, locate)
        case JsonObject():
            return _of_object(value, locate)
    raise RowError(REGISTRY_KEY, f"expected an address, a file or an object, got {describe(value)}")


def registry_at(text: str, locate: Callable[[str], Path], place: str = REGISTRY_KEY) -> RegistryWish:
    """The registry that a text names: a URL, or a path.

    Raises:
        RowError: it names none.
    """
    if "://" not in text:
        if not text:
            raise RowError(place, "is empty: give the URL of a registry, or a file")
        return RegistryWish(str(locate(text)))
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise RowError(place, "is not a URL of http or https")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise RowError(place, "has more than a host, a port and a path: a registry is asked without a login")
    return RegistryWish(text)


def _of_object(value: JsonObject, locate: Callable[[str], Path]) -> RegistryWish:
    for key in value:
        if key not in MEMBERS:
            raise RowError(at(REGISTRY_KEY, key), f"means nothing{did_you_mean(key, MEMBERS)}")
    address, proxy = value.get("address", OFFICIAL), value.get("proxy")
    if not isinstance(address, str):
        raise RowError(at(REGISTRY_KEY, "address"), f"expected a string, got {describe(address)}")
    if proxy is not None and not (isinstance(proxy, str) and _PROXY.fullmatch(proxy)):
        raise RowError(at(REGISTRY_KEY, "proxy"), "is not a proxy: write http://host:port or https://host:port")
    found = registry_at(address, locate, at(REGISTRY_KEY, "address"))
    return RegistryWish(found.address, proxy)
