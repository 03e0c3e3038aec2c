"""Read a YAML text: its values, and the place of each.

ruamel.yaml makes the tree.  A text may be a stranger's: size, depth and what aliases stand for are bounded, tags are
refused.  Pure.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

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
        yield from _scalars(root, (), set())


def comments(text: str) -> Iterator[re.Match[str]]:
    """Every comment of a YAML text."""
    spans = [(start, end) for _, _, start, end in scalars(text)]
    return outside(_COMMENT, text, spans)


def _read(text: str) -> Node | None:
    """The tree of a text's only document, aliases resolved to the node that they name; None when there is nothing."""
    if len(text) > MAX_CHARS:
        raise DocumentError(f"it is larger than {MAX_CHARS // 1024} KiB")
    try:
        _check(YAML(typ="safe", pure=True).parse(text))
        loader = YAML(typ="safe", pure=True)
        loader.composer.warn_double_anchors = False
        root: Node | None = loader.compose(text)
    except DocumentError:
        raise
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise DocumentError(f"{where}{getattr(error, 'problem', None) or 'no YAML'}") from None
    except (ValueError, RecursionError, LookupError) as error:
        raise DocumentError("no YAML") from error
    return root


def _check(events: Iterable[Any]) -> None:
    """See that a text is one document, not too deep, and without tags, before a tree is made of it."""
    depth = documents = 0
    for event in events:
        match type(event).__name__:
            case "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise DocumentError("it has more than one document")
            case "MappingStartEvent" | "SequenceStartEvent":
                depth += 1
                if depth > MAX_DEPTH:
                    raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")
            case "MappingEndEvent" | "SequenceEndEvent":
                depth -= 1
        if getattr(event, "tag", None) is not None:
            raise DocumentError(f"line {event.start_mark.line + 1}: the tag {str(event.tag)[:40]!r} is not understood")


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
        if isinstance(node, MappingNode):
            return self._mapping(node, depth)
        if isinstance(node, SequenceNode):
            return [self.value(member, depth + 1) for member in node.value]
        return _scalar(node)

    def _mapping(self, node: MappingNode, depth: int) -> JsonObject:
        found, merged = JsonObject(), JsonObject()
        for key, member in node.value:
            if not isinstance(key, ScalarNode):
                raise DocumentError("a key is not a text")
            name, value = key.value, self.value(member, depth + 1)
            if key.style is None and name == _MERGE:
                for each in value if isinstance(value, list) else [value]:
                    if not isinstance(each, JsonObject):
                        raise DocumentError(f"{_MERGE!r} takes mappings")
                    merged = JsonObject(each | merged)
            elif name in found:
                raise DocumentError(f"the key {name[:40]!r} appears more than once: remove one")
            else:
                found[name] = value
        return JsonObject(found | {name: value for name, value in merged.items() if name not in found})


def _scalar(node: Node) -> object:
    """The value of a node that holds no other."""
    return plain_value(node.value) if isinstance(node, ScalarNode) and node.style is None else node.value


def plain_value(text: str) -> object:
    """What a scalar without quotes means: a text unless it is one of the core schema's other words."""
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return convert(text)
    return text


def _scalars(node: Node, names: tuple[str, ...], seen: set[int]) -> Iterator[tuple[tuple[str, ...], object, int, int]]:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, MappingNode):
        for key, member in node.value:
            name = key.value if isinstance(key, ScalarNode) else ""
            yield from _scalars(member, (*names, name), seen)
    elif isinstance(node, SequenceNode):
        for member in node.value:
            yield from _scalars(member, (*names, ""), seen)
    elif node.end_mark.index > node.start_mark.index:
        yield names, _scalar(node), node.start_mark.index, node.end_mark.index
