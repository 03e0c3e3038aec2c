"""Decide whether a resource's URI has canonical spelling, and list every form in which a server may read it.

Parsers disagree. One drops a TAB, another resolves `%2e%2e`, a third ignores the host of a `file:` URI. Patterns are
compared with every known form of a URI; a URI without known forms counts as every URI of its scheme. A canonical URI is
spelled as WHATWG's URL parser writes it, and percent-encodes only characters that need it (RFC 3986, 6.2.2). Pure.
"""

import posixpath
import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

import msgspec

from quarterdeck_protocol.names import QUALIFIER

MAX_DECODES: Final = 3
"""Maximum layers of percent-encoding in a text; no honest URI has more."""

_DEFAULT_PORTS: Final = {"ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}
"""WHATWG's special schemes, except `file`: all of them have a host."""

MAX_PORT: Final = 65_535
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*+):")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DELIMITER: Final = re.compile(r"[/\\?#&=;]")
_AUTHORITY: Final = re.compile(r"//([^/?#]*+)")
_USER: Final = r"[A-Za-z0-9!$&'()*+,._~%-]++"
_SPECIAL_AUTHORITY: Final = re.compile(r"([a-z0-9_-]++(?:\.[a-z0-9_-]++)*+|\[[0-9a-f:]++\])(?::([1-9][0-9]{0,4}))?")
_OTHER_AUTHORITY: Final = re.compile(
    rf"(?:{_USER}(?::{_USER})?@)?([A-Za-z0-9!$&'()*+,;=._~%-]++|\[[0-9a-f:]++\])(?::(0|[1-9][0-9]{{0,4}}))?"
)
_PORT: Final = re.compile(r":([0-9]*+)$")
_NUMBER: Final = re.compile(r"[0-9]++|0[xX][0-9A-Fa-f]*+")

_SPELLINGS: Final = (
    (re.compile(r"\\"), "it has a backslash"),
    (re.compile(r"\s"), "it has white space, which is written %20"),
    (re.compile(r"[^!-~]|[\"<>^`{|}]"), "it has a character that has to be percent-encoded"),
    (re.compile(r"%(?![0-9A-F]{2})"), "'%' is not followed by two hexadecimal digits, in capitals"),
    (re.compile(r"%(?:2[DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)"), "it encodes a character that needs no encoding"),
    (re.compile(r"%(?:2F|5C)"), "it has an encoded slash"),
    (re.compile(r"#"), "it has a fragment"),
    (re.compile(r"\?$"), "its query is empty"),
)
"""Patterns that occur in no canonical URI, each with the reason that clients are given."""


class UriReading(msgspec.Struct, frozen=True):
    """The meaning of one URI: its scheme in lower case, or empty; the problem, unless its form is canonical; and all
    plain forms in which a server may read it, none if a server could read it as anything.
    """

    scheme: str
    problem: str
    forms: tuple[str, ...]


@lru_cache(maxsize=4096)
def read_uri(uri: str) -> UriReading:
    """Return the meaning of this URI."""
    found = _SCHEME.match(uri)
    if found is None:
        return UriReading("", "it has no scheme", ())
    scheme, rest = found[1].lower(), uri[found.end() :]
    try:
        levels = _decoded(rest)
        _check_readable(scheme, rest, levels[-1])
    except ValueError as error:
        return UriReading(scheme, str(error), ())
    rest = rest.partition("#")[0]
    path = re.split("[?;]" if scheme in _DEFAULT_PORTS else "[?]", rest, maxsplit=1)[0]
    forms = {f"{scheme}:{form}" for each in (rest, path) for level in _decoded(each) for form in _plain(scheme, level)}
    return UriReading(scheme, _spelling_problem(scheme, found[1], uri), tuple(sorted(forms)))


@lru_cache(maxsize=1024)
def pattern_forms(pattern: str, *, is_cut: bool = False) -> tuple[str, ...]:
    """Return a URI pattern in the plain forms of `read_uri`; a server's id before it stays. `is_cut` cuts it at `[?]`,
    which means a literal question mark; a bare one means any character.
    """
    before, colon, rest = pattern.partition(":")
    if not colon:
        return (pattern,)
    server, qualifier, scheme = before.rpartition(QUALIFIER)
    text = unquote(rest.partition("[?]")[0] if is_cut else rest).replace("\\", "/")
    if {".", ".."} & set(text.split("/")):
        text = posixpath.normpath(text)
    start = f"{server}{qualifier}{scheme.lower()}:"
    return tuple(f"{start}{form}" for form in _plain(scheme.lower(), text, is_pattern=True))


def judged_uri(uri: str, *, is_listed: bool) -> str:
    """Return the text to compare with patterns for a URI that a client names: the URI itself if its spelling is
    canonical or its server's own (in a list, or linked in a result), else one for every URI of its scheme.
    """
    reading = read_uri(uri)
    return uri if is_listed or not reading.problem else f"{reading.scheme}:\n"


def _decoded(text: str) -> list[str]:
    """Return a text decoded once, and fully. Raise ValueError if it is encoded too often, or not as UTF-8."""
    try:
        once = level = unquote(text, errors="strict")
        for _ in range(MAX_DECODES):
            level, before = unquote(level, errors="strict"), level
            if level == before:
                return [once, level] if level != once else [once]
    except UnicodeDecodeError:
        raise ValueError("its percent-encoding is not UTF-8") from None
    raise ValueError("it is percent-encoded several times")


def _check_readable(scheme: str, rest: str, decoded: str) -> None:
    """Check that the part after the scheme has known forms. Raise ValueError if parsers disagree on it."""
    if _CONTROL.search(rest) or _CONTROL.search(decoded):
        raise ValueError("it has a control character")
    if rest != rest.strip():
        raise ValueError("it ends in white space")
    if {".", ".."} & set(_DELIMITER.split(decoded)):
        raise ValueError("it has a segment of dots")
    if scheme in _DEFAULT_PORTS:
        host = _host(re.split(r"[/\\?#]", rest.lstrip("/\\"), maxsplit=1)[0])
        if not host or not host.isascii() or "%" in host:
            raise ValueError("its host is not in plain letters")
        if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _is_ipv4(host):
            raise ValueError("its host is a number in an unusual form")


def _spelling_problem(scheme: str, written: str, uri: str) -> str:
    """Return why a readable URI is not in canonical form; empty for a canonical one."""
    if written != scheme:
        return "its scheme has capitals"
    for found, why in _SPELLINGS:
        if found.search(uri):
            return why
    rest = uri[len(scheme) + 1 :]
    authority = _AUTHORITY.match(rest)
    path = rest[authority.end() :] if authority is not None else rest
    if "[" in path or "]" in path:
        return "it has a bracket, which has to be percent-encoded"
    if scheme == "file":
        return "" if rest.startswith("///") else "it is not written file:///PATH"
    if scheme in _DEFAULT_PORTS:
        return _special_problem(scheme, authority[1] if authority is not None else "", path)
    if authority is None or not authority[1] or _is_plain(_OTHER_AUTHORITY.fullmatch(authority[1])):
        return ""
    return "its host and port are not written plainly"


def _special_problem(scheme: str, authority: str, path: str) -> str:
    found = _SPECIAL_AUTHORITY.fullmatch(authority)
    if not _is_plain(found) or authority.endswith(f":{_DEFAULT_PORTS[scheme]}"):
        return f"it is not written {scheme}://HOST/PATH, the host in small letters and without its usual port"
    if not path.startswith("/"):
        return "its path is empty, and not '/'"
    return "it has a quotation mark that has to be percent-encoded" if "'" in path.partition("?")[2] else ""


def _is_plain(authority: re.Match[str] | None) -> bool:
    """Return whether a matched host and port have their shortest spelling."""
    if authority is None:
        return False
    host, port = authority.groups()
    try:
        is_shortest = not host.startswith("[") or f"[{IPv6Address(host[1:-1])}]" == host
    except ValueError:
        return False
    return is_shortest and (port is None or int(port) <= MAX_PORT)


def _plain(scheme: str, decoded: str, *, is_pattern: bool = False) -> tuple[str, ...]:
    """Return the part after the scheme without what parsers drop: user, default port, repeated slashes, …."""
    text = decoded.replace("\\", "/")
    body, merged = text.lstrip("/"), re.sub("/+", "/", text)
    if scheme == "file":
        host, _, path = merged[1:].partition("/")
        if not text.startswith("//") or text.startswith("///"):
            return (f"/{merged.removeprefix('/')}",)
        if host == "localhost":
            return (f"/{path}",)
        return (merged,) if is_pattern else (merged, f"/{path}")  # some parsers ignore the host
    if scheme not in _DEFAULT_PORTS and not text.startswith("//"):
        return (merged,) if merged.startswith("/") else (merged, f"/{merged}")
    ends = "/" if is_pattern else "[/?;]" if scheme in _DEFAULT_PORTS else "[/?]"
    authority = re.split(ends, body, maxsplit=1)[0]
    path = re.sub("/+", "/", body[len(authority) :])
    if scheme in _DEFAULT_PORTS and not path.startswith("/") and not (is_pattern and authority.endswith("*")):
        path = f"/{path}"
    form = f"/{_plain_authority(scheme, authority)}{path}"
    return (form,) if scheme in _DEFAULT_PORTS else tuple(dict.fromkeys((form, merged)))


def _plain_authority(scheme: str, authority: str) -> str:
    given = authority.rpartition("@")[2].lower()
    port = _PORT.search(given)
    if port is None:
        return given.removesuffix(".")
    host, number = given[: port.start()].removesuffix("."), port[1].lstrip("0")
    return host if number in ("", _DEFAULT_PORTS.get(scheme)) else f"{host}:{number}"


def _host(authority: str) -> str:
    given = authority.rpartition("@")[2]
    return f"{given.partition(']')[0]}]" if given.startswith("[") else given.partition(":")[0]


def _is_ipv4(host: str) -> bool:
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False
