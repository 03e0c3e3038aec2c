"""Find every value of a YAML text; change one member and leave every other character where it is, comments included.

ruamel.yaml reads the text as events with positions; what is changed is cut out of the text or put into it, since a
round trip through a dumper lays the whole file out anew.  What comes out is parsed again and compared before anybody
gets it.  A text may be a stranger's: size, depth and what aliases stand for are bounded, tags are refused.  Pure.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from quarterdeck.config.load.document import MAX_DEPTH, DocumentError, JsonObject
from quarterdeck.config.load.jsonc import EditError

MAX_CHARS: Final = 256 * 1024
"""The reader takes a second for 100 KiB; settings of clients are some kilobytes."""

MAX_VALUES: Final = 100_000
"""What aliases stand for is copied: ten lines of them can mean billions of values."""

_UNIT: Final = 2
"""Columns of one more level, where the text has none to learn from."""

_SCALARS: Final[tuple[tuple[re.Pattern[str], Any], ...]] = (
    (re.compile(r"null|Null|NULL|~|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,300}"), int),
    (re.compile(r"0o[0-7]{1,300}"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]{1,300}"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)
"""What a plain scalar means.  Source: YAML 1.2.2, 10.3.2 (core schema); infinities and NaN stay texts."""

_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)

_MERGE: Final = "<<"


@dataclass(slots=True, eq=False)
class _Node:
    """A value and where it stands.

    Attributes:
        end: after its last character; of a block the end of its last member.
        members: of a mapping its keys and values by turns, of a sequence its items.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    is_plain: bool = False
    is_flow: bool = False
    members: "list[_Node]" = field(default_factory=list)

    def pairs(self) -> "Iterator[tuple[_Node, _Node]]":
        return zip(self.members[::2], self.members[1::2], strict=True)


def parse(text: str) -> JsonObject:
    """The mapping that `text` is, an empty one for an empty text.

    Raises:
        DocumentError: it is none, or not one that settings need.
    """
    root = _read(text)
    if root is None:
        return JsonObject()
    value = _Values().value(root)
    if value is None:
        return JsonObject()
    if not isinstance(value, JsonObject):
        raise DocumentError("expected a mapping, as in name: value")
    return value


def scalars(text: str) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    """Every value of a YAML text that holds no other: the names that lead to it, itself, its place.

    A sequence's place in the names is empty.  What an alias stands for is found where it is written.

    Raises:
        DocumentError: as `parse`.
    """
    root = _read(text)
    if root is not None:
        yield from _scalars(root, ())


def comments(text: str) -> Iterator[re.Match[str]]:
    """Every comment of a YAML text."""
    spans = [(start, end) for _, _, start, end in scalars(text)]
    at = 0
    for found in _COMMENT.finditer(text):
        while at < len(spans) and spans[at][1] <= found.start():
            at += 1
        if at == len(spans) or found.start() < spans[at][0]:
            yield found


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
    return _verified(_Edit(text).put(path, value), _changed(old, path, value))


def remove_member(text: str, path: Sequence[str]) -> str:
    """`text` without the member at `path`, which is there; of a sequence the item that has the last `name`.

    Raises:
        DocumentError: `text` is no mapping.
        EditError: there is none, or something on the way is of another kind.
    """
    old = parse(text)
    return _verified(_Edit(text).remove(path), _changed(old, path, None, is_removed=True))


