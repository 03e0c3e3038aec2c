"""Decide which URLs are fetched, and where a redirect may lead from one. Pure.

A URL is parsed by the library that then sends the request, so that the judged URL is the requested one.
"""

import re
from ipaddress import IPv4Address, ip_address
from typing import Final

from httpx2 import URL, InvalidURL

from quarterdeck.common.words import clipped

MAX_URL_CHARS: Final = 8192  # servers take no longer ones
_SHOWN_CHARS: Final = 200
_NUMBER: Final = re.compile(r"0x[0-9a-f]{1,8}|0[0-7]{0,11}|[1-9][0-9]{0,9}")
"""A part of an address as `inet_aton` reads it: hexadecimal, octal or decimal."""
_SCHEMES: Final = ("http", "https")


class UrlError(ValueError):
    """A URL that is not fetched; the text has the reason, for a model to read."""


def parse_url(text: str) -> URL:
    """Return the URL of a request, without its fragment. Raise `UrlError` for any text that is not fetched."""
    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise UrlError(f"the URL is longer than {MAX_URL_CHARS:,} characters")
    try:
        return _checked(URL(text), text)
    except (InvalidURL, ValueError) as error:
        if isinstance(error, UrlError):
            raise
        raise UrlError(f"{shown(text)} is not a URL: {error}") from None


def follow(url: URL, location: str) -> URL:
    """Return the target of a redirect of `url`. Raise `UrlError` if it may not be followed."""
    if len(location) > MAX_URL_CHARS:
        raise UrlError(f"the redirect's URL is longer than {MAX_URL_CHARS:,} characters")
    try:
        target = _checked(url.join(location), location)
    except (InvalidURL, ValueError) as error:
        reason = str(error) if isinstance(error, UrlError) else f"{shown(location)} is not a URL: {error}"
        raise UrlError(f"the redirect is not followed: {reason}") from None
    if url.scheme == "https" and target.scheme == "http":
        raise UrlError(
            f"the redirect is not followed: it leads from https to plain {shown(str(target))}; "
            "fetch that URL itself if plain http is meant"
        )
    return target


def port_of(url: URL) -> int:
    """Return the port that a connection for `url` goes to."""
    return url.port or (443 if url.scheme == "https" else 80)


def literal_address(host: str) -> str | None:
    """Return the address that a host is in itself, in any spelling that systems read; None for a name."""
    if host.rstrip(".").rpartition(".")[2] == "localhost":
        return "127.0.0.1"
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    parts = host.removesuffix(".").split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    *head, last = (int(part, 8 if part.isdecimal() and part[0] == "0" else 0) for part in parts)
    number = sum(part << (24 - 8 * index) for index, part in enumerate(head)) + last
    return str(IPv4Address(number)) if number < 1 << 32 else None


def shown(text: str) -> str:
    """Return a foreign `text` short and on one line."""
    return repr(clipped(" ".join(text.split()), _SHOWN_CHARS))


def _checked(url: URL, text: str) -> URL:
    if url.scheme not in _SCHEMES:
        raise UrlError(
            f"{url.scheme}: URLs are not fetched, only http and https"
            if url.scheme
            else f"{shown(text)} has no scheme: begin with https:// or http://"
        )
    if url.userinfo:
        raise UrlError("URLs with a user or a password in front of the host are not fetched: leave them out")
    if not url.host or "%" in url.host:
        raise UrlError(f"{shown(text)} is a URL without a host: write https://host/path")
    if url.port is not None and not 1 <= url.port <= 65535:
        raise UrlError(f"{url.port} is not a port: 1 to 65535")
    return url.copy_with(fragment=None)
