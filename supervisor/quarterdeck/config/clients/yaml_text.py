"""Change one member of a YAML text and leave every other character where it is, comments included.

What is changed is cut out of the text or put into it, since a round trip through a dumper lays the whole file out
anew.  What comes out is parsed again and compared before anybody gets it.  Pure.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

from quarterdeck.config.load.text_edit import EditError, verified, with_member, without_member

from .yaml_tree import Node, key_name, parse, plain_value, read_tree

_UNIT: Final = 2
"""Columns of one more level, where the text has none to learn from."""


def set_member(text: str, path: Sequence[str], value: object, *, is_item: bool = False) -> str:
    """`text` with `value` at `path`: replaced where it is, else put last into its mapping, which is made if missing.

    Where there is a sequence in its place, `value` is put among its items, for the one that has this `name`.

    Args:
        text: of the file.
        path: leads to it.
        value: a row.
        is_item: make a sequence if there is nothing yet.

    Raises:
        DocumentError: `text` is no mapping.
        EditError: something on the way is of another kind.
    """
    old = parse(text)
    holder: object = old
    for key in path[:-1]:
        holder = holder.get(key) if isinstance(holder, dict) else None
    if is_item and holder is None:
        path, value = path[:-1], [value]
    return verified(_Edit(text).put(path, value), with_member(old, path, value), parse)


def remove_member(text: str, path: Sequence[str]) -> str:
    """`text` without the member at `path`, which is there; of a sequence the item that has the last `name`.

    Raises:
        DocumentError: `text` is no mapping.
        EditError: there is none, or something on the way is of another kind.
    """
    old = parse(text)
    return verified(_Edit(text).remove(path), without_member(old, path), parse)


class _Edit:
    """A text and its tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._root = read_tree(text)

    def put(self, path: Sequence[str], value: object) -> str:
        node, rest = self._root, list(path)
        if node is None or (node.kind == "scalar" and node.end == node.start):
            return self._insert_lines(self._end_of(None), _lines(_wrapped(rest, value), 0))
        while len(rest) > 1:
            found = self._find(node, rest[0])
            if found is None:
                return self._append(node, rest[0], _wrapped(rest, value)[rest[0]])
            above, node = found
            rest.pop(0)
            if node.kind == "scalar" and node.end == node.start:  # a key without a value
                inside = _lines(_wrapped(rest, value), self._column(above.start) + _UNIT)
                return self._insert_lines(self._line_end(max(above.end, node.end)), inside)
        member = self._item(node, rest[0]) if node.kind == "sequence" else self._find(node, rest[0])
        if member is None:
            return self._append(node, rest[0], value)
        if member[1].kind == "scalar" and member[1].end == member[1].start and isinstance(value, list):
            column = self._column(member[0].start) + _UNIT
            lines = [line for item in value for line in _items(item, column)]
            return self._insert_lines(self._line_end(member[0].end), lines)
        return self._replace(node, member, rest[0], value)

    def remove(self, path: Sequence[str]) -> str:
        node, above = self._root, None
        for key in path[:-1]:
            found = self._find(node, key)
            if found is None:
                raise EditError(f"there is no {key!r}")
            above, node = found
        assert node is not None
        member = self._item(node, path[-1]) if node.kind == "sequence" else self._find(node, path[-1])
        if member is None:
            raise EditError(f"there is no {path[-1]!r}")
        if node.is_flow:
            return self._remove_from_flow(node, member)
        start, end = self._line_span(node, member)
        size = 1 if node.kind == "sequence" else 2
        if len(node.members) == size and above is not None:  # else its key would be left without a value
            colon = self._text.index(":", above.end) + 1
            empty = " []" if node.kind == "sequence" else " {}"
            return self._text[:colon] + empty + self._text[colon:start] + self._text[end:]
        return self._text[:start] + self._text[end:]

    def _find(self, node: Node | None, key: str) -> tuple[Node, Node] | None:
        if node is None or node.kind != "mapping":
            raise EditError(f"what should hold {key!r} is not a mapping")
        return next(((name, value) for name, value in node.pairs() if key_name(name) == key), None)

    def _item(self, node: Node, name: str) -> tuple[Node, Node] | None:
        found = [item for item in node.members if item.kind == "mapping" and _named(item) == name]
        if len(found) > 1:
            raise EditError(f"the name {name!r} appears more than once: remove one")
        return (found[0], found[0]) if found else None

    def _append(self, node: Node, key: str, value: object) -> str:
        if node.is_flow:
            inside = _flow(value) if node.kind == "sequence" else f"{_flow(key)}: {_flow(value)}"
            close = node.end - 1
            if not node.members:
                return self._text[: node.start + 1] + inside + self._text[close:]
            last = node.members[-1].end
            between = self._text[last:close]
            if "#" in between:
                raise EditError("a comment stands before its closing bracket: edit it by hand")
            comma = "" if "," in between else ","
            kept = between.rstrip()
            return f"{self._text[:last]}{comma}{kept} {inside}{between[len(kept) :]}{self._text[close:]}"
        if node.kind == "sequence":
            lines = _items(value, self._dash(node.members[0]))
        elif node.kind == "mapping":
            lines = _lines({key: value}, self._column(node.members[0].start))
        else:
            raise EditError(f"what should hold {key!r} is neither a mapping nor a sequence")
        return self._insert_lines(self._end_of(node), lines)

    def _replace(self, node: Node, member: tuple[Node, Node], key: str, value: object) -> str:
        if node.is_flow:
            return self._text[: member[1].start] + _flow(value) + self._text[member[1].end :]
        start, end = self._line_span(node, member)
        if node.kind == "sequence":
            lines = _items(value, self._dash(member[0]))
        else:
            lines = _lines({key: value}, self._column(member[0].start))
        return self._text[:start] + "".join(line + self._newline for line in lines) + self._text[end:]

    def _remove_from_flow(self, node: Node, member: tuple[Node, Node]) -> str:
        size = 1 if node.kind == "sequence" else 2
        at = node.members.index(member[0])
        if at + size < len(node.members):
            start, end = member[0].start, node.members[at + size].start
        elif at:
            start, end = node.members[at - 1].end, member[1].end
        else:
            start, end = member[0].start, member[1].end
        return self._text[:start] + self._text[end:]

    def _line_span(self, node: Node, member: tuple[Node, Node]) -> tuple[int, int]:
        """The lines that a member of a block has for itself."""
        key, value = member
        start = self._text.rfind("\n", 0, key.start) + 1
        before = self._text[start : key.start]
        if before.strip() and not (node.kind == "sequence" and re.fullmatch(r" *- +", before)):
            raise EditError("it shares its line with something else: edit it by hand")
        return start, self._line_end(max(key.end, value.end))

    def _end_of(self, node: Node | None) -> int:
        """Where a block ends, after the line of its last value."""
        if node is None:
            found = re.search(r"^(?:---|\.\.\.)[^\r\n]*(?:\r?\n|\Z)", self._text, re.MULTILINE)
            return found.end() if found else len(self._text)
        return self._line_end(node.end)

    def _line_end(self, at: int) -> int:
        """The start of the line after that in which a value ends at `at`."""
        if at and self._text[at - 1] == "\n":
            return at  # a block scalar, which has its line end
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end + 1

    def _insert_lines(self, at: int, lines: list[str]) -> str:
        head, tail = self._text[:at], self._text[at:]
        if head and not head.endswith("\n"):
            head += self._newline
        return head + "".join(line + self._newline for line in lines) + tail

    def _column(self, at: int) -> int:
        return at - (self._text.rfind("\n", 0, at) + 1)

    def _dash(self, item: Node) -> int:
        line = self._text[self._text.rfind("\n", 0, item.start) + 1 : item.start]
        if not re.fullmatch(r" *- +", line):
            raise EditError("an item begins on another line than its dash: edit it by hand")
        return line.index("-")


