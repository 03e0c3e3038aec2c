"""How two definitions of one tool differ, and what is told of plain JSON values.  Pure."""

from collections.abc import Iterator
from typing import Final

from .differences import ABSENT, MAX_DEPTH, Difference, Path, Severity, is_same, member
from .schema_differences import Side, schema_differences

_TEXTS: Final = {"title": "the title", "description": "the description", "icons": "the icons"}
"""Members of a tool that are words and pictures only."""

_SCHEMAS: Final = {"inputSchema": Side.INPUT, "outputSchema": Side.OUTPUT}


def tool_differences(old: object, new: object) -> Iterator[Difference]:
    """How `new` differs from `old`.  A member that nobody knows may mean anything: a change of it is breaking."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield from value_differences(old, new, Severity.BREAKING)
        return
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        if before is after:
            continue
        if key in _TEXTS:
            if not is_same(before, after):
                yield Difference((key,), Severity.TEXT, before, after, _TEXTS[key])
        elif key in _SCHEMAS:
            yield from _schema(key, before, after)
        elif key == "annotations":
            yield from _annotations(before, after)
        else:
            yield from value_differences(before, after, Severity.BREAKING, (key,))


def value_differences(old: object, new: object, severity: Severity, path: Path = ()) -> Iterator[Difference]:
    """How two JSON values differ, object by object; an array is one value, in its order."""
    pairs = [(old, new, path)]
    while pairs:
        old, new, path = pairs.pop()
        if isinstance(old, dict) and isinstance(new, dict) and len(path) < MAX_DEPTH:
            keys = sorted(old.keys() | new.keys(), reverse=True)
            pairs += [(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key)) for key in keys]
        elif not is_same(old, new):
            yield Difference(path, severity, old, new, member(path) if path else "")


def _schema(key: str, before: object, after: object) -> Iterator[Difference]:
    side = _SCHEMAS[key]
    if before is not ABSENT and after is not ABSENT:
        yield from schema_differences(before, after, side, (key,))
        return
    is_more = side is Side.OUTPUT and before is ABSENT
    noun = "the schema of its input" if side is Side.INPUT else "the schema of its output"
    yield Difference((key,), Severity.ADDITIVE if is_more else Severity.BREAKING, before, after, noun)


def _annotations(before: object, after: object) -> Iterator[Difference]:
    """Every hint is a promise about danger: it may be loosened, and was never more than a claim."""
    path: Path = ("annotations",)
    old = {} if before is ABSENT else before
    new = {} if after is ABSENT else after
    if not (isinstance(old, dict) and isinstance(new, dict)) or not old | new:
        yield from value_differences(before, after, Severity.BREAKING, path)
        return
    for key in sorted(old.keys() | new.keys()):
        severity = Severity.TEXT if key == "title" else Severity.BREAKING
        yield from value_differences(old.get(key, ABSENT), new.get(key, ABSENT), severity, (*path, key))
