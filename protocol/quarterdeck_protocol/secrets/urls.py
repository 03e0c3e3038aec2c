"""The secrets of URLs (logins, keys in queries and paths), and what of a URL any message may show.  Pure."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from .tokens import HEX, ID_NAME, REVISIONS, SMALL, UUID, Span, is_ordinary_word, is_random, secrecy_of

URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30})://([^\s\"'<>`]+)")
_LOGIN: Final = re.compile(r"(?<![\w/.@:])([^\s/@:=\"'(){}]{1,64}):([^\s/@\"']{1,256})@(?=[\w\[])")
_NO_LOGINS: Final = frozenset(
    {"npm", "file", "link", "workspace", "git", "github", "gist", "jsr", "node", "docker", "pypi"}
)
_QUERY_PAIR: Final = re.compile(r"[?&#;]([^=&#;?\s]{1,64})=([^&#;\s]*)")
_KEY_QUERIES: Final = frozenset(
    {"code", "state", "k", "t", "s", "p", "u", "h", "hash", "access", "ticket", "assertion", "user"}
)
"""Parameters whose short names hold secrets in URLs, and mean nothing elsewhere."""

_HOOKS: Final = re.compile(r"(?i)(?:^|[._-])(?:hooks?|webhooks?)(?:[._-]|$)")
_HOOK_STEPS: Final = frozenset({"hook", "hooks"})
"""Steps of a URL's path behind which the rest is a key; others are names of secrets anyway, as `webhook` is."""

_LOGIN_SCHEMES: Final = frozenset({"ssh", "git+ssh", "sftp", "scp", "git", "rsync", "svn+ssh", "ssh+git"})
"""Where a user alone is usual, and no secret."""

_DATABASES: Final = frozenset(
    {"postgres", "postgresql", "mysql", "mariadb", "mongodb", "mongodb+srv", "redis", "rediss", "amqp", "amqps"}
    | {"mssql", "sqlserver", "clickhouse", "neo4j", "bolt", "snowflake", "oracle", "cockroachdb", "nats", "ldap"}
    | {"ldaps"}
)


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL: what of it may stand in any message."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "the URL"
    if not parts.scheme or not host:
        return "the URL"
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")


def only_origins(text: str) -> str:
    """`text` with each URL in it cut to its origin."""
    return URL.sub(lambda found: origin_of(found[0].rstrip(".,;:)]}")), text) if "://" in text else text


def login_spans(text: str) -> Iterator[Span]:
    """Users and passwords before hosts."""
    if "@" not in text:
        return
    for found in URL.finditer(text):
        yield from _userinfo_spans(found[1].lower(), found[2], found.start(2))
    for found in _LOGIN.finditer(text):
        if found[1].lower() not in _NO_LOGINS and not text.startswith(("sha256:", "sha512:"), found.end()):
            yield found.span(2)


def _userinfo_spans(scheme: str, rest: str, start: int) -> Iterator[Span]:
    """The secrets before the `@` of a URL, of which `rest` follows the `://`."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    at = authority.rfind("@")
    if at < 0:
        _, colon, port = authority.rpartition(":")
        is_http = scheme in {"http", "https"} and not (colon and port and not port.isdigit() and "]" not in port)
        # A password with a slash in it that nobody escaped.
        at = -1 if is_http or (not colon and scheme not in _DATABASES) else rest.rfind("@")
        if colon and port.isdigit() and scheme not in _DATABASES:
            at = -1
    if at < 0:
        return
    user, colon, _ = rest[:at].partition(":")
    if colon:
        if user and not is_ordinary_word(user):
            yield start, start + len(user)
        if at > len(user) + 1:
            yield start + len(user) + 1, start + at
    elif user and not (scheme in _LOGIN_SCHEMES and is_ordinary_word(user)):
        yield start, start + at


def url_spans(text: str) -> Iterator[Span]:
    """The secrets in the paths, queries and fragments of URLs."""
    for found in URL.finditer(text):
        start, rest = found.start(2), found[2]
        cut = min([len(rest), *(place for mark in "?#" if (place := rest.find(mark)) >= 0)])
        host, _, path = rest[:cut].partition("/")
        yield from _path_spans(host.rpartition("@")[2], path, start + len(host) + 1)
        for pair in _QUERY_PAIR.finditer(rest, cut):
            name, value = pair[1], pair[2]
            is_key = secrecy_of(name) or name.lower() in _KEY_QUERIES
            if value and not (SMALL.fullmatch(value) if is_key else _is_tame(name, value)):
                yield start + pair.start(2), start + pair.end(2)
        bare = rest[cut + 1 :]
        if bare and "=" not in bare and not is_ordinary_word(bare):
            yield start + cut + 1, start + len(rest)


def _path_spans(host: str, path: str, start: int) -> Iterator[Span]:
    steps = path.split("/")
    is_hook = _HOOKS.search(host) is not None
    after = ""
    for place, step in enumerate(steps):
        lower = step.lower()
        if step and (is_hook or after in _HOOK_STEPS or secrecy_of(after)) and not _is_word_step(step):
            # What follows belongs to the key.
            yield start, start + len("/".join(steps[place:]))
            return
        revision = step.rpartition("@")[2]
        is_revision = HEX.fullmatch(revision) is not None and (revision != step or after in REVISIONS)
        if (
            step
            and not is_revision
            and (UUID.fullmatch(step) or is_random(step) or (lower.startswith("bot") and ":" in step))
        ):
            yield start, start + len(step)
        start += len(step) + 1
        after = lower if step else after


def _is_word_step(step: str) -> bool:
    """Whether a step of a URL's path is a word, as `catch` and `v1` are; never a number or a name in capitals."""
    return re.fullmatch(r"[a-z]{1,16}|v\d", step) is not None and not is_random(step)


def _is_tame(name: str, value: str) -> bool:
    """Whether the value of a URL's parameter, whose name says nothing, is a word or a number."""
    if UUID.fullmatch(value):
        return ID_NAME.search(name) is not None
    return is_ordinary_word(value) and len(value) <= 24
