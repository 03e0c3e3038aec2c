"""Find every value of a TOML text; add or remove one table and leave every other character where it is.

The standard library reads the values, tomlkit writes a new table.  Positions are found here: tomlkit takes 10 s and
more for 220 KB, and removes the comment above the next table too.  The result is parsed again and compared before it is
returned.  A text may be untrusted: its size and its depth are bounded.  Pure.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quarterdeck.config.load.document import MAX_DEPTH, DocumentError, JsonObject
from quarterdeck.config.load.text_edit import EditError, outside, verified, with_member, without_member

MAX_CHARS: Final = 1024 * 1024
"""Clients' settings have a few kilobytes."""

_CHAIN: Final = re.compile(rf"(?<![\"'\w-])(?:[\"'\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
"""A dotted key of too many parts: the reader's time grows with their square."""

_STRING: Final = re.compile(
    r""""{3}(?:[^\\]|\\.)*?"{3,5}(?!")|'{3}.*?'{3,5}(?!')|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+\x27""", re.DOTALL
)

_KEY: Final = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
_SPACE: Final = re.compile(r"[ \t]*+")
_GAP: Final = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*+")
_COMMENT: Final = re.compile(r"#[^\r\n]*")
_BARE: Final = re.compile(r"[^,\]}#\r\n]*+")


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header, or a key with its value: its path from the top, the span of its lines, each scalar's path and span, and
    the spans of its keys.
    """

    names: tuple[str, ...]
    start: int
    end: int
    is_header: bool
    values: tuple[tuple[tuple[str, ...], int, int], ...] = ()
    keys: tuple[tuple[int, int], ...] = ()


def parse(text: str) -> JsonObject:
    """Return the table of `text`; dates are texts.  Raises `DocumentError` if it is not TOML, or too large or deep."""
    if len(text) > MAX_CHARS:
        raise DocumentError(f"it is larger than {MAX_CHARS // 1024} KiB")
    if _CHAIN.search(text):
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")
    try:
        value = _plain(tomllib.loads(text.replace("\r\n", "\n")))
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        raise DocumentError(message[:1].lower() + message[1:]) from None
    except DocumentError:
        raise
    except (RecursionError, ValueError) as error:
        raise DocumentError("no TOML") from error
    assert isinstance(value, JsonObject)
    return value


def scalars(text: str) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    """Yield every scalar value of a TOML text: the names that lead to it (an array's index is empty), itself, its span.
    Raises `DocumentError` as `parse` does.
    """
    for statement in _statements(text):
        for names, start, end in statement.values:
            found = text[start:end]
            yield names, _text(found) if found[:1] in {'"', "'"} else found, start, end


def comments(text: str) -> Iterator[re.Match[str]]:
    """Return every comment of a TOML text."""
    spans = [
        span
        for statement in _statements(text)
        for span in sorted((*statement.keys, *((start, end) for _, start, end in statement.values)))
    ]
    return outside(_COMMENT, text, spans)


def set_member(text: str, path: Sequence[str], value: Mapping[str, object]) -> str:
    """Return `text` with the table `value` at `path`, as its last one.  Raises `DocumentError` if `text` is not TOML,
    `EditError` if `path` leads to anything but a table of its own.
    """
    expected = with_member(parse(text), path, dict(value))
    try:
        rest = _cut(text, path)
    except LookupError:
        rest = text
    newline = "\r\n" if "\r\n" in text else "\n"
    table = _written(path, value).replace("\n", newline)
    if rest and not rest.endswith("\n"):
        rest += newline
    return _verified(f"{rest}{newline if rest else ''}{table}", expected)


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return `text` without the table at `path` and its content; comments above it stay.  Raises `DocumentError` if
    `text` is not TOML, `EditError` if there is no such table of its own.
    """
    expected = without_member(parse(text), path)
    try:
        return _verified(_cut(text, path), expected)
    except LookupError:
        raise EditError(f"there is no table [{'.'.join(path)}]: edit it by hand") from None


def _written(path: Sequence[str], value: Mapping[str, object]) -> str:
    import tomlkit

    try:
        table = tomlkit.table()
        for key, member in value.items():
            if isinstance(member, Mapping):
                inline = tomlkit.inline_table()
                inline.update(member)
                table.add(key, inline)
            else:
                table.add(key, member)
        head = ".".join(tomlkit.key(name).as_string() for name in path)
        return f"[{head}]\n{table.as_string()}"
    except (TypeError, ValueError) as error:
        raise EditError("it has a value that TOML has not") from error


def _cut(text: str, path: Sequence[str]) -> str:
    """Return `text` without a table and those in it.  Raises `LookupError` if there is no such table."""
    wanted, spans = tuple(path), list[tuple[int, int]]()
    is_inside = False
    for statement in _statements(text):
        belongs = statement.names[: len(wanted)] == wanted
        if statement.is_header:
            is_inside = belongs
            if belongs:
                spans.append((_with_blank_line(text, statement.start), statement.end))
        elif belongs and is_inside:
            spans[-1] = (spans[-1][0], statement.end)
        elif belongs:
            spans.append((statement.start, statement.end))
    if not spans:
        raise LookupError
    parts, at = list[str](), 0
    for start, end in spans:
        parts.append(text[at : max(at, start)])
        at = end
    return "".join((*parts, text[at:]))


def _with_blank_line(text: str, start: int) -> int:
    above = text[:start]
    if above.endswith("\r\n\r\n") or above == "\r\n":
        return start - 2
    return start - 1 if above.endswith("\n\n") or above == "\n" else start


def _statements(text: str) -> Iterator[_Statement]:
    parse(text)
    table: tuple[str, ...] = ()
    at = _skip(_GAP, text, 0)
    while at < len(text):
        start = text.rfind("\n", 0, at) + 1
        values: list[tuple[tuple[str, ...], int, int]] = []
        keys: list[tuple[int, int]] = []
        is_header = text[at] == "["
        if is_header:
            names, at = _key(text, at + (2 if text.startswith("[[", at) else 1), keys)
            table = names
        else:
            key, at = _key(text, at, keys)
            names = (*table, *key)
            at = _value(text, _skip(_SPACE, text, at + 1), names, values, keys)
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        yield _Statement(names, start, end, is_header, tuple(values), tuple(keys))
        at = _skip(_GAP, text, end)


def _key(text: str, at: int, keys: list[tuple[int, int]]) -> tuple[tuple[str, ...], int]:
    """Return a dotted key and its end, including trailing blanks, and add the span of each part to `keys`."""
    names: list[str] = []
    while True:
        at = _skip(_SPACE, text, at)
        found = _KEY.match(text, at)
        if found is None:
            raise DocumentError("no TOML")
        keys.append(found.span())
        names.append(_text(found[0]) if found[0][0] in "\"'" else found[0])
        at = _skip(_SPACE, text, found.end())
        if text[at : at + 1] != ".":
            return tuple(names), at
        at += 1


def _value(
    text: str,
    at: int,
    names: tuple[str, ...],
    values: list[tuple[tuple[str, ...], int, int]],
    keys: list[tuple[int, int]],
) -> int:
    """Return the end of the value that begins at `at`, and add the scalars in it to `values`, its keys to `keys`."""
    opening = text[at : at + 1]
    if opening in {"[", "{"}:
        closing = "]" if opening == "[" else "}"
        at = _skip(_GAP, text, at + 1)
        while text[at : at + 1] != closing:
            if opening == "[":
                at = _value(text, at, (*names, ""), values, keys)
            else:
                key, at = _key(text, at, keys)
                at = _value(text, _skip(_SPACE, text, at + 1), (*names, *key), values, keys)
            at = _skip(_GAP, text, at)
        return at + 1
    found = _STRING.match(text, at) or _BARE.match(text, at)
    assert found is not None
    end = found.start() + len(found[0].rstrip())
    if end == at:
        raise DocumentError("no TOML")
    values.append((names, at, end))
    return end


def _text(written: str) -> str:
    value = tomllib.loads(f"a = {written}".replace("\r\n", "\n"))["a"]
    return str(value)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def _plain(value: object, depth: int = 0) -> object:
    if depth > MAX_DEPTH:
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case dict():
            return JsonObject({key: _plain(member, depth + 1) for key, member in value.items()})
        case list():
            return [_plain(member, depth + 1) for member in value]
        case float() if not math.isfinite(value):
            return str(value)
        case bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _without_empty(value: object) -> object:
    if not isinstance(value, dict):
        return value
    members = {key: _without_empty(member) for key, member in value.items()}
    return {key: member for key, member in members.items() if member != {}}


def _verified(text: str, expected: object) -> str:
    """Verify a text as `verified` does; empty tables may be missing."""
    return verified(text, _without_empty(expected), lambda changed: _without_empty(parse(changed)))
