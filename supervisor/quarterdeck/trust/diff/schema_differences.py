"""How two JSON Schemas of one tool differ, and whether that can break a client.  Pure, total, without recursion.

An input schema that accepts more breaks no caller, one that accepts less may; an output schema is the other way round,
since the client reads what the server writes.  Arguments that may be left out, and members that an output gains, are
additive: callers are taken to send, and readers to read, what is declared.  Below `not`, `oneOf`, `if` and unknown
keywords nobody can tell whether more or less is accepted: there every change counts as breaking.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

from quarterdeck_protocol.schema.flatten import AT_LEAST, AT_MOST

from .values import ABSENT, MAX_DEPTH, Difference, Path, Severity, is_same, member, quoted, spelling


class Side(StrEnum):
    """Who writes the values that a schema describes."""

    INPUT = "input"
    """The client: a schema that accepts more is additive."""
    OUTPUT = "output"
    """The server: a schema that accepts less is additive."""
    UNSURE = "unsure"
    """Whether more or less is accepted cannot be told."""


def schema_differences(old: object, new: object, side: Side, path: Path) -> Iterator[Difference]:
    """How `new` differs from `old`, keyword by keyword."""
    if _refers_from_doubt(old) or _refers_from_doubt(new):
        side = Side.UNSURE
    pairs = [_Pair(old, new, side, path, ())]
    while pairs:
        pair = pairs.pop()
        found: list[_Pair] = []
        for item in _compare(pair):
            if isinstance(item, _Pair):
                found.append(item)
            else:
                yield item
        pairs += reversed(found)


class _Pair(NamedTuple):
    old: object
    new: object
    side: Side
    path: Path
    owner: Path

    def at(self, key: str) -> "_Pair":
        return self._replace(old=_below(self.old, key), new=_below(self.new, key), path=(*self.path, key))


_Found = Iterator[Difference | _Pair]

_TEXTS: Final = frozenset({"title", "description", "$comment", "examples", "deprecated"})
"""Words for readers, ignored by validators."""

_REMARKS: Final = _TEXTS | {"default"}
"""What may stand beside a union without narrowing it."""

_DOUBTFUL: Final = frozenset({"not", "if", "then", "else", "contains", "propertyNames", "oneOf"})
_DOUBTFUL_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "dependencies"})
"""Below these, what is accepted in one place may be refused in another."""

_UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""They depend on every keyword beside them."""


def _compare(pair: _Pair) -> _Found:
    old, new = pair.old, pair.new
    if old is new:
        return
    if not _are_objects(pair) or len(pair.path) >= MAX_DEPTH:
        yield from _compare_whole(pair)
        return
    keys = _names(pair)
    if not _UNEVALUATED.isdisjoint(keys):
        pair = pair._replace(side=Side.UNSURE)
    pair = _lift(pair)
    yield from _members(pair)
    for key in _names(pair):
        if key not in {"properties", "required"}:
            yield from _keyword(pair, key)


def _compare_whole(pair: _Pair) -> _Found:
    """Schemas that are no objects, one that is defined newly or no more, and what is nested too deep."""
    if is_same(pair.old, pair.new):
        return
    if pair.old is ABSENT:
        is_wider: bool | None = pair.side is Side.INPUT
    elif pair.new is ABSENT or (isinstance(pair.old, dict) and pair.old.get("properties")):
        is_wider = None
    else:
        is_wider = opens(pair.old, pair.new)
    yield _difference(pair, _severity(pair.side, is_wider))


def _keyword(pair: _Pair, key: str) -> _Found:
    child = pair.at(key)
    if key in {"$defs", "definitions"} | _DOUBTFUL_MAPS and _are_maps(child):
        side = Side.UNSURE if key in _DOUBTFUL_MAPS else pair.side
        yield from (child.at(name)._replace(side=side) for name in _names(child))
    elif key in {"items", "additionalProperties"} | _DOUBTFUL and _are_objects(child):
        owner = (*pair.owner, "[]") if key == "items" else pair.owner
        yield child._replace(side=Side.UNSURE if key in _DOUBTFUL else pair.side, owner=owner)
    elif (
        key in {"anyOf", "allOf", "oneOf", "prefixItems"}
        and isinstance(child.old, list)
        and isinstance(child.new, list)
    ):
        yield from _alternatives(child, key)
    elif is_same(child.old, child.new) or is_same_choice(key, child.old, child.new):
        return
    elif key in _TEXTS:
        yield _difference(child, Severity.TEXT, _named(key))
    elif key == "default":
        # Who leaves a member away gets another value now; who reads an output never sees one.
        yield _difference(child, Severity.TEXT if pair.side is Side.OUTPUT else Severity.BREAKING, _named(key))
    elif key == "additionalProperties" and pair.side is Side.OUTPUT:
        # An output that closes may lose what clients read; one that opens gains what they ignore.
        yield _difference(child, _severity(Side.INPUT, widens(key, child.old, child.new)), _named(key))
    else:
        yield _difference(child, _severity(pair.side, widens(key, child.old, child.new)), _named(key))


