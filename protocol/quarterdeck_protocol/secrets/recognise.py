"""The one recogniser of secrets in a text, a command line or a URL.  Pure.

    hide_text("curl -H 'Cookie: a=b' https://me:pw@host/", hide)    each secret in it goes through `hide`
    hide_args(["--token", "abc", "--db=postgres://u:p@h/"], hide)   of a command line, with what options say of the next
    hide_value("API_KEY", "abc", hide)                              what stands under a name

A secret is known by its name or its looks (module `tokens`), or by its place: a URL, a header, a connection string.  In
doubt it is one: who hides with a keyed hash can still tell two apart.  A reference to a variable is none; its default
may be.  Time is linear in the text: a stranger's file is searched.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from . import tokens

Hide = Callable[[str], str]
"""What to write in place of a secret."""

MAX_TEXT_CHARS: Final = 64 * 1024
"""A longer text is hidden whole: no argument of a command is."""

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<close>\}?)")
"""A variable, as configurations write it; one that never ends is none, and is looked at once."""

STAND_IN: Final = re.compile(r"\(secret [0-9a-f]{12}\)")
"""What a ledger keeps in place of a secret: hidden already."""

_KEPT: Final = re.compile(f"{STAND_IN.pattern}|{_REFERENCE.pattern}")

SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest|apikey|bot|negotiate) +", re.IGNORECASE)
"""What stands before a secret in a header; it is none itself."""

_SCHEMED: Final = re.compile(r"(?i)(?<![\w-])(?:bearer|basic) +([^\s\"'<>]{4,})")

_HEADER: Final = re.compile(r"([!#$%&*+.^_`|~0-9A-Za-z-]{1,64})\s{0,4}:\s{0,4}")
_HARMLESS_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-type", "host", "origin"}
    | {"mcp-protocol-version", "referer", "user-agent"}
)

_OPTION: Final = re.compile(r"--?[A-Za-z][\w.-]{0,127}|/[A-Za-z]\w{0,31}(?=:)")
_VARIABLE: Final = re.compile(r"[A-Za-z_][\w.-]{0,127}")
_HEADER_OPTIONS: Final = frozenset({"-H", "--header", "--headers", "--http-header", "--extra-header"})
_LOGIN_OPTIONS: Final = frozenset({"-u", "--user", "-U", "--proxy-user", "--login"})
_PASSWORD_PROGRAMS: Final = frozenset(
    {"mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump", "sshpass", "ldapsearch", "mongosh"}
    | {"mongo", "mongodump", "influx", "clickhouse-client"}
)
"""Programs whose `-p` takes a password; elsewhere it is a port, a package, a project."""

_NAMED: Final = re.compile(
    r"(?<![\w.-])(?:--?|/)?([A-Za-z_][\w.-]{0,63})(\\{0,4}[\"'`]?\s{0,4}(?:=>|[=:](?!//))\s{0,4})"
)
"""A name and what follows it to give it a value: in shell, JSON, YAML, connection strings, headers."""

_LOOSE_OPTION: Final = re.compile(r"(?<!\S)--?([A-Za-z][\w.-]{0,63})[ \t]{1,4}(?=[^\s-])")
"""An option within a text, and its value after blanks."""

_VALUE_END: Final = re.compile(r"[;\n]|\s{1,8}-{0,2}[\w.-]{1,64}[\"'`]?\s?(?:=>|[=:])|\s{1,4}[\"'`]")
"""Where a value without quotes ends: at the next one of its list."""

_LINE_END: Final = re.compile(r"[\n\"'`]")
"""Where that of a header ends: a cookie is a list of its own."""


def hide_text(text: str, hide: Hide) -> str:
    """`text` with each secret in it replaced by what `hide` makes of it."""
    return _replaced(text, _spans(text), hide)


def hide_value(name: str, value: str, hide: Hide) -> str:
    """What stands under `name`: all of it where the name says so, else the secrets in it."""
    return _replaced(value, _value_spans(name, value), hide)


def hide_whole(text: str, hide: Hide) -> str:
    """A text that is secret as it stands: of it only references to variables are left, and what is hidden already."""
    return _hidden(text, hide)


def hide_args(args: Sequence[str], hide: Hide) -> list[str]:
    """A command line's arguments, each with its secrets replaced; what an option says counts for the next one."""
    hidden: list[str] = []
    option = ""
    takes_password = any(arg.rpartition("/")[2] in _PASSWORD_PROGRAMS for arg in args)
    for arg in args:
        is_option = _OPTION.fullmatch(arg) is not None
        spans = _argument_spans("" if is_option else option, arg, takes_password=takes_password)
        hidden.append(_replaced(arg, spans, hide))
        option = arg if is_option else ""
    return hidden


