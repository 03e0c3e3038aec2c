"""Judge plain values by a model, and find everything that is wrong with them, not only the first thing.  Pure.

A model tells of one unknown key and then looks no further: what is left is judged without it.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar, get_args

from pydantic import ValidationError

from quarterdeck_protocol.policy import FrozenModel

from .problems import Problem, at, complaints, describe, unknown_key

M = TypeVar("M", bound=FrozenModel)


def judge(model: type[M], fields: Mapping[str, object], location: str) -> tuple[M | None, tuple[Problem, ...]]:
    """The values as the model has them, None unless they are right; and what is wrong, what a person sees first first.

    Beyond the model, a number that is written as true or false is wrong: to the model it is 1 or 0.
    """
    try:
        value = model.model_validate(fields)
    except ValidationError as error:
        found = complaints(error, location)
    else:
        found = tuple(_booleans(fields, location))
        return (value, ()) if not found else (None, found)
    rest, strangers = _without_strangers(model, fields, location)
    try:
        model.model_validate(rest)
    except ValidationError as error:
        strangers += complaints(error, location)
    # The model's own words for an unknown key do not say which key is near.
    by_text = {str(problem): problem for problem in strangers}
    found = tuple(by_text.pop(str(problem), problem) for problem in found) + tuple(by_text.values())
    places = {problem.location for problem in found}
    return None, found + tuple(each for each in _booleans(rest, location) if each.location not in places)


def _without_strangers(
    model: type[FrozenModel], fields: Mapping[str, object], location: str
) -> tuple[dict[str, object], tuple[Problem, ...]]:
    """The fields without keys that the model, or one in it, does not know; and these."""
    known: dict[str, object] = {}
    strangers: list[Problem] = []
    for key, value in fields.items():
        if key not in model.model_fields:
            strangers.append(unknown_key(location, key, model.model_fields))
            continue
        inner = model_in(model.model_fields[key].annotation)
        if inner is not None and isinstance(value, Mapping):
            known[key], found = _without_strangers(inner, value, at(location, key))
            strangers += found
        else:
            known[key] = value
    return known, tuple(strangers)


def model_in(annotation: object) -> type[FrozenModel] | None:
    """The model that a field of this type holds, if it holds one."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, FrozenModel):
            return each
    return None


def _booleans(fields: Mapping[str, object], location: str) -> Iterator[Problem]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _booleans(value, at(location, key))
        elif isinstance(value, bool) and key != "legacy_only":
            yield Problem(at(location, key), f"expected a number, got {describe(value)}")
