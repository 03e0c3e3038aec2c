"""Read a YAML text: its values, and the tree of them with the place of each.

ruamel.yaml reads the text as events with positions.  A text may be a stranger's: size, depth and what aliases stand
for are bounded, tags are refused.  Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from quarterdeck.config.load.document import MAX_DEPTH, DocumentError, JsonObject
from quarterdeck.config.load.text_edit import outside

MAX_CHARS: Final = 256 * 1024
"""The reader takes a second for 100 KiB; settings of clients are some kilobytes."""

MAX_VALUES: Final = 100_000
"""What aliases stand for is copied: ten lines of them can mean billions of values."""

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
class Node:
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
    members: "list[Node]" = field(default_factory=list)

    def pairs(self) -> "Iterator[tuple[Node, Node]]":
        """A mapping's keys, each with its value."""
        return zip(self.members[::2], self.members[1::2], strict=True)


def parse(text: str) -> JsonObject:
    """The mapping that `text` is, an empty one for an empty text.

    Raises:
        DocumentError: it is none, or not one that settings need.
    """
    root = read_tree(text)
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
    root = read_tree(text)
    if root is not None:
        yield from _scalars(root, ())


def comments(text: str) -> Iterator[re.Match[str]]:
    """Every comment of a YAML text."""
    spans = [(start, end) for _, _, start, end in scalars(text)]
    return outside(_COMMENT, text, spans)


def read_tree(text: str) -> Node | None:
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
        self.root: Node | None = None
        self._text = text
        self._open: list[Node] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        start, end = event.start_mark.index, event.end_mark.index
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise DocumentError("it has more than one document")
        elif kind == "AliasEvent":
            self._add(Node("alias", start, end, event.anchor), event)
        elif kind == "ScalarEvent":
            self._check_tag(event)
            self._add(Node("scalar", start, end, event.value, is_plain=event.style is None), event)
        elif kind in {"MappingStartEvent", "SequenceStartEvent"}:
            self._check_tag(event)
            node = Node(kind[:-10].lower(), start, end, is_flow=bool(event.flow_style))
            self._add(node, event)
            self._open.append(node)
            if len(self._open) > MAX_DEPTH:
                raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")
        elif kind in {"MappingEndEvent", "SequenceEndEvent"}:
            node = self._open.pop()
            node.end = end if node.is_flow else max([node.end, *(member.end for member in node.members[-2:])])

    def _add(self, node: Node, event: Any) -> None:
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

    def value(self, node: Node, depth: int = 0) -> object:
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

    def _mapping(self, node: Node, depth: int) -> JsonObject:
        found, merged = JsonObject(), JsonObject()
        for key, member in node.pairs():
            name = key_name(key)
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


def key_name(key: Node) -> str:
    """The name that a key is.

    Raises:
        DocumentError: it is no text.
    """
    if key.kind != "scalar":
        raise DocumentError("a key is not a text")
    return key.text


def _scalar(node: Node) -> object:
    return plain_value(node.text) if node.is_plain else node.text


def plain_value(text: str) -> object:
    """What a scalar without quotes means: a text unless it is one of the core schema's other words."""
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return convert(text)
    return text


def _scalars(node: Node, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    if node.kind == "mapping":
        for key, member in node.pairs():
            yield from _scalars(member, (*names, key.text))
    elif node.kind == "sequence":
        for member in node.members:
            yield from _scalars(member, (*names, ""))
    elif node.kind == "scalar" and node.end > node.start:
        yield names, _scalar(node), node.start, node.end
