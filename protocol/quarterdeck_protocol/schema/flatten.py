"""Flatten one node of a schema: follow its references, merge in what `allOf` adds.  Pure; below `portable`.

References can multiply without end, so all work is charged to a budget; what that does not reach is left out, which
only ever admits more.  A document is surveyed once and never changed, nothing is ever fetched, and an answer shares
parts with what it was made of.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import unquote

from .canonical import TYPES, JsonValue, Schema
from .portable_types import CONSTRAINTS, remarks

REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
"""Keywords that apply a schema that stands elsewhere."""

EXCLUSIVE_BOUNDS: Final = frozenset({"exclusiveMinimum", "exclusiveMaximum"})
"""Numbers today; in draft 4, booleans that qualified `minimum` and `maximum`."""


class SchemaDocument:
    """An input schema as the server wrote it; a JSON value that nobody changes while this lives."""

    def __init__(self, root: JsonValue) -> None:
        self._root = root
        self._targets: dict[str, JsonValue] = {}
        self._sizes: dict[int, int] = {}
        self._dependent: set[int] = set()
        self._embeds_documents = False
        self._survey()

    @property
    def lets_references_rule(self) -> bool:
        """Whether a `$ref` silences the keywords beside it, as it does up to draft 7."""
        dialect = self._root.get("$schema") if isinstance(self._root, dict) else None
        return isinstance(dialect, str) and "/draft-0" in dialect

    def size(self, value: JsonValue) -> int:
        """How many JSON values a part of the document holds, itself included; it may be a list made of such parts."""
        if not isinstance(value, dict | list):
            return 1
        return self._sizes.get(id(value)) or 1 + sum(map(self.size, _children(value)))

    def stands_alone(self, value: JsonValue) -> bool:
        """Whether a part of the document means the same when copied: no references, old forms or new parts."""
        return not isinstance(value, dict | list) or (id(value) in self._sizes and id(value) not in self._dependent)

    def target(self, reference: str) -> JsonValue:
        """Return the schema that a JSON pointer names, None if unknown or in a document that embeds others (`$id`)."""
        if self._embeds_documents or not (reference == "#" or reference.startswith("#/")):
            return None
        if reference not in self._targets:
            found = _step_through(self._root, reference.split("/")[1:])
            self._targets[reference] = found if isinstance(found, dict | bool) else None
        return self._targets[reference]

    def _survey(self) -> None:
        """Measure every container, and note those with references or older drafts' forms."""
        containers = [self._root] if isinstance(self._root, dict | list) else []
        for container in containers:  # grows while we walk it: every container stands before those it holds
            containers.extend(child for child in _children(container) if isinstance(child, dict | list))
        for container in reversed(containers):
            children = list(_children(container))
            self._sizes[id(container)] = self.size(container)
            if isinstance(container, dict):
                self._embeds_documents |= isinstance(container.get("$id"), str) and container is not self._root
            if _is_dependent(container) or not all(map(self.stands_alone, children)):
                self._dependent.add(id(container))


def _children(container: Schema | list[JsonValue]) -> Iterable[JsonValue]:
    return container.values() if isinstance(container, dict) else container


def _is_dependent(container: Schema | list[JsonValue]) -> bool:
    if isinstance(container, list):
        return False
    return (
        not REFERENCES.isdisjoint(key for key, value in container.items() if not isinstance(value, dict))
        or isinstance(container.get("items"), list)  # a tuple, up to draft 2019-09
        or any(isinstance(container.get(bound), bool) for bound in EXCLUSIVE_BOUNDS)  # draft 4
    )


def _step_through(value: JsonValue, pointer: Iterable[str]) -> JsonValue:
    for token in pointer:
        key = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 9 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


MAX_NESTED_REFERENCES: Final = 64
"""References followed on the way from the root to one node; people need fewer than ten."""

UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords that read what the parts of their node evaluated, and so mean nothing once those are moved or widened."""

Trail: TypeAlias = tuple[str, ...]
"""The references followed on the way from the root to a node, outermost first."""

_PARTED: Final = REFERENCES | {"allOf"}


class ValueBudget:
    """How many more JSON values may be read or written."""

    def __init__(self, values: int) -> None:
        self._left = values

    @property
    def is_exceeded(self) -> bool:
        """Whether something had to be left out."""
        return self._left < 0

    def affords(self, values: int) -> bool:
        """Spend that many values; after the first no, never again."""
        self._left = self._left - values if self._left >= values else -1
        return self._left >= 0


class Flattener:
    """Flattens nodes of one document; a reference below its own target more than `unrollings` times admits anything."""

    def __init__(self, document: SchemaDocument, unrollings: int, budget: ValueBudget) -> None:
        self._document = document
        self._unrollings = unrollings
        self._budget = budget

    def flatten(self, schema: JsonValue, trail: Trail) -> tuple[Schema, Trail]:
        """Return the reference-free node that admits what a schema admits, and the trail of whatever stands in it.

        An `allOf` stays if one node cannot say it all: as it was, if the node has a type and nothing is referred to.
        """
        if not isinstance(schema, dict):
            return {}, trail
        if schema.keys().isdisjoint(_PARTED):
            return schema, trail
        parts, inner_trail = self._parts(schema, trail)
        whole: Schema = {}
        apart: list[JsonValue] = []
        for part in parts:
            joint = merge(whole, part) if self._budget.affords(_breadth(whole)) else None
            if joint is None:
                apart.append(part)
            else:
                whole = joint
        if not apart:
            return whole, inner_trail
        if _is_typed(schema) and schema.keys().isdisjoint(REFERENCES) and self._document.stands_alone(schema["allOf"]):
            return schema, trail
        return {**whole, "allOf": apart}, inner_trail

    def _parts(self, schema: Schema, trail: Trail) -> tuple[list[Schema], Trail]:
        """Return the nodes that hold together where a schema holds; a reference that comes again adds nothing: cycles
        end by that.
        """
        parts: list[Schema] = []
        followed: dict[str, None] = {}
        pending: list[JsonValue] = [schema]
        while pending:
            part = pending.pop()
            if not isinstance(part, dict) or not self._budget.affords(1 + len(part)):
                continue
            own = {key: value for key, value in part.items() if key not in _PARTED | UNEVALUATED}
            reference, together = part.get("$ref"), part.get("allOf")
            if isinstance(reference, str) and self._document.lets_references_rule:
                own, together = remarks(own), None
            parts.append(own)
            if isinstance(together, list) and self._budget.affords(len(together)):
                pending.extend(reversed(together))
            if isinstance(reference, str) and reference not in followed:
                followed[reference] = None
                pending.append(self._target(reference, trail))
        return parts, (*trail, *followed)

    def _target(self, reference: str, trail: Trail) -> JsonValue:
        if len(trail) >= MAX_NESTED_REFERENCES or trail.count(reference) > self._unrollings:
            return None
        return self._document.target(reference)


def _breadth(node: Schema) -> int:
    """Return the cost of merging into a node: its keys, and what the keywords beneath hold, one level down."""
    return sum(1 + len(value) if isinstance(value, dict | list) else 1 for value in node.values())


def _is_typed(schema: Schema) -> bool:
    return isinstance(schema.get("type"), str) and schema["type"] in TYPES


# Two schemas that hold at once, as one node

_NAMED: Final = frozenset({"properties", "patternProperties", "additionalProperties"})

_TOGETHER: Final = (
    frozenset({"items", "prefixItems", "additionalItems"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"if", "then", "else"}),
)
"""Keywords that read each other: those of two schemas cannot be mixed in one node."""

AT_LEAST: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
AT_MOST: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


def merge(first: Schema, second: Schema) -> Schema | None:
    """Return the node that admits exactly what both admit, or None if one flat node cannot say it.

    Keys and remarks of `first` come first and win. Neither node has references, `allOf` or `unevaluated…` keywords.
    """
    if any(group & first.keys() and group & second.keys() for group in _TOGETHER):
        return None
    if (_closes(first) and _NAMED & second.keys()) or (_closes(second) and _NAMED & first.keys()):
        return None
    both = dict(first)
    for key, value in second.items():
        if key not in both:
            both[key] = value
        elif key in CONSTRAINTS:
            joint = _joint(key, both[key], value)
            if joint is None:
                return None
            both[key] = joint
    return both


def _closes(node: Schema) -> bool:
    """Return whether the properties that a node names decide which others it admits."""
    return node.get("additionalProperties", True) is not True


def _joint(key: str, first: JsonValue, second: JsonValue) -> JsonValue:
    match first, second:
        case dict(), dict() if key == "properties":
            shared: Schema = {name: {"allOf": [first[name], second[name]]} for name in first if name in second}
            return {**first, **second, **shared}
        case list(), list() if key == "required":
            return list(dict.fromkeys(name for name in [*first, *second] if isinstance(name, str)))
        case list(), list() if key == "enum":
            return _common_choices(first, second)
        case ((str() | list()), (str() | list())) if key == "type":
            return _common_types(first, second)
        case bool(), bool() if key == "uniqueItems":
            return first or second
        case ((int() | float()), (int() | float())) if key in AT_LEAST:
            return max(first, second)
        case ((int() | float()), (int() | float())) if key in AT_MOST:
            return min(first, second)
        case ((str() | bool() | int() | float()), _) if type(first) is type(second) and first == second:
            return first
    return None


def _common_choices(first: list[JsonValue], second: list[JsonValue]) -> list[JsonValue] | None:
    """Return the common scalars; None if there are none, or a choice is a container and so perhaps too deep."""
    if any(isinstance(choice, dict | list) for choice in (*first, *second)):
        return None
    known = {(isinstance(choice, bool), choice) for choice in second}  # JSON's true is not 1
    return [choice for choice in first if (isinstance(choice, bool), choice) in known] or None


def _common_types(first: JsonValue, second: JsonValue) -> JsonValue:
    common: list[JsonValue] = [kind for kind in TYPES if _admits(first, kind) and _admits(second, kind)]
    if "number" in common:
        common.remove("integer")
    return common[0] if len(common) == 1 else common or None


def _admits(declared: JsonValue, kind: str) -> bool:
    kinds = declared if isinstance(declared, list) else [declared]
    return kind in kinds or (kind == "integer" and "number" in kinds)
