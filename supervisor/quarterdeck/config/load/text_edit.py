"""Shared by the editors of JSON, TOML and YAML: a change as a value, and the check that a text has it.  Pure."""

import re
from collections.abc import Callable, Iterator, Sequence

from quarterdeck.config.load.document import DocumentError


class EditError(ValueError):
    """The text cannot be changed so; the message says why, and shows nothing of it."""


def verified(text: str, expected: object, parse: Callable[[str], object]) -> str:
    """Return `text` if it parses to `expected`.  Raises `EditError` if it does not."""
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


def with_member(value: object, path: Sequence[str], member: object) -> object:
    """Return a copy of an object, or of a list of objects with names, with `member` at `path`."""
    return _changed(value, path, [member])


def without_member(value: object, path: Sequence[str]) -> object:
    """Return a copy of an object, or of a list of objects with names, without what is at `path`."""
    return _changed(value, path, [])


def _changed(value: object, path: Sequence[str], members: list[object]) -> object:
    key, *rest = path
    if isinstance(value, list) and not rest:
        at = next((place for place, item in enumerate(value) if _is_named(item, key)), len(value))
        kept = [item for item in value if not _is_named(item, key)]
        return [*kept[:at], *members, *kept[at:]]
    copy = dict(value) if isinstance(value, dict) else {}
    if rest:
        copy[key] = _changed(copy.get(key), rest, members)
    elif members:
        copy[key] = members[0]
    else:
        copy.pop(key, None)
    return copy


def _is_named(item: object, name: str) -> bool:
    return isinstance(item, dict) and item.get("name") == name


def outside(pattern: re.Pattern[str], text: str, spans: Sequence[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """Yield each match of `pattern` in `text` that begins in none of the spans, which ascend."""
    at, rest = 0, iter(spans)
    span = next(rest, None)
    while (found := pattern.search(text, at)) is not None:
        while span is not None and span[1] <= found.start():
            span = next(rest, None)
        if span is not None and span[0] <= found.start():
            at = span[1]  # not behind the match, which may go on to a place outside
        else:
            yield found
            at = found.end()
