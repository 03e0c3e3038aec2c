"""Where a tool's schema falls outside what a model provider says it takes.

What is taken stands in `subsets`, with the documents it was read from and what they leave open.  Pure.
"""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from quarterdeck_protocol.schema.canonical import JsonValue, Schema
from quarterdeck_protocol.schema.flatten import SchemaDocument
from quarterdeck_protocol.schema.portable_types import type_of

from .shapes import misshapen
from .subsets import SUBSETS, Provider, Subset

__all__ = ["Outside", "Provider", "Rule", "outside"]


class Rule(StrEnum):
    """What a schema may break."""

    ROOT_TYPE = "root-type"
    ROOT_WORD = "root-word"
    ROOT_PROPERTIES = "root-properties"
    KEYWORD = "keyword"
    SHAPE = "shape"
    BOOLEAN = "boolean-schema"
    UNTYPED = "untyped"
    TYPE_LIST = "type-list"
    ITEMS = "items"
    EMPTY_OBJECT = "empty-object"
    OPEN_OBJECT = "open-object"
    OPTIONAL = "optional"
    UNDECLARED = "undeclared"
    UNION = "union"
    REFERENCE = "reference"
    RECURSION = "recursion"
    FORMAT = "format"
    CHOICE = "choice"
    NAME = "name"
    BOUND = "bound"
    PATTERN = "pattern"
    LIMIT = "limit"


WORDS: Final = {
    Rule.ROOT_TYPE: 'the root must say "type": "object"',
    Rule.ROOT_WORD: "this word may not stand at the root",
    Rule.ROOT_PROPERTIES: "the root must have properties",
    Rule.KEYWORD: "it does not know this word",
    Rule.SHAPE: "the word's value is of the wrong kind",
    Rule.BOOLEAN: "true and false are taken for no schema",
    Rule.UNTYPED: "a type is missing",
    Rule.TYPE_LIST: "type must be one word, not a list",
    Rule.ITEMS: "an array must say what its items are",
    Rule.EMPTY_OBJECT: "an object must have properties",
    Rule.OPEN_OBJECT: "an object must refuse further properties",
    Rule.OPTIONAL: "an object must require all its properties",
    Rule.UNDECLARED: "required names what is no property",
    Rule.UNION: "nothing may stand beside anyOf",
    Rule.REFERENCE: "this $ref is not taken, or not beside other words",
    Rule.RECURSION: "a $ref leads back to where it stands",
    Rule.FORMAT: "it does not know this format for the type",
    Rule.CHOICE: "enum holds a value of a kind that it does not take there",
    Rule.NAME: "a property may not be called so",
    Rule.BOUND: "this minItems is not taken",
    Rule.PATTERN: "this pattern is not taken",
    Rule.LIMIT: "it is too large, too deep, or has too many parts",
}

_LEFT_OUT_BY_CLIENTS: Final = frozenset({"$schema", "additionalProperties", "title"})
"""Words that Gemini does not know."""


class Outside(NamedTuple):
    """One place where a schema is not what a provider takes: the way to it, from the root."""

    rule: Rule
    steps: tuple[str, ...] = ()

    @property
    def is_mended_by_clients(self) -> bool:
        """Whether whoever speaks to the provider leaves it out: remarks, no arguments at all, Vertex's own rule."""
        match self.rule:
            case Rule.KEYWORD:
                return self.steps[-1] in _LEFT_OUT_BY_CLIENTS
            case Rule.EMPTY_OBJECT:
                return not self.steps
            case _:
                return self.rule is Rule.UNION


def outside(schema: object, provider: Provider) -> tuple[Outside, ...]:
    """Return every place where a tool's input schema is outside a provider's subset, the outermost first.

    Total: what is not an object counts as `{}`. Empty is no promise: see `subsets` for what nobody publishes.
    """
    root: Schema = schema if isinstance(schema, dict) else {}
    return tuple(_Visit(root, SUBSETS[provider]).found())


class _Place(NamedTuple):
    schema: JsonValue
    steps: tuple[str, ...] = ()
    depth: int = 1
    levels: int = 0