def _named(item: Node) -> str | None:
    return next((value.text for key, value in item.pairs() if key.text == "name" and value.kind == "scalar"), None)


def _wrapped(path: Sequence[str], value: object) -> dict[str, object]:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def _lines(value: dict[str, object], column: int) -> list[str]:
    """The lines of a mapping in block style; lists of texts, which are short, on one."""
    indent, lines = " " * column, list[str]()
    for key, member in value.items():
        if isinstance(member, dict) and member:
            lines += [f"{indent}{_text(key)}:", *_lines(member, column + _UNIT)]
        elif isinstance(member, list) and any(isinstance(item, dict) for item in member):
            lines += [f"{indent}{_text(key)}:", *(line for item in member for line in _items(item, column + _UNIT))]
        else:
            lines.append(f"{indent}{_text(key)}: {_text(member) if isinstance(member, str) else _flow(member)}")
    return lines


def _items(value: object, column: int) -> list[str]:
    assert isinstance(value, dict)
    first, *rest = _lines(value, column + 2)
    return [f"{' ' * column}- {first.lstrip(' ')}", *rest]


def _text(text: str) -> str:
    """A text as it needs to be quoted; a word is plain."""
    is_word = re.fullmatch(r"[A-Za-z_/][\w./-]*", text, re.ASCII) is not None
    means_else = not isinstance(plain_value(text), str)
    reserved = text.lower() in {"y", "n", "yes", "no", "on", "off"}  # other readers take them for booleans
    return text if is_word and not means_else and not reserved else json.dumps(text, ensure_ascii=False)


def _flow(value: object) -> str:
    """A value on one line: JSON, which is YAML."""
    return json.dumps(value, ensure_ascii=False)
