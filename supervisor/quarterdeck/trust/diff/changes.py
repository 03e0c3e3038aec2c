"""What changed of a server between the approved form and the one that it offers now.  Pure, total and bounded.

Every change has a severity, a place and a sentence.  Whatever a server writes, at most `MAX_CHANGES` are listed and the
rest is counted; apart from the order of keys, and that of arrays whose order means nothing, every difference of two
JSON values is told.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from quarterdeck.ledger.events.events import LISTED, ORDER, Subject
from quarterdeck.ledger.events.fold import ItemKey

from .fingerprints import contents_of
from .schema_differences import Side, schema_differences
from .values import ABSENT, Difference, Path, Severity, cut_pair, is_same, quoted, shown, spelled, value_differences

MAX_CHANGES: Final = 200
"""More than anybody reads; the most severe are kept."""

MAX_VALUE_CHARS: Final = 2_000
"""Of what stood before and stands after: around the place where they part."""

_MAX_SPELLED_CHARS: Final = 2_097_152
"""Of a value that is no text: so much is written out to find where two part."""

_MAX_SENTENCE_CHARS: Final = 300


class ChangeKind(StrEnum):
    """What became of it."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        kind: of what; `name` is the server's own name for it, or a URI; empty for the others.
        place: JSON pointer into the document, escaped; empty for all of it.
        before, after: not escaped, cut; a text as it is, all else as JSON; None for nothing.
        sentence: the change in one line, escaped.
        is_cut: whether `before` or `after` is a part.
    """

    kind: Subject
    name: str
    what: ChangeKind
    severity: Severity
    place: str
    before: str | None
    after: str | None
    sentence: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ServerDiff:
    """All changes of one server: launch, instructions, then lists, by name; `totals` has those beyond `MAX_CHANGES`
    too.
    """

    changes: tuple[Change, ...]
    totals: Mapping[Severity, int]

    @property
    def is_whole(self) -> bool:
        """Whether who reads `changes` has read all."""
        return not self.left_out and not any(change.is_cut for change in self.changes)

    @property
    def left_out(self) -> int:
        """How many changes are counted, but not among `changes`."""
        return sum(self.totals.values()) - len(self.changes)

    @property
    def severity(self) -> Severity | None:
        """The worst of all; None when nothing changed."""
        return next((severity for severity in _WORST_FIRST if self.totals[severity]), None)


def diff_server(old: Mapping[ItemKey, object], new: Mapping[ItemKey, object], *, whole: bool = False) -> ServerDiff:
    """What changed from `old` to `new`: documents by what they are of, plain JSON values; `whole` for all of it."""
    kept: dict[Severity, list[tuple[int, ItemKey, Difference]]] = {severity: [] for severity in _WORST_FIRST}
    totals = Counter(dict.fromkeys(Severity, 0))
    keys = sorted(old.keys() | new.keys(), key=lambda key: (ORDER.get(key[0], len(ORDER)), key[0], key[1]))
    for key in keys:
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        for difference in () if is_same(before, after) else _differences(key, before, after):
            severity = difference.severity
            totals[severity] += 1
            if whole or len(kept[severity]) < MAX_CHANGES:
                kept[severity].append((totals.total(), key, difference))
    chosen = [found for severity in _WORST_FIRST for found in kept[severity]]
    chosen = sorted(chosen if whole else chosen[:MAX_CHANGES], key=lambda found: found[0])
    changes = tuple(_change(key, difference, whole=whole) for _, key, difference in chosen)
    return ServerDiff(changes, MappingProxyType(totals))


_WORST_FIRST: Final = (Severity.BREAKING, Severity.ADDITIVE, Severity.TEXT)


def _differences(key: ItemKey, old: object, new: object) -> Iterator[Difference]:
    match key[0]:
        case Subject.INSTRUCTIONS:
            yield from value_differences(old, new, Severity.TEXT)
        case Subject.CAPABILITIES:
            yield from capability_differences(old, new)
        case Subject.PROGRAM if old is not ABSENT and new is not ABSENT:
            yield from value_differences(contents_of(old), contents_of(new), Severity.BREAKING)
        case _ if old is ABSENT and key[0] in LISTED:
            yield Difference((), Severity.ADDITIVE, old, new, "")
        case Subject.TOOL if new is not ABSENT:
            yield from tool_differences(old, new)
        case Subject.PROMPT if new is not ABSENT:
            yield from prompt_differences(old, new)
        case Subject.RESOURCE | Subject.TEMPLATE if new is not ABSENT:
            yield from resource_differences(old, new)
        case _:
            if old is ABSENT or new is ABSENT:
                yield Difference((), Severity.BREAKING, old, new, "")
            else:
                yield from value_differences(old, new, Severity.BREAKING)


def _change(key: ItemKey, difference: Difference, *, whole: bool) -> Change:
    kind, name = key
    full = before, after = _text(difference.before), _text(difference.after)
    # How a server is started is never cut: what it runs may stand anywhere.
    if not whole and kind != Subject.LAUNCH:
        before, after = _cut(before, after)
    what = ChangeKind.ADDED if before is None else ChangeKind.REMOVED if after is None else ChangeKind.CHANGED
    sentence = f"{_subject(kind, name, difference.noun)} {difference.verb or _VERBS[what]}."
    return Change(
        Subject(kind) if kind in ORDER else kind,
        name,
        what,
        difference.severity,
        difference.place,
        before,
        after,
        shown(sentence, _MAX_SENTENCE_CHARS),
        (before, after) != full,
    )


_VERBS: Final = {ChangeKind.ADDED: "is new", ChangeKind.REMOVED: "was removed", ChangeKind.CHANGED: "changed"}


def _subject(kind: str, name: str, noun: str) -> str:
    match kind:
        case Subject.CAPABILITIES:
            return f"What the server says it has: {noun}" if noun else "What the server says it has"
        case _ if kind in LISTED:
            what = f"{kind.capitalize()} {quoted(name)}"
            return f"{what}: {noun}" if noun else what
        case Subject.INSTRUCTIONS:
            return "The text of the server's instructions"
        case Subject.LOGIN:
            return f"What the login is for: {noun}" if noun else "What the login is for"
        case Subject.PROGRAM:
            return f"The server's program: {noun}" if noun else "The server's program"
        case Subject.LAUNCH:
            return f"How the server is started: {noun}" if noun else "How the server is started"
        case _:
            return f"{shown(kind, 64)} {quoted(name)}: {noun}"


def _cut(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    if before is None or after is None:
        return before and before[:MAX_VALUE_CHARS], after and after[:MAX_VALUE_CHARS]
    return cut_pair(before, after, MAX_VALUE_CHARS)


def _text(value: object) -> str | None:
    if value is ABSENT:
        return None
    return value if isinstance(value, str) else spelled(value, _MAX_SPELLED_CHARS)


_TEXTS: Final = {
    "title": "the title",
    "description": "the description",
    "icons": "the icons",
    "annotations": "the annotations",
}
"""Members that are for people and models to read: what was asked before means what it did."""

_ARGUMENTS: Final = "arguments"


_SCHEMAS: Final = {"inputSchema": Side.INPUT, "outputSchema": Side.OUTPUT}


def tool_differences(old: object, new: object) -> Iterator[Difference]:
    """How `new` differs from `old`.  A member that nobody knows may mean anything: a change of it is breaking."""
    for name, before, after in _members(old, new):
        if name in _SCHEMAS:
            yield from _schema(name, before, after)
        elif name == "annotations":
            yield from _annotations(before, after)
        else:
            yield from _member_differences(name, before, after)


def _schema(key: str, before: object, after: object) -> Iterator[Difference]:
    side = _SCHEMAS[key]
    if before is not ABSENT and after is not ABSENT:
        yield from schema_differences(before, after, side, (key,))
        return
    is_more = side is Side.OUTPUT and before is ABSENT
    noun = f"the schema of its {side.value}"
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


def prompt_differences(old: object, new: object) -> Iterator[Difference]:
    """How a prompt differs; its arguments are compared by name."""
    for name, before, after in _members(old, new):
        told, said = _by_name(before), _by_name(after)
        if name == _ARGUMENTS and told is not None and said is not None:
            yield from _argument_differences(told, said)
        else:
            yield from _member_differences(name, before, after)


def resource_differences(old: object, new: object) -> Iterator[Difference]:
    """How a resource or a template differs; its name is for people, who know it by its URI."""
    for name, before, after in _members(old, new):
        if name == "name":
            yield Difference((name,), Severity.TEXT, before, after, "the name")
        else:
            yield from _member_differences(name, before, after)


def capability_differences(old: object, new: object) -> Iterator[Difference]:
    """What a server says that it has and did not, or has no more."""
    for found in value_differences(old, new, Severity.BREAKING):
        is_more = found.before is ABSENT
        yield found._replace(severity=Severity.ADDITIVE) if is_more else found


def _members(old: object, new: object) -> Iterator[tuple[str, object, object]]:
    """Yield the members that differ; a value that is no object as one member without a name."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield "", old, new
        return
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if not is_same(before, after):
            yield name, before, after