def _members(pair: _Pair) -> _Found:
    properties, required = pair.at("properties"), pair.at("required")
    before, after = string_set(required.old), string_set(required.new)
    told: set[str] = set()
    if _are_maps(properties):
        for name in _names(properties):
            child = properties.at(name)._replace(owner=(*pair.owner, name))
            if child.old is not ABSENT and child.new is not ABSENT:
                yield child
                continue
            told.add(name)
            is_demanded = child.old is ABSENT and after is not None and name in after and pair.side is Side.INPUT
            is_harmless = child.old is ABSENT and not is_demanded and pair.side is not Side.UNSURE
            severity = Severity.ADDITIVE if is_harmless else Severity.BREAKING
            yield _difference(child, severity, verb="is new, and required" if is_demanded else "")
    elif not is_same(properties.old, properties.new):
        yield _difference(properties, Severity.BREAKING, _named("properties"))
    if before is None or after is None:
        if not is_same(required.old, required.new):
            yield _difference(required, Severity.BREAKING, _named("required"))
        return
    for name in sorted((before ^ after) - told):
        is_freed = name in before
        verb = "is no longer required" if is_freed else "is required now"
        one = required._replace(owner=(*pair.owner, name))
        yield _difference(one, _severity(pair.side, is_freed), verb=verb)


def _alternatives(pair: _Pair, key: str) -> _Found:
    """Compare the schemas of a union or an intersection: equal ones cancel out, the others pair up in order."""
    old, new = _sequence(pair.old), _sequence(pair.new)
    left, right = list(range(len(old))), list(range(len(new)))
    if key != "prefixItems":
        left, right = _unmatched(old, new)
    side = Side.UNSURE if key in {"oneOf", "prefixItems"} else pair.side
    for one, other in zip(left, right, strict=False):
        yield _Pair(old[one], new[other], side, (*pair.path, other), pair.owner)
    is_union = key != "allOf"
    noun = "an alternative" if is_union else "a condition"
    paired = min(len(left), len(right))
    for index in left[paired:]:
        gone = pair._replace(old=old[index], new=ABSENT, path=(*pair.path, index))
        yield _difference(gone, _severity(side, not is_union), noun)
    for index in right[paired:]:
        come = pair._replace(old=ABSENT, new=new[index], path=(*pair.path, index))
        yield _difference(come, _severity(side, is_union), noun)


def _unmatched(old: Sequence[object], new: Sequence[object]) -> tuple[list[int], list[int]]:
    places: dict[bytes, deque[int]] = {}
    for index, schema in enumerate(new):
        places.setdefault(spelling(schema), deque()).append(index)
    left: list[int] = []
    for index, schema in enumerate(old):
        if equals := places.get(spelling(schema)):
            equals.popleft()
        else:
            left.append(index)
    return left, sorted(chain.from_iterable(places.values()))


def _lift(pair: _Pair) -> _Pair:
    """Treat a plain schema as a union of one if the other is nothing but a union: it became nullable."""
    old, new = pair.old, pair.new
    if isinstance(old, dict) and isinstance(new, dict) and ("anyOf" in old) != ("anyOf" in new):
        union, plain = (old, new) if "anyOf" in old else (new, old)
        remarks = {key: plain[key] for key in plain if key in _REMARKS}
        if union.keys() <= {"anyOf"} | _REMARKS and len(remarks) < len(plain):
            single = {**remarks, "anyOf": [{key: plain[key] for key in plain if key not in _REMARKS}]}
            return pair._replace(old=old if union is old else single, new=new if union is new else single)
    return pair


def _severity(side: Side, is_wider: bool | None) -> Severity:
    if side is Side.UNSURE or is_wider is None:
        return Severity.BREAKING
    return Severity.ADDITIVE if is_wider is (side is Side.INPUT) else Severity.BREAKING


def _difference(pair: _Pair, severity: Severity, what: str = "", *, verb: str = "") -> Difference:
    whole, part = ("its output", "result") if pair.path[:1] == ("outputSchema",) else ("its input", "argument")
    noun = f"{part} {member(pair.owner)}" if pair.owner else whole
    if what:
        noun = f"{what} of {noun}"
    elif not pair.owner:
        noun = f"the schema of {whole}" if len(pair.path) == 1 else f"{member(pair.path[-1:])} of {whole}"
    return Difference(pair.path, severity, pair.old, pair.new, noun, verb)


