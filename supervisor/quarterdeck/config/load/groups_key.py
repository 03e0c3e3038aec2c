"""The key `groups` of a configuration file: named parts of what is offered, see `config.groups`.  Pure."""

from typing import Final

from quarterdeck.config.groups import Group, is_group_name

from .document import GROUPS_KEY, JsonObject
from .problems import Problem, Problems, RowError, at, describe, judge

_NAMES: Final = "up to 64 letters, digits, '_' and '-', the first a letter or digit"


def examine_groups(document: JsonObject) -> tuple[dict[str, Group], tuple[Problem, ...]]:
    """The groups that a file describes, without those that cannot be used, and what is wrong with these."""
    problems = Problems()
    groups: dict[str, Group] = {}
    value = document.get(GROUPS_KEY)
    if value is None:
        return groups, ()
    if not isinstance(value, JsonObject):
        return groups, (Problem(GROUPS_KEY, f"expected an object, got {describe(value)}"),)
    for name, written in value.items():
        with problems.kept():
            group, found = _group(name, written, value)
            problems += found
            if group is not None:
                groups[name] = group
    return groups, tuple(problems)


def _group(name: str, written: object, among: JsonObject) -> tuple[Group | None, tuple[Problem, ...]]:
    place = at(GROUPS_KEY, name)
    if not is_group_name(name):
        raise RowError(place, f"cannot be a group's name: {_NAMES}")
    if any(name == key for key, _ in among.repeated):
        raise RowError(place, "appears more than once")
    if not isinstance(written, JsonObject):
        raise RowError(place, f"expected an object, got {describe(written)}")
    if written.repeated:
        raise RowError(place, f"the key {written.repeated[0][0]!r} appears more than once")
    return judge(Group, {key: value for key, value in written.items() if value is not None}, place)