def _member_differences(name: str, before: object, after: object) -> Iterator[Difference]:
    if name in _TEXTS:
        yield Difference((name,), Severity.TEXT, before, after, _TEXTS[name])
    else:
        yield from value_differences(before, after, Severity.BREAKING, (name,) if name else ())


def _by_name(arguments: object) -> Mapping[str, dict[str, object]] | None:
    """Return a prompt's arguments by name; None if one has no name, or another's."""
    if arguments is ABSENT:
        return {}
    if not isinstance(arguments, list):
        return None
    named = {each["name"]: each for each in arguments if isinstance(each, dict) and isinstance(each.get("name"), str)}
    return named if len(named) == len(arguments) else None


def _argument_differences(
    old: Mapping[str, dict[str, object]], new: Mapping[str, dict[str, object]]
) -> Iterator[Difference]:
    olds, news = list(old), list(new)
    for name in sorted(old.keys() | new.keys()):
        path: Path = (_ARGUMENTS, news.index(name) if name in new else olds.index(name))
        noun = f"the argument {quoted(name)}"
        before, after = old.get(name), new.get(name)
        if after is None:
            yield Difference(path, Severity.BREAKING, before, ABSENT, noun)
        elif before is None:
            is_needed = after.get("required") is True
            yield Difference(path, Severity.BREAKING if is_needed else Severity.ADDITIVE, ABSENT, after, noun)
        else:
            yield from _one_argument(before, after, path, noun)
    if olds != news and old.keys() == new.keys():
        yield Difference((_ARGUMENTS,), Severity.TEXT, olds, news, "the order of the arguments")


def _one_argument(before: object, after: object, path: Path, noun: str) -> Iterator[Difference]:
    for name, was, now in _members(before, after):
        if name in _TEXTS:
            yield Difference((*path, name), Severity.TEXT, was, now, f"{_TEXTS[name]} of {noun}")
        elif name == "required":
            severity = Severity.BREAKING if now is True else Severity.ADDITIVE
            yield Difference((*path, name), severity, was, now, f"whether {noun} is required")
        else:
            yield from value_differences(was, now, Severity.BREAKING, (*path, name))