def _named(key: str) -> str:
    return _WORDS.get(key) or quoted(key)


_WORDS: Final = {
    "title": "the title",
    "description": "the description",
    "examples": "the examples",
    "default": "the default value",
    "type": "the type",
    "enum": "the list of allowed values",
    "const": "the only allowed value",
    "pattern": "the pattern",
    "format": "the format",
    "minimum": "the minimum",
    "maximum": "the maximum",
    "exclusiveMinimum": "the exclusive minimum",
    "exclusiveMaximum": "the exclusive maximum",
    "multipleOf": "the required divisor",
    "minLength": "the minimum length",
    "maxLength": "the maximum length",
    "minItems": "the minimum number of elements",
    "maxItems": "the maximum number of elements",
    "uniqueItems": "the rule that elements are unique",
    "items": "the schema of the elements",
    "minProperties": "the minimum number of members",
    "maxProperties": "the maximum number of members",
    "properties": "the list of members",
    "required": "the list of required members",
    "additionalProperties": "the rule for additional members",
}


def _refers_from_doubt(schema: object) -> bool:
    """Return whether a definition is used where its sense cannot be told."""
    pending: list[tuple[object, bool]] = [(schema, False)]
    while pending:
        node, is_doubtful = pending.pop()
        if isinstance(node, dict):
            if is_doubtful and "$ref" in node:
                return True
            doubtful = _DOUBTFUL | _DOUBTFUL_MAPS | {"prefixItems"}
            pending += [(child, is_doubtful or key in doubtful) for key, child in node.items()]
        elif isinstance(node, list):
            pending += [(child, is_doubtful) for child in node]
    return False


def _below(schema: object, key: str) -> object:
    return schema.get(key, ABSENT) if isinstance(schema, dict) else ABSENT


def _names(pair: _Pair) -> list[str]:
    names: set[str] = set()
    for each in (pair.old, pair.new):
        if isinstance(each, dict):
            names |= each.keys()
    return sorted(names)


def _are_objects(pair: _Pair) -> bool:
    return isinstance(pair.old, dict) and isinstance(pair.new, dict)


def _are_maps(pair: _Pair) -> bool:
    """Return whether both are objects; one may be absent."""
    return all(each is ABSENT or isinstance(each, dict) for each in (pair.old, pair.new))


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


_FILTERS: Final = frozenset(
    {"enum", "type", "pattern", "format", "multipleOf", "const", "anyOf", "allOf", "oneOf", "not"}
)
"""Without them more is accepted; `$ref` is none of them, since old drafts ignore what stands beside it."""


def widens(key: str, old: object, new: object) -> bool | None:
    """Whether more passes `new` than passed `old`, values of `key` that differ; None when nobody can tell."""
    if key in AT_LEAST | AT_MOST:
        if not (_is_bound(old) and _is_bound(new)):
            return None
        if isinstance(old, int | float) and isinstance(new, int | float):
            return new <= old if key in AT_LEAST else new >= old
        return new is ABSENT
    if key == "uniqueItems":
        return new is ABSENT or new is False
    if key in {"items", "additionalProperties"}:
        return opens(old, new)
    if key in _FILTERS and (old is ABSENT or new is ABSENT):
        return new is ABSENT
    before, after = _choices(key, old), _choices(key, new)
    if before is None or after is None or not (before <= after or after <= before):
        return None
    return before <= after


def is_same_choice(key: str, old: object, new: object) -> bool:
    """Whether `old` and `new`, values of `key`, name the same choices in another order."""
    before = _choices(key, old)
    return before is not None and before == _choices(key, new)


def opens(old: object, new: object) -> bool | None:
    """Whether a schema that is a boolean, or missing, or becomes so, lets more pass; None when it is neither."""
    ranks = [2 if each in (ABSENT, True) or each == {} else 0 if each is False else 1 for each in (old, new)]
    return None if ranks == [1, 1] else ranks[1] >= ranks[0]


def string_set(value: object) -> frozenset[str] | None:
    """The strings of an array; none of a missing one; None of what is no array of strings."""
    if value is ABSENT:
        return frozenset()
    if not isinstance(value, list):
        return None
    texts = frozenset(each for each in value if isinstance(each, str))
    return texts if all(isinstance(each, str) for each in value) else None


def _choices(key: str, value: object) -> frozenset[str] | frozenset[bytes] | None:
    if value is ABSENT:
        return None
    if key == "enum":
        return frozenset(map(spelling, value)) if isinstance(value, list) else None
    if key != "type":
        return None
    types = string_set([value] if isinstance(value, str) else value)
    return types | {"integer"} if types and "number" in types else types


def _is_bound(value: object) -> bool:
    return value is ABSENT or (isinstance(value, int | float) and not isinstance(value, bool))