class _Visit:
    def __init__(self, root: Schema, subset: Subset) -> None:
        self._root = root
        self._subset = subset
        self._totals = _Totals(root)

    def found(self) -> Iterator[Outside]:
        yield from self._at_root()
        pending = deque([_Place(self._root)])
        while pending:
            place = pending.popleft()
            if not isinstance(place.schema, dict):
                if not self._subset.boolean_schemas:
                    yield Outside(Rule.BOOLEAN, place.steps)
                continue
            yield from self._at(place, place.schema)
            inner = list(self._inside(place, place.schema))
            self._totals.note(place.schema, [(each.steps[len(place.steps)], each.schema) for each in inner])
            pending.extend(inner)
        for _ in range(self._totals.exceeded(self._subset)):
            yield Outside(Rule.LIMIT)
        if not self._subset.recursion and self._totals.recurses():
            yield Outside(Rule.RECURSION)

    def _at_root(self) -> Iterator[Outside]:
        if self._root.get("type") != "object":
            yield Outside(Rule.ROOT_TYPE)
        for keyword in self._root:
            if keyword in self._subset.not_at_root:
                yield Outside(Rule.ROOT_WORD, (keyword,))
        if self._subset.root_properties and "properties" not in self._root:
            yield Outside(Rule.ROOT_PROPERTIES)
        named = self._root.get("properties")
        for name in named if self._subset.names is not None and isinstance(named, dict) else ():
            if self._subset.names is not None and not self._subset.names.fullmatch(name):
                yield Outside(Rule.NAME, ("properties", name))

    def _at(self, place: _Place, node: Schema) -> Iterator[Outside]:
        subset = self._subset
        for keyword in misshapen(node):
            yield Outside(Rule.SHAPE, (*place.steps, keyword))
        for keyword in node:
            if subset.keywords is not None and keyword not in subset.keywords:
                yield Outside(Rule.KEYWORD, (*place.steps, keyword))
        for rule in (*self._of_type(node), *self._of_object(node), *self._of_values(node)):
            yield Outside(rule, place.steps)
        if subset.most_depth is not None and place.depth == subset.most_depth + 1:
            yield Outside(Rule.LIMIT, place.steps)
        if subset.most_levels is not None and _is_object(node) and place.levels == subset.most_levels:
            yield Outside(Rule.LIMIT, place.steps)

    def _of_type(self, node: Schema) -> Iterator[Rule]:
        subset, kind = self._subset, node.get("type")
        if subset.instead_of_type is not None and kind is None and subset.instead_of_type.isdisjoint(node):
            yield Rule.UNTYPED
        if not subset.type_lists and isinstance(kind, list):
            yield Rule.TYPE_LIST
        if subset.array_items and kind == "array" and "items" not in node:
            yield Rule.ITEMS
        if subset.lone_unions and "anyOf" in node and len(node) > 1:
            yield Rule.UNION
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return
        if subset.lone_references and any(not word.startswith("$") for word in node):
            yield Rule.REFERENCE
        if not subset.remote_references and not reference.startswith("#"):
            yield Rule.REFERENCE

    def _of_object(self, node: Schema) -> Iterator[Rule]:
        if not _is_object(node):
            return
        subset = self._subset
        names = properties if isinstance(properties := node.get("properties"), dict) else {}
        required = needed if isinstance(needed := node.get("required"), list) else []
        if not subset.empty_objects and not names:
            yield Rule.EMPTY_OBJECT
        if subset.closed_objects and node.get("additionalProperties") is not False:
            yield Rule.OPEN_OBJECT
        if subset.all_required and not names.keys() <= {name for name in required if isinstance(name, str)}:
            yield Rule.OPTIONAL
        if subset.declared_required and any(isinstance(name, str) and name not in names for name in required):
            yield Rule.UNDECLARED

    def _of_values(self, node: Schema) -> Iterator[Rule]:
        subset = self._subset
        form, declared = node.get("format"), node.get("type")
        kinds = declared if isinstance(declared, list) else [declared]
        if isinstance(form, str) and not subset.takes_format(form, kinds):
            yield Rule.FORMAT
        choices = listed if isinstance(listed := node.get("enum"), list) else []
        if subset.enum_kinds is not None and not {*map(type_of, choices)} <= subset.enum_kinds:
            yield Rule.CHOICE
        if not subset.enum_empty and "" in choices:
            yield Rule.CHOICE
        text = sum(len(choice) for choice in choices if isinstance(choice, str))
        if subset.most_choice_text is not None and len(choices) > subset.long_list and text > subset.most_choice_text:
            yield Rule.LIMIT
        least = node.get("minItems")
        if subset.least_items is not None and isinstance(least, int) and least not in subset.least_items:
            yield Rule.BOUND
        pattern = node.get("pattern")
        if subset.refused_pattern is not None and isinstance(pattern, str) and subset.refused_pattern.search(pattern):
            yield Rule.PATTERN

    def _inside(self, place: _Place, node: Schema) -> Iterator[_Place]:
        """Yield the schemas in a node, below accepted keywords."""
        depth, levels = place.depth + 1, place.levels + _is_object(node)
        for keyword, value in node.items():
            if self._subset.keywords is not None and keyword not in self._subset.keywords:
                continue
            if keyword in _HOLD_ONE and isinstance(value, dict | bool):
                if not (keyword == "additionalProperties" and isinstance(value, bool)):
                    yield _Place(value, (*place.steps, keyword), depth, levels)
            elif keyword in _HOLD_LIST and isinstance(value, list):
                for index, child in enumerate(value):
                    yield _Place(child, (*place.steps, keyword, str(index)), depth, levels)
            elif keyword in _HOLD_MAP and isinstance(value, dict):
                for name, child in value.items():
                    yield _Place(child, (*place.steps, keyword, name), depth, levels)


_HOLD_ONE: Final = frozenset(
    {"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"}
)
_HOLD_LIST: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_HOLD_MAP: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})


def _is_object(node: Schema) -> bool:
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or (kind is None and "properties" in node)


_DEFINITIONS: Final = ("$defs", "definitions")
"""Keywords whose schemas are applied only where something refers to them."""


class _Totals:
    """The sums over one schema's nodes; references are counted where they stand, not where they lead."""

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
        limits = (
            (self._properties, subset.most_properties),
            (self._optional, subset.most_optional),
            (self._unions, subset.most_unions),
            (self._choices, subset.most_choices),
            (self._text, subset.most_text),
        )
        return sum(most is not None and count > most for count, most in limits)

    def recurses(self) -> bool:
        """Return whether a schema applies itself by way of others: remove, repeatedly, what nothing left applies."""
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
