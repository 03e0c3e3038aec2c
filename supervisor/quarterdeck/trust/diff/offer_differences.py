"""How the definition of a prompt, a resource, a template, or what a server says that it has, differs.  Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from .values import ABSENT, Difference, Path, Severity, is_same, quoted, value_differences

_WORDS: Final = {
    "title": "the title",
    "description": "the description",
    "icons": "the icons",
    "annotations": "the annotations",
}
"""Members that are for people and models to read: what was asked before means what it did."""

_ARGUMENTS: Final = "arguments"


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
    """The members that differ; of what is no object, the whole as one without a name."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield "", old, new
        return
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if not is_same(before, after):
            yield name, before, after


def _member_differences(name: str, before: object, after: object) -> Iterator[Difference]:
    if name in _WORDS:
        yield Difference((name,), Severity.TEXT, before, after, _WORDS[name])
    else:
        yield from value_differences(before, after, Severity.BREAKING, (name,) if name else ())


def _by_name(arguments: object) -> Mapping[str, dict[str, object]] | None:
    """A prompt's arguments by name; None where one has none, or one has another's."""
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
        if name in _WORDS:
            yield Difference((*path, name), Severity.TEXT, was, now, f"{_WORDS[name]} of {noun}")
        elif name == "required":
            severity = Severity.BREAKING if now is True else Severity.ADDITIVE
            yield Difference((*path, name), severity, was, now, f"whether {noun} is required")
        else:
            yield from value_differences(was, now, Severity.BREAKING, (*path, name))
