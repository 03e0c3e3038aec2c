"""What providers limit in a schema as a whole: how much of it there is, and whether it comes back to itself.

Below `outside`, which walks the schema and notes each node here once.  Pure.
"""

from typing import Final

from quarterdeck_protocol.schema.canonical import JsonValue, Schema
from quarterdeck_protocol.schema.flatten import SchemaDocument

from .subsets import Subset

_DEFINITIONS: Final = ("$defs", "definitions")
"""Keywords whose schemas are applied only where something refers to them."""


class Totals:
    """The sums over the nodes of one schema.  References are counted where they stand, not where they lead."""

    def __init__(self, root: Schema) -> None:
        self._document = SchemaDocument(root)
        self._applied: dict[int, list[int]] = {}
        self._properties = self._optional = self._unions = self._choices = self._text = 0

    def note(self, node: Schema, inner: list[tuple[str, JsonValue]]) -> None:
        """Count one node of the document; `inner` are the schemas in it, each with the keyword that holds it."""
        named, needed, listed = node.get("properties"), node.get("required"), node.get("enum")
        properties = named if isinstance(named, dict) else {}
        required = {name for name in needed if isinstance(name, str)} if isinstance(needed, list) else set[str]()
        choices = listed if isinstance(listed, list) else []
        self._properties += len(properties)
        self._optional += len(properties.keys() - required)
        self._unions += sum(map(_is_union, properties.values()))
        self._choices += len(choices)
        definitions = [word for key in _DEFINITIONS if isinstance(kept := node.get(key), dict) for word in kept]
        words = (*properties, *definitions, *choices, node.get("const"))
        self._text += sum(len(word) for word in words if isinstance(word, str))
        applied = [id(schema) for keyword, schema in inner if keyword not in _DEFINITIONS]
        reference = node.get("$ref")
        if isinstance(reference, str) and isinstance(target := self._document.target(reference), dict):
            applied.append(id(target))
        self._applied[id(node)] = applied

    def exceeded(self, subset: Subset) -> int:
        """How many limits are exceeded."""
        limits = (
            (self._properties, subset.most_properties),
            (self._optional, subset.most_optional),
            (self._unions, subset.most_unions),
            (self._choices, subset.most_choices),
            (self._text, subset.most_text),
        )
        return sum(most is not None and count > most for count, most in limits)

    def recurses(self) -> bool:
        """Whether a schema applies itself by way of others: take away, again and again, what nothing left applies."""
        appliers = dict.fromkeys(self._applied, 0)
        for targets in self._applied.values():
            for target in targets:
                if target in appliers:
                    appliers[target] += 1
        free = [one for one, count in appliers.items() if not count]
        for one in free:  # grows while we walk it
            for target in self._applied[one]:
                if target in appliers:
                    appliers[target] -= 1
                    if not appliers[target]:
                        free.append(target)
        return len(free) < len(self._applied)


def _is_union(schema: JsonValue) -> bool:
    return isinstance(schema, dict) and ("anyOf" in schema or isinstance(schema.get("type"), list))
