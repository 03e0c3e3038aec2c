"""One node out of a schema, the references that it makes and the schemas that `allOf` adds to it.

Below `portable`.  Pure.  References can multiply without end, so all work is charged to a budget; what that does not
reach is left out, which only ever admits more.
"""

from typing import Final, TypeAlias

from quarterdeck_protocol.portable_merge import merge
from quarterdeck_protocol.portable_refs import REFERENCES, Document
from quarterdeck_protocol.portable_types import remarks
from quarterdeck_protocol.schema import TYPES, JsonValue, Schema

MAX_NESTED_REFERENCES: Final = 64
"""References followed on the way from the root to one node; people need fewer than ten."""

UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords that read what the parts of their node evaluated, and so mean nothing once those are moved or widened."""

Trail: TypeAlias = tuple[str, ...]
"""The references followed on the way from the root to a node, outermost first."""

_PARTED: Final = REFERENCES | {"allOf"}


class Budget:
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
    """Flattens nodes of one document.

    Args:
        unrollings: how often a reference may come back below its own target; beyond, it admits anything.
    """

    def __init__(self, document: Document, unrollings: int, budget: Budget) -> None:
        self._document = document
        self._unrollings = unrollings
        self._budget = budget

    def flatten(self, schema: JsonValue, trail: Trail) -> tuple[Schema, Trail]:
        """The node that admits what a schema admits, without references, and the trail of whatever stands in it.

        An `allOf` stays where one node cannot say it all: as it was, if the node has a type and nothing is referred to.
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
        """The nodes that hold together where a schema holds.

        A reference that comes again at the same node adds nothing: cycles without a level between end by that.
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
    """What merging into a node costs: its keys and what the keywords beneath hold, one level down."""
    return sum(1 + len(value) if isinstance(value, dict | list) else 1 for value in node.values())


def _is_typed(schema: Schema) -> bool:
    return isinstance(schema.get("type"), str) and schema["type"] in TYPES
