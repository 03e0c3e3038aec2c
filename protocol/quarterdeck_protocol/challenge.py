"""Read what a protected server wants that refuses a request: `WWW-Authenticate` (RFC 6750, 3; RFC 9728, 5.1).  Pure."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

MAX_CHALLENGE_CHARS: Final = 8 * 1024

SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
"""One scope (RFC 6749 3.3)."""

MAX_SCOPES: Final = 64
"""Of one login; servers name a dozen."""

INSUFFICIENT_SCOPE: Final = "insufficient_scope"
"""The error of a request that another login might be allowed (RFC 6750, 3.1; MCP, "Scope Challenge Handling")."""


class Challenge(msgspec.Struct, frozen=True):
    """A server's reason for refusing us: `error` code, scopes wanted, URL of its metadata; each may be empty."""

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""


_PARAMETER: Final = re.compile(r'\b([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


def read_challenge(header: str) -> Challenge:
    """What a `WWW-Authenticate` says; of what cannot be read, nothing."""
    found: dict[str, str] = {}
    for name, quoted, bare in _PARAMETER.findall(header[:MAX_CHALLENGE_CHARS]):
        found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or bare)
    return Challenge(found.get("resource_metadata", ""), read_scopes(found.get("scope")), found.get("error", "")[:64])


def read_scopes(text: str | None) -> tuple[str, ...]:
    """Scopes as they are written in one text; what is none is left out."""
    return usable_scopes((text or "").split(" "))


def usable_scopes(names: Iterable[str] | None) -> tuple[str, ...]:
    """Those that are scopes, each once, and no more than one login has."""
    return tuple(dict.fromkeys(each for each in names or () if SCOPE.fullmatch(each)))[:MAX_SCOPES]