def secrets_in(text: str) -> list[str]:
    """The secrets of `text`, in their order."""
    found: list[str] = []
    hide_text(text, lambda secret: found.append(secret) or "")  # type: ignore[func-returns-value]  # gathered
    return found


def secrets_in_args(args: Sequence[str]) -> list[str]:
    """The secrets of a command line, in their order."""
    found: list[str] = []
    hide_args(args, lambda secret: found.append(secret) or "")  # type: ignore[func-returns-value]  # gathered
    return found


def holds_secret(name: str, value: str) -> bool:
    """Whether anything of what stands under `name` is a literal secret."""
    return hide_value(name, value, lambda _: "\0") != value


def has_login(text: str) -> bool:
    """Whether a URL in `text`, or what looks like one without its scheme, holds a user or a password."""
    return any(True for _ in tokens.login_spans(text))


def is_ordinary(value: str) -> bool:
    """Whether a value is what messages are full of: a word, a number, a switch, a path, a host, a plain URL."""
    if "://" in value or "@" in value:
        return not _spans(value) and ("://" in value or tokens.is_ordinary_word(value))
    return tokens.is_ordinary_word(value)


def _argument_spans(option: str, arg: str, *, takes_password: bool) -> list[tokens.Span]:
    """Return the secrets of one argument, after an `option` that takes a value; `takes_password`: `-p` means one."""
    whole = [(0, len(arg))]
    if len(arg) > MAX_TEXT_CHARS or (takes_password and option == "-p"):
        return whole
    if option in _HEADER_OPTIONS:
        return _header_spans(arg, 0)
    if option in _LOGIN_OPTIONS and ":" in arg:
        return _login_spans(arg, 0)
    if option:
        return _given_spans(option, arg, takes_password=takes_password)
    name, equals, value = arg.partition("=")
    if equals and _OPTION.fullmatch(name):
        start = len(name) + 1
        if name in _HEADER_OPTIONS:
            return _header_spans(arg, start)
        if name in _LOGIN_OPTIONS and ":" in value:
            return _login_spans(arg, start)
        inner = _given_spans(name, value, takes_password=takes_password)
        return [(start + first, start + last) for first, last in inner]
    if arg[:2] in {"-H", "-u", "-p"} and len(arg) > 2 and arg[2] != "=":
        return _attached_spans(arg, takes_password=takes_password)
    if equals and tokens.secrecy_of(name) and _VARIABLE.fullmatch(name):
        return [(len(name) + 1 + first, len(name) + 1 + last) for first, last in _value_spans(name, value)]
    return _spans(arg)


def _given_spans(option: str, value: str, *, takes_password: bool) -> list[tokens.Span]:
    spans = _value_spans(option, value)
    # It may be a variable itself: `--env API_KEY=x`.
    is_more = any(mark in value for mark in "=: ")
    return spans + _argument_spans("", value, takes_password=takes_password) if is_more else spans


def _attached_spans(arg: str, *, takes_password: bool) -> list[tokens.Span]:
    """Find the secrets of a short option with its value attached: `-HCookie: x`, `-ume:x`, `-px`."""
    value = arg[2:]
    if arg[:2] == "-H" and _HEADER.match(value):
        return _header_spans(arg, 2)
    if arg[:2] == "-u" and ":" in value:
        return _login_spans(arg, 2)
    # `-port`, `-p8080`, `-path=x`; yet no word has digits in it.
    is_password = takes_password or not re.fullmatch(r"[A-Za-z-]+(?:[=:].*)?|[\d.:/-]+", value)
    return [(2, len(arg))] if arg[:2] == "-p" and is_password else _spans(arg)


