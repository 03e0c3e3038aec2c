"""Find every value of a JSON text; change one member and leave every other character where it is, comments included.

No maintained library does this for Python: those that keep comments rewrite the layout, need Node, or have an
unsuitable licence.  Positions are found in a copy of the text in which comments and trailing commas are blanks; the
result is parsed again and compared before it is returned.  Pure.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from quarterdeck.config.load.document import DocumentError, JsonObject, parse_document
from quarterdeck.config.load.text_edit import EditError, verified, with_member, without_member

_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)'
_COMMENTS: Final = re.compile(rf"({_STRING})|//[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING: Final = re.compile(f"({_STRING})|,(?=[ \\t\\r\\n]*[}}\\]])", re.DOTALL)
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_DEFAULT_INDENT: Final = "  "

_MAX_DIGITS: Final = 1_000
"""Python refuses to read a few thousand; a longer number is kept as text."""

_decoder: Final = json.JSONDecoder(strict=False, parse_int=lambda text: int(text) if len(text) < _MAX_DIGITS else text)


def parse(text: str, *, has_comments: bool) -> JsonObject:
    """Return the object of `text`, empty for an empty text.  Raises `DocumentError` if it is no object."""
    if not text.strip():
        return JsonObject()
    value = parse_document(to_plain(text) if has_comments else text)
    if not isinstance(value, JsonObject):
        raise DocumentError("expected an object, as in {…}")
    return value


def set_member(text: str, path: Sequence[str], value: object, *, has_comments: bool) -> str:
    """Return `text` with `value` at `path`: replaced where it is, else last in its object, which is made if missing.
    Raises `DocumentError` if `text` is no JSON object, `EditError` if a step of `path` is not an object, or repeated.
    """
    old = parse(text, has_comments=has_comments)
    base = text if text.strip() else "{}\n"
    edit = _Edit(base, has_comments=has_comments)
    *above, last = path
    for depth, key in enumerate(above, start=1):
        found = edit.enter(key)
        if found is None:
            wanted = value
            for missing in reversed(path[depth:]):
                wanted = {missing: wanted}
            changed = edit.insert(key, wanted)
            break
        edit.descend(found)
    else:
        found = edit.enter(last)
        changed = edit.insert(last, value) if found is None else edit.replace(found, value)
    return verified(changed, with_member(old, path, value), partial(parse, has_comments=has_comments))


def remove_member(text: str, path: Sequence[str], *, has_comments: bool) -> str:
    """Return `text` without the member at `path`.  Raises `DocumentError` if `text` is no JSON object, `EditError` if
    there is no such member, or a step is not an object, or repeated.
    """
    old = parse(text, has_comments=has_comments)
    edit = _Edit(text, has_comments=has_comments)
    *above, last = path
    for key in above:
        edit.descend(edit.enter_present(key))
    changed = edit.remove(edit.enter_present(last))
    return verified(changed, without_member(old, path), partial(parse, has_comments=has_comments))


def to_plain(text: str) -> str:
    """Return `text`, character for character, with comments and trailing commas as blanks."""
    return _TRAILING.sub(_blank_comma, _blank_comments(text))


def comments(text: str) -> Iterator[re.Match[str]]:
    """Yield every comment of a JSON text."""
    return (found for found in _COMMENTS.finditer(text) if found[1] is None)


def scalars(text: str) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    """Yield every scalar value of a JSON text, comments allowed: the names that lead to it (an array's index is empty),
    itself, its span.  Raises `DocumentError` if `text` is no JSON object.
    """
    if parse(text, has_comments=True):
        plain = to_plain(text)
        yield from _scalars(plain, _skip(plain, 0), ())


def _scalars(plain: str, at: int, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    if plain[at] == "{":
        for member in _members(plain, at)[0]:
            yield from _scalars(plain, member.value, (*names, member.key))
    elif plain[at] == "[":
        at = _skip(plain, at + 1)
        while plain[at] != "]":
            at = _skip(plain, at + 1) if plain[at] == "," else at
            yield from _scalars(plain, at, (*names, ""))
            at = _skip(plain, _decoder.raw_decode(plain, at)[1])
    else:
        value, end = _decoder.raw_decode(plain, at)
        yield names, value, at, end


class _Member(msgspec.Struct, frozen=True):
    """The span of a member; `value` is where its value begins."""

    key: str
    start: int
    value: int
    end: int


class _Edit:
    def __init__(self, text: str, *, has_comments: bool) -> None:
        self._text = text
        self._commas = _blank_comments(text) if has_comments else text
        self._plain = to_plain(text) if has_comments else text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        first = re.search(r'\n([ \t]+)["{\[]', self._plain)
        self._unit = first[1] if first else _DEFAULT_INDENT
        self._open_at(_skip(self._plain, 0))
        self._is_one_line = "\n" not in text[self._open : self._close] and bool(self._members)

    def enter(self, key: str) -> _Member | None:
        """Return the member of that name, or None.  Raises `EditError` if there are several."""
        found = [member for member in self._members if member.key == key]
        if len(found) > 1:
            raise EditError(f"the key {key!r} appears more than once: remove one")
        return found[0] if found else None

    def enter_present(self, key: str) -> _Member:
        """Return the member of that name.  Raises `EditError` unless there is exactly one."""
        if (found := self.enter(key)) is None:
            raise EditError(f"there is no {key!r}")
        return found

    def descend(self, member: _Member) -> None:
        """Move into its value."""
        if self._plain[member.value] != "{":
            raise EditError(f"{member.key!r} is not an object")
        self._open_at(member.value)

    def replace(self, member: _Member, value: object) -> str:
        dumped = self._dump(value, self._indent_of(member.start), is_inline=self._is_inline())
        return self._text[: member.value] + dumped + self._text[member.end :]

    def insert(self, key: str, value: object) -> str:
        """Return the text with a member after the last one, and after the comments behind that."""
        end = self._members[-1].end if self._members else self._open + 1
        tail = self._text[end : self._close]
        kept = tail.rstrip(" \t\r\n")
        ends_in_comma = "," in self._commas[end : self._close]
        comma = "," if self._members and not ends_in_comma else ""
        after = "," if ends_in_comma else ""
        is_inline = self._is_inline()
        base = self._indent_of(self._open)
        indent = self._indent_of(self._members[0].start) if self._members and not is_inline else base + self._unit
        if self._members and not is_inline and indent == base:
            indent = base + self._unit
        member = f"{json.dumps(key, ensure_ascii=False)}: {self._dump(value, indent, is_inline=is_inline)}"
        blanks = tail[len(kept) :]
        if is_inline:
            before = " " if self._members else ""
        else:
            before = self._newline + indent
            blanks = blanks if "\n" in blanks else self._newline + base
        return f"{self._text[:end]}{comma}{kept}{before}{member}{after}{blanks}{self._text[self._close :]}"

    def remove(self, member: _Member) -> str:
        """Return the text without the member, its comma, and the line that it began."""
        at = self._members.index(member)
        limit = self._members[at + 1].start if at + 1 < len(self._members) else self._close
        comma = self._commas.find(",", member.end, limit)
        end = comma + 1 if comma >= 0 else member.end
        start = len(self._text[: member.start].rstrip(" \t"))
        # A line end may only go with all of its line: it may be the end of a comment too.
        if self._text[start - 1] == "\n" and self._text[end:].lstrip(" \t")[:1] in {"\r", "\n"}:
            start -= 2 if self._text[start - 2] == "\r" else 1
        else:
            start = member.start
            end += len(self._text[end:]) - len(self._text[end:].lstrip(" \t")) if comma >= 0 else 0
        head, tail = self._text[:start], self._text[end:]
        if comma < 0 and at > 0:
            previous = self._members[at - 1].end
            comma = self._commas.index(",", previous)
            between = self._text[comma + 1 : start]
            head = self._text[:comma] + (between.rstrip(" \t") if start == member.start else between)
        if len(self._members) == 1 and not self._text[self._open + 1 : start].strip():
            inside = self._text[end : self._close]
            if not inside.strip():
                head, tail = self._text[: self._open + 1], self._text[self._close :]
        return head + tail

    def _open_at(self, open_: int) -> None:
        self._open = open_
        self._members, self._close = _members(self._plain, open_)

    def _is_inline(self) -> bool:
        return self._is_one_line or (bool(self._members) and "\n" not in self._text[self._open : self._close])

    def _indent_of(self, at: int) -> str:
        line = self._text[self._text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _dump(self, value: object, indent: str, *, is_inline: bool) -> str:
        if is_inline:
            return json.dumps(value, ensure_ascii=False)
        return json.dumps(value, ensure_ascii=False, indent=self._unit).replace("\n", self._newline + indent)


def _members(plain: str, open_: int) -> tuple[list[_Member], int]:
    members = []
    at = _skip(plain, open_ + 1)
    while plain[at] != "}":
        at = _skip(plain, at + 1) if plain[at] == "," else at
        key, end = _decoder.raw_decode(plain, at)
        value = _skip(plain, _skip(plain, end) + 1)
        _, end = _decoder.raw_decode(plain, value)
        members.append(_Member(key, at, value, end))
        at = _skip(plain, end)
    return members, at


def _skip(plain: str, at: int) -> int:
    found = _BLANKS.match(plain, at)
    assert found is not None
    return found.end()


def _blank_comments(text: str) -> str:
    return _COMMENTS.sub(_blank_comment, text)


def _blank_comment(found: re.Match[str]) -> str:
    if found[1] is not None or (found[0].startswith("/*") and not (len(found[0]) >= 4 and found[0].endswith("*/"))):
        return found[0]  # a string; or a comment without an end, which the parser shall refuse
    return re.sub(r"[^\r\n]", " ", found[0])


def _blank_comma(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[0]
    at = found.start() - 1
    while at >= 0 and found.string[at] in " \t\r\n":
        at -= 1
    return found[0] if at < 0 or found.string[at] in "{[,:" else " "