def _read(text: str) -> _Node | None:
    """The tree of a text's only document; None when there is nothing in it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if len(text) > MAX_CHARS:
        raise DocumentError(f"it is larger than {MAX_CHARS // 1024} KiB")
    reader = _Reader(text)
    loader = YAML(typ="safe", pure=True)
    try:
        for event in loader.parse(text):
            reader.take(event)
    except DocumentError:
        raise
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise DocumentError(f"{where}{getattr(error, 'problem', None) or 'no YAML'}") from None
    except (ValueError, RecursionError, LookupError) as error:
        raise DocumentError("no YAML") from error
    return reader.root


class _Reader:
    """The tree that events make, aliases resolved to the node that they name."""

    def __init__(self, text: str) -> None:
        self.root: _Node | None = None
        self._text = text
        self._open: list[_Node] = []
        self._anchors: dict[str, _Node] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        start, end = event.start_mark.index, event.end_mark.index
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise DocumentError("it has more than one document")
        elif kind == "AliasEvent":
            self._add(_Node("alias", start, end, event.anchor), event)
        elif kind == "ScalarEvent":
            self._check_tag(event)
            self._add(_Node("scalar", start, end, event.value, is_plain=event.style is None), event)
        elif kind in {"MappingStartEvent", "SequenceStartEvent"}:
            self._check_tag(event)
            node = _Node(kind[:-10].lower(), start, end, is_flow=bool(event.flow_style))
            self._add(node, event)
            self._open.append(node)
            if len(self._open) > MAX_DEPTH:
                raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")
        elif kind in {"MappingEndEvent", "SequenceEndEvent"}:
            node = self._open.pop()
            node.end = end if node.is_flow else max([node.end, *(member.end for member in node.members[-2:])])

    def _add(self, node: _Node, event: Any) -> None:
        if node.kind == "alias":
            if node.text not in self._anchors:
                raise DocumentError(f"nothing before it has the anchor {node.text[:40]!r}")
            node.members = [self._anchors[node.text]]
        elif event.anchor:
            self._anchors[event.anchor] = node
        if self._open:
            self._open[-1].members.append(node)
        else:
            self.root = node

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None:
            line = self._text.count("\n", 0, event.start_mark.index) + 1
            raise DocumentError(f"line {line}: the tag {str(event.tag)[:40]!r} is not understood")


class _Values:
    """What nodes mean, aliases followed, so many at most."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def value(self, node: _Node, depth: int = 0) -> object:
        self._left -= 1
        if self._left < 0:
            raise DocumentError(f"its aliases stand for more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")
        match node.kind:
            case "alias":
                return self.value(node.members[0], depth + 1)
            case "scalar":
                return _scalar(node)
            case "sequence":
                return [self.value(member, depth + 1) for member in node.members]
            case _:
                return self._mapping(node, depth)

    def _mapping(self, node: _Node, depth: int) -> JsonObject:
        found, merged = JsonObject(), JsonObject()
        for key, member in node.pairs():
            name = _name(key)
            value = self.value(member, depth + 1)
            if key.is_plain and name == _MERGE:
                for each in value if isinstance(value, list) else [value]:
                    if not isinstance(each, JsonObject):
                        raise DocumentError(f"{_MERGE!r} takes mappings")
                    merged = JsonObject(each | merged)
            elif name in found:
                raise DocumentError(f"the key {name[:40]!r} appears more than once: remove one")
            else:
                found[name] = value
        return JsonObject(found | {name: value for name, value in merged.items() if name not in found})


def _name(key: _Node) -> str:
    if key.kind != "scalar":
        raise DocumentError("a key is not a text")
    return key.text


def _scalar(node: _Node) -> object:
    if node.is_plain:
        for pattern, convert in _SCALARS:
            if pattern.fullmatch(node.text):
                return convert(node.text)
    return node.text