def _login_spans(text: str, start: int) -> list[tokens.Span]:
    """Find the password of `user:password` from `start` on; ids of a user and a group are none."""
    return [] if text[start:].replace(":", "").isdigit() else [(text.index(":", start) + 1, len(text))]


def _header_spans(text: str, start: int) -> list[tokens.Span]:
    found = _HEADER.match(text, start)
    if found is None:
        return [(start + first, start + last) for first, last in _spans(text[start:])]
    if found[1].lower() in _HARMLESS_HEADERS:
        return [(found.end() + first, found.end() + last) for first, last in _spans(text[found.end() :])]
    return _beyond_scheme(text, found.end(), len(text))


def _value_spans(name: str, value: str) -> list[tokens.Span]:
    if len(value) > MAX_TEXT_CHARS:
        return [(0, len(value))]
    if _is_secret_under(name, value):
        return _beyond_scheme(value, 0, len(value))
    bare = name.lstrip("-")
    if tokens.UUID.fullmatch(value) and tokens.ID_NAME.search(bare):
        return []
    if tokens.HEX.fullmatch(value) and bare.lower().rpartition("-")[2] in tokens.REVISIONS:
        return []
    return _spans(value)


def _is_secret_under(name: str, value: str) -> bool:
    secrecy = tokens.secrecy_of(name.lstrip("-/"))
    if secrecy is tokens.Secrecy.NONE or tokens.EMPTY.fullmatch(value):
        return False
    if name == tokens.WORKING_DIRECTORY:
        return not tokens.is_absolute_path(value)
    return secrecy is tokens.Secrecy.CERTAIN or not (
        tokens.SMALL.fullmatch(value) or tokens.is_path(value) or _is_plain_url(value)
    )


def _is_plain_url(value: str) -> bool:
    """Return whether a value called a token is only an address; `--webhook https://host/` may still hide a path."""
    found = tokens.URL.fullmatch(value)
    return found is not None and "/" not in found[2].rstrip("/") and not _spans(value)


def _beyond_scheme(text: str, start: int, end: int) -> list[tokens.Span]:
    if (found := SCHEME.match(text, start, end)) is not None:
        start = found.end()
    return [(start, end)] if start < end else []


def _spans(text: str) -> list[tokens.Span]:
    if len(text) > MAX_TEXT_CHARS:
        return [(0, len(text))]
    # A variable's name is no text; it keeps its room, so that places stay what they are.
    is_plain = "${" not in text and "(secret " not in text
    plain = text if is_plain else _KEPT.sub(lambda each: "\x1a" * len(each[0]) if _is_kept(each) else each[0], text)
    found = [each.span() for each in tokens.TOKENS.finditer(plain)]
    if "-----BEGIN " in plain:
        found += [each.span() for each in tokens.KEY_BLOCK.finditer(plain)]
    found += [each.span(1) for each in _SCHEMED.finditer(plain)]
    found += tokens.url_spans(plain)
    found += tokens.login_spans(plain)
    found += _named_spans(plain)
    found += tokens.random_spans(plain)
    return found


def _named_spans(text: str) -> Iterator[tokens.Span]:
    """Find values whose names mark them secret: `Password=x;`, `"token": "x"`, `Cookie: x`, `--key x`."""
    done = 0
    for found in _NAMED.finditer(text):
        if found.start() and text[found.start() - 1] in "?&#" and "://" in text:
            continue  # a URL's parameter: it ends where the next begins
        if found.start() >= done and (span := _named_span(text, found[1], found.end(), found[2])) is not None:
            done = span[1]
            yield from _beyond_scheme(text, *span)
    if "-" not in text:
        return
    done = 0
    for found in _LOOSE_OPTION.finditer(text):
        if found.start() >= done and tokens.secrecy_of(found[1]):
            start = found.end()
            end = _quoted_end(text, start) if text[start] in "\"'`" else _blank_after(text, start)
            done = end
            if _is_secret_under(found[1], text[start:end].strip("\"'`")):
                yield start, end


