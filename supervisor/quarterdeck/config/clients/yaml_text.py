"""Change one member of a YAML text by ruamel.yaml's round trip, which keeps comments, quotes and the order of keys.

A comment that stands behind the member goes where the next one expects it.  What comes out is parsed again and compared
before anybody gets it, and no comment is lost.  Pure.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from io import StringIO
from typing import Any, Final

from quarterdeck.config.load.text_edit import EditError, verified, with_member, without_member

from .yaml_tree import comments, parse, plain_value

_NESTED: Final = re.compile(r"^[^\s#-][^\n]*:[ \t]*\n( +)[^\s#-]", re.MULTILINE)

_DASHED: Final = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*\n( *)-( +)", re.MULTILINE)


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
    return verified(_changed(text, partial(_put, path=path, value=value)), with_member(old, path, value), parse)


def remove_member(text: str, path: Sequence[str]) -> str:
    """`text` without the member at `path`, which is there; of a sequence the item that has the last `name`.

    Raises:
        DocumentError: `text` is no mapping.
        EditError: there is none, or something on the way is of another kind.
    """
    old = parse(text)
    return verified(_changed(text, partial(_remove, path=path)), without_member(old, path), parse)


def _changed(text: str, change: Callable[[Any], None]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

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
    """Put a member into its place, or last, and the comment that stands behind that behind it."""
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
    """The key of a mapping, or the place of the item of a list with this `name`; that behind the last without one."""
    if isinstance(holder, dict):
        return name
    if not isinstance(holder, list):
        raise EditError(f"what should hold {name!r} is neither a mapping nor a sequence")
    named = [at for at, item in enumerate(holder) if isinstance(item, dict) and item.get("name") == name]
    if len(named) > 1:
        raise EditError(f"the name {name!r} appears more than once: remove one")
    return named[0] if named else len(holder)


def _last(holder: Any, key: Any) -> tuple[Any, Any]:
    """The holder and the key of the last value within a member; ruamel.yaml keeps the comment behind it there."""
    while hasattr(holder[key], "fa") and holder[key] and not holder[key].fa.flow_style():
        holder = holder[key]
        key = _keys(holder)[-1]
    return holder, key


def _take_comment(holder: Any, key: Any) -> str:
    """Cut off the lines of comments behind a member; one in its own last line stays."""
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
    """Put lines of comments behind a member; with `inside` false behind its key, before what it holds."""
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    if not lines:
        return
    if inside:
        holder, key = _last(holder, key)
    slots, at = holder.ca.items.setdefault(key, [None] * 4), 2 if isinstance(holder, dict) else 0
    if slots[at] is None:
        slots[at] = CommentToken("\n", CommentMark(0), None)
    slots[at].value += lines


def _styled(value: object) -> Any:
    """A value as it is written: lists of texts on one line, a text quoted unless every reader takes it for one."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, dict):
        return CommentedMap({_styled(key): _styled(member) for key, member in value.items()})
    if isinstance(value, list):
        items = CommentedSeq(map(_styled, value))
        if not any(isinstance(item, dict) for item in value):
            items.fa.set_flow_style()
        return items
    if not isinstance(value, str):
        return value
    is_word = re.fullmatch(r"[A-Za-z_/][\w./-]*", value, re.ASCII) and isinstance(plain_value(value), str)
    reserved = value.lower() in {"y", "n", "yes", "no", "on", "off"}  # other readers take them for booleans
    return value if is_word and not reserved else DoubleQuotedScalarString(value)