def _scalars(node: _Node, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    if node.kind == "mapping":
        for key, member in node.pairs():
            yield from _scalars(member, (*names, key.text))
    elif node.kind == "sequence":
        for member in node.members:
            yield from _scalars(member, (*names, ""))
    elif node.kind == "scalar" and node.end > node.start:
        yield names, _scalar(node), node.start, node.end


class _Edit:
    """A text and its tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._root = _read(text)

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

    def _find(self, node: _Node | None, key: str) -> tuple[_Node, _Node] | None:
        if node is None or node.kind != "mapping":
            raise EditError(f"what should hold {key!r} is not a mapping")
        return next(((name, value) for name, value in node.pairs() if _name(name) == key), None)

    def _item(self, node: _Node, name: str) -> tuple[_Node, _Node] | None:
        found = [item for item in node.members if item.kind == "mapping" and _named(item) == name]
        if len(found) > 1:
            raise EditError(f"the name {name!r} appears more than once: remove one")
        return (found[0], found[0]) if found else None

    def _append(self, node: _Node, key: str, value: object) -> str:
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

    def _replace(self, node: _Node, member: tuple[_Node, _Node], key: str, value: object) -> str:
        if node.is_flow:
            return self._text[: member[1].start] + _flow(value) + self._text[member[1].end :]
        start, end = self._line_span(node, member)
        if node.kind == "sequence":
            lines = _items(value, self._dash(member[0]))
        else:
            lines = _lines({key: value}, self._column(member[0].start))
        return self._text[:start] + "".join(line + self._newline for line in lines) + self._text[end:]

    def _remove_from_flow(self, node: _Node, member: tuple[_Node, _Node]) -> str:
        size = 1 if node.kind == "sequence" else 2
        at = node.members.index(member[0])
        if at + size < len(node.members):
            start, end = member[0].start, node.members[at + size].start
        elif at:
            start, end = node.members[at - 1].end, member[1].end
        else:
            start, end = member[0].start, member[1].end
        return self._text[:start] + self._text[end:]

    def _line_span(self, node: _Node, member: tuple[_Node, _Node]) -> tuple[int, int]:
        """The lines that a member of a block has for itself."""
        key, value = member
        start = self._text.rfind("\n", 0, key.start) + 1
        before = self._text[start : key.start]
        if before.strip() and not (node.kind == "sequence" and re.fullmatch(r" *- +", before)):
            raise EditError("it shares its line with something else: edit it by hand")
        return start, self._line_end(max(key.end, value.end))

    def _end_of(self, node: _Node | None) -> int:
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

    def _dash(self, item: _Node) -> int:
        line = self._text[self._text.rfind("\n", 0, item.start) + 1 : item.start]
        if not re.fullmatch(r" *- +", line):
            raise EditError("an item begins on another line than its dash: edit it by hand")
        return line.index("-")


def _named(item: _Node) -> str | None:
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
    means_else = any(pattern.fullmatch(text) for pattern, _ in _SCALARS)
    reserved = text.lower() in {"y", "n", "yes", "no", "on", "off"}  # other readers take them for booleans
    return text if is_word and not means_else and not reserved else json.dumps(text, ensure_ascii=False)


def _flow(value: object) -> str:
    """A value on one line: JSON, which is YAML."""
    return json.dumps(value, ensure_ascii=False)


def _changed(value: object, path: Sequence[str], wanted: object, *, is_removed: bool = False) -> object:
    """A copy of a mapping, or of a list of mappings with names, with the change."""
    key, *rest = path
    if isinstance(value, list) and not rest:
        kept = [item for item in value if not (isinstance(item, dict) and item.get("name") == key)]
        if is_removed:
            return kept
        at = next((place for place, item in enumerate(value) if item not in kept), len(kept))
        return [*kept[:at], wanted, *kept[at:]]
    copy = dict(value) if isinstance(value, dict) else {}
    if rest:
        copy[key] = _changed(copy.get(key), rest, wanted, is_removed=is_removed)
    elif is_removed:
        del copy[key]
    else:
        copy[key] = wanted
    return copy


def _verified(text: str, expected: object) -> str:
    """`text`, once it is sure that it means what is expected."""
    try:
        value = parse(text)
        text.encode()
    except DocumentError as error:
        raise EditError(f"it could not be changed safely ({error}): edit it by hand") from error
    except UnicodeEncodeError as error:
        raise EditError("a path or a name in it is not Unicode text: rename it") from error
    if value != expected:
        raise EditError("it could not be changed safely: edit it by hand")
    return text