def _named_span(text: str, name: str, start: int, joint: str) -> tokens.Span | None:
    if tokens.secrecy_of(name) is tokens.Secrecy.NONE or start >= len(text):
        return None
    while start < len(text) and text[start] == "\\":
        start += 1
    if start < len(text) and text[start] in "\"'`":
        end = _quoted_end(text, start)
        start += 1
        end = end - 1 if end > start and text[end - 1] == text[start - 1] else end
        while end > start and text[end - 1] == "\\":
            end -= 1
    elif start < len(text) and text[start] in "{[":
        end = _bracket_end(text, start)
    else:
        closing = (_LINE_END if joint.strip() == ":" else _VALUE_END).search(text, start)
        end = closing.start() if closing is not None else len(text)
        if '"' in joint or "'" in joint:  # a member of an object: a number, or a word
            end = min([end, *(place for mark in ",}]" if (place := text.find(mark, start, end)) >= 0)])
        else:
            end = min([end, *(place for mark in "\"'" if (place := text.find(mark, start, end)) >= 0)])
    return (start, end) if _is_secret_under(name, text[start:end].strip()) else None


def _quoted_end(text: str, start: int) -> int:
    mark, place = text[start], start + 1
    while place < len(text):
        if text[place] == "\\" and mark != "'" and text[place + 1 : place + 2] != "":
            # `\"` within an escaped text ends it.
            if text[start - 1 : start] == "\\" and text[place + 1] == mark:
                return place + 2
            place += 2
            continue
        if text[place] == mark:
            return place + 1
        place += 1
    return len(text)


def _bracket_end(text: str, start: int) -> int:
    depth = 0
    for place in range(start, len(text)):
        if text[place] in "{[":
            depth += 1
        elif text[place] in "}]":
            depth -= 1
            if not depth:
                return place + 1
    return len(text)


def _blank_after(text: str, start: int) -> int:
    place = start
    while place < len(text) and not text[place].isspace():
        place += 1
    return place


def _replaced(text: str, spans: list[tokens.Span], hide: Hide) -> str:
    """Hide these places in `text`, but no references; adjoining places are one."""
    parts: list[str] = []
    end = 0
    for first, last in _merged(spans):
        parts += (_with_defaults(text[end:first], hide), _hidden(text[first:last], hide))
        end = last
    return "".join((*parts, _with_defaults(text[end:], hide)))


def _merged(spans: list[tokens.Span]) -> Iterator[tokens.Span]:
    current: tokens.Span | None = None
    for first, last in sorted(spans):
        if current is None:
            current = (first, last)
        elif first <= current[1]:
            current = (current[0], max(current[1], last))
        else:
            yield current
            current = (first, last)
    if current is not None:
        yield current


def _hidden(text: str, hide: Hide) -> str:
    parts: list[str] = []
    end = 0
    for found in filter(_is_kept, _KEPT.finditer(text)):
        parts += (_literal(text[end : found.start()], hide), _reference(found, hide, is_secret=True))
        end = found.end()
    return "".join((*parts, _literal(text[end:], hide)))


def _is_kept(found: re.Match[str]) -> bool:
    return found["body"] is None or bool(found["close"])


def _literal(text: str, hide: Hide) -> str:
    return hide(text) if text and not text.isspace() else text


def _with_defaults(text: str, hide: Hide) -> str:
    """Hide the secrets in the defaults of a harmless text's variables."""
    return _KEPT.sub(lambda found: _reference(found, hide, is_secret=False), text) if ":-" in text else text


def _reference(found: re.Match[str], hide: Hide, *, is_secret: bool) -> str:
    name, has_default, default = (found["body"] or "").partition(":-")
    if not has_default or not default or not found["close"]:
        return found[0]
    if is_secret and not tokens.EMPTY.fullmatch(default):
        return f"${{{name}:-{hide(default)}}}"
    return f"${{{name}:-{hide_value(name, default, hide)}}}"
