"""Read a YAML text, its values and their positions; change one member by ruamel.yaml's round trip.

A text may be untrusted: size, depth and the expansion of aliases are bounded, tags are refused.  A round trip keeps
comments, quotes and the order of keys; a comment behind the member goes where the next one expects it.  The result is
parsed again and compared before it is returned, and no comment is lost.  Pure.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from quarterdeck.config.load.document import MAX_DEPTH, DocumentError, JsonObject
from quarterdeck.config.load.text_edit import EditError, outside, verified, with_member, without_member

MAX_CHARS: Final = 256 * 1024
"""The reader takes a second for 100 KiB; clients' settings have a few kilobytes."""

MAX_VALUES: Final = 100_000
"""Aliases are expanded: ten lines of them can mean billions of values."""

_SCALARS: Final[tuple[tuple[re.Pattern[str], Any], ...]] = (
    (re.compile(r"null|Null|NULL|~|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,300}"), int),
    (re.compile(r"0o[0-7]{1,300}"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]{1,300}"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)
"""The meanings of a plain scalar.  Source: YAML 1.2.2, 10.3.2 (core schema); infinities and NaN stay texts."""

_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)
_MERGE: Final = "<<"
_NESTED: Final = re.compile(r"^[^\s#-][^\n]*:[ \t]*\n( +)[^\s#-]", re.MULTILINE)
_DASHED: Final = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*\n( *)-( +)", re.MULTILINE)


def parse(text: str) -> JsonObject:
    """Return the mapping of `text`, empty for an empty text.  Raises `DocumentError` if it is no mapping, too large or
    deep, or uses tags, several documents or repeated keys.
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
    """Yield every scalar value of a YAML text: the names that lead to it (a sequence's index is empty), itself, its
    span.

    An alias's target is yielded where it is written.  Raises `DocumentError` as `parse` does.
    """
    root = _read(text)
    if root is not None:
        yield from _scalars(root, (), set())


def comments(text: str) -> Iterator[re.Match[str]]:
    """Return every comment of a YAML text."""
    root = _read(text)
    return outside(_COMMENT, text, list(_spans(root, set())) if root is not None else [])


def _read(text: str) -> Node | None:
    """Return the root node of the only document, aliases resolved; None for an empty text."""
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
    """Check, before a tree is built, that a text is one document without tags, and not too deep."""
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
    return _plain_value(node.value) if isinstance(node, ScalarNode) and node.style is None else node.value


def _plain_value(text: str) -> object:
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


def _spans(node: Node, seen: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the span of every scalar, keys among them, in their order."""
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        yield node.start_mark.index, node.end_mark.index
        return
    for child in node.value:
        for each in child if isinstance(child, tuple) else (child,):
            yield from _spans(each, seen)


def set_member(text: str, path: Sequence[str], value: object, *, is_item: bool = False) -> str:
    """Return `text` with `value` at `path`: replaced where it is, else last in its mapping, which is made if missing.

    In a sequence, `value` replaces the item with this `name`, or is appended; `is_item` makes a sequence if there is
    nothing yet.  Raises `DocumentError` if `text` is no mapping, `EditError` if a value on the way is of another kind.
    """
    old = parse(text)
    holder: object = old
    for key in path[:-1]:
        holder = holder.get(key) if isinstance(holder, dict) else None
    if is_item and holder is None:
        path, value = path[:-1], [value]
    return verified(_changed(text, partial(_put, path=path, value=value)), with_member(old, path, value), parse)


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return `text` without the member at `path`, or without the sequence's item with the last `name`.  Raises
    `DocumentError` if `text` is no mapping, `EditError` if there is none, or a value on the way is of another kind.
    """
    old = parse(text)
    return verified(_changed(text, partial(_remove, path=path)), without_member(old, path), parse)


def _changed(text: str, change: Callable[[Any], None]) -> str:
    plain = text.replace("\r\n", "\n")
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = sys.maxsize
    nested, dashed = _NESTED.search(plain), _DASHED.search(plain)
    offset = max(0, len(dashed[2]) - len(dashed[1])) if dashed else 0
    yaml.indent(len(nested[1]) if nested else 2, offset + 1 + len(dashed[3]) if dashed else 2, offset)

    def dumped(document: Any) -> str:
        stream = StringIO()
        yaml.dump(document, stream)
        return stream.getvalue()

    head = ""
    try:
        document = yaml.load(plain)
        if document is None:  # nothing but comments, which have no place in a document that is empty
            document, head = CommentedMap(), f"{plain.rstrip()}\n" if plain.strip() else ""
        else:
            yaml.explicit_start = re.search(r"^---\s", plain, re.MULTILINE) is not None
            before, after = (Counter(found[0] for found in comments(each)) for each in (plain, dumped(document)))
            if before - after:
                raise EditError("a comment in it would be lost: edit it by hand")
        change(document)
        changed = head + dumped(document)
    except EditError:
        raise
    except (YAMLError, ValueError) as error:
        raise EditError("it could not be changed safely: edit it by hand") from error
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _put(document: Any, path: Sequence[str], value: object) -> None:
    holder = document
    for key in path[:-1]:
        if not isinstance(holder, dict):
            raise EditError(f"what should hold {key!r} is not a mapping")
        if holder.get(key) is None:
            _place(holder, key, {})
        holder = holder[key]
    _place(holder, _key_in(holder, path[-1]), value)


def _place(holder: Any, key: Any, value: object) -> None:
    """Put a member into its place, or last, and move the comment behind that behind it."""
    keys = _keys(holder)
    behind = _take_comment(holder, key if key in keys else keys[-1]) if keys else ""
    if key in keys or isinstance(holder, dict):
        holder[key] = _styled(value)
    else:
        holder.append(_styled(value))
    _add_comment(holder, key, behind)


def _remove(document: Any, path: Sequence[str]) -> None:
    above, holder = None, document
    for key in path[:-1]:
        if not isinstance(holder, dict) or key not in holder:
            raise EditError(f"there is no {key!r}")
        above, holder = holder, holder[key]
    key, keys = _key_in(holder, path[-1]), _keys(holder)
    if key not in keys:
        raise EditError(f"there is no {path[-1]!r}")
    behind, at = _take_comment(holder, key), keys.index(key)
    del holder[key]
    if at:
        _add_comment(holder, keys[at - 1], behind)
    elif above is not None:
        if not holder:  # a new one, which is written behind the comments that stood before the old one's members
            above[path[-2]] = _styled([] if isinstance(holder, list) else {})
        _add_comment(above, path[-2], behind, inside=False)


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def _key_in(holder: Any, name: str) -> Any:
    """Return the key of a mapping, or the index of a list's item with this `name`; the length without one."""
    if isinstance(holder, dict):
        return name
    if not isinstance(holder, list):
        raise EditError(f"what should hold {name!r} is neither a mapping nor a sequence")
    named = [at for at, item in enumerate(holder) if isinstance(item, dict) and item.get("name") == name]
    if len(named) > 1:
        raise EditError(f"the name {name!r} appears more than once: remove one")
    return named[0] if named else len(holder)


def _last(holder: Any, key: Any) -> tuple[Any, Any]:
    """Return the holder and key of the last value within a member: ruamel.yaml keeps the comment behind it there."""
    while hasattr(holder[key], "fa") and holder[key] and not holder[key].fa.flow_style():
        holder = holder[key]
        key = _keys(holder)[-1]
    return holder, key


def _take_comment(holder: Any, key: Any) -> str:
    """Cut off the comment lines behind a member; one in its own last line stays."""
    holder, key = _last(holder, key)
    slots, at = holder.ca.items.get(key), 2 if isinstance(holder, dict) else 0
    if not slots or slots[at] is None:
        return ""
    own, _, behind = slots[at].value.partition("\n")
    slots[at].value = f"{own}\n"
    if not own:
        slots[at] = None
    return str(behind)


def _add_comment(holder: Any, key: Any, lines: str, *, inside: bool = True) -> None:
    """Put comment lines behind a member; with `inside` false behind its key, before its content."""
    if not lines:
        return
    if inside:
        holder, key = _last(holder, key)
    slots, at = holder.ca.items.setdefault(key, [None] * 4), 2 if isinstance(holder, dict) else 0
    if slots[at] is None:
        slots[at] = CommentToken("\n", CommentMark(0), None)
    slots[at].value += lines


def _styled(value: object) -> Any:
    """Return a value in its style: lists of texts on one line, a text quoted unless every reader takes it for one."""
    if isinstance(value, dict):
        return CommentedMap({_styled(key): _styled(member) for key, member in value.items()})
    if isinstance(value, list):
        items = CommentedSeq(map(_styled, value))
        if not any(isinstance(item, dict) for item in value):
            items.fa.set_flow_style()
        return items
    if not isinstance(value, str):
        return value
    is_word = re.fullmatch(r"[A-Za-z_/][\w./-]*", value, re.ASCII) and isinstance(_plain_value(value), str)
    reserved = value.lower() in {"y", "n", "yes", "no", "on", "off"}  # other readers take them for booleans
    return value if is_word and not reserved else DoubleQuotedScalarString(value)
