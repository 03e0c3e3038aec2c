"""Where a tool's schema falls outside what a model provider says it takes.

What is taken stands in `subsets`, with the documents it was read from and what they leave open.  Pure.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Self

from quarterdeck_protocol.schema.canonical import TYPES, JsonValue, Schema
from quarterdeck_protocol.schema.flatten import SchemaDocument
from quarterdeck_protocol.schema.portable_types import type_of

from .subsets import SUBSETS, Provider, Subset

__all__ = ["Outside", "Provider", "Rule", "misshapen", "outside"]


class Rule(StrEnum):
    """What a schema may break; `words` says it for people."""

    words: str

    ROOT_TYPE = "root-type", 'the root must say "type": "object"'
    ROOT_WORD = "root-word", "this word may not stand at the root"
    ROOT_PROPERTIES = "root-properties", "the root must have properties"
    KEYWORD = "keyword", "it does not know this word"
    SHAPE = "shape", "the word's value is of the wrong kind"
    BOOLEAN = "boolean-schema", "true and false are taken for no schema"
    UNTYPED = "untyped", "a type is missing"
    TYPE_LIST = "type-list", "type must be one word, not a list"
    ITEMS = "items", "an array must say what its items are"
    EMPTY_OBJECT = "empty-object", "an object must have properties"
    OPEN_OBJECT = "open-object", "an object must refuse further properties"
    OPTIONAL = "optional", "an object must require all its properties"
    UNDECLARED = "undeclared", "required names what is no property"
    UNION = "union", "nothing may stand beside anyOf"
    REFERENCE = "reference", "this $ref is not taken, or not beside other words"
    RECURSION = "recursion", "a $ref leads back to where it stands"
    FORMAT = "format", "it does not know this format for the type"
    CHOICE = "choice", "enum holds a value of a kind that it does not take there"
    NAME = "name", "a property may not be called so"
    BOUND = "bound", "this minItems is not taken"
    PATTERN = "pattern", "this pattern is not taken"
    LIMIT = "limit", "it is too large, too deep, or has too many parts"

    def __new__(cls, value: str, words: str) -> Self:
        """Keep the words beside the value."""
        rule = str.__new__(cls, value)
        rule._value_, rule.words = value, words
        return rule


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


def misshapen(node: Schema) -> Iterator[str]:
    """Yield a schema's keywords whose values are not of the kind that draft 2020-12 asks for, in their order."""
    for keyword, value in node.items():
        is_fine = _SHAPES.get(keyword)
        if not isinstance(value, _KINDS.get(keyword, object)) or (is_fine is not None and not is_fine(value)):
            yield keyword


def _is_schema(value: JsonValue) -> bool:
    return isinstance(value, dict | bool)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_positive(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == value // 1


def _are_schemas(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _map_to_schemas(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _are_names(value: JsonValue) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and len({*map(str, value)}) == len(value)
    )


def _map_to_names(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(map(_are_names, value.values()))


def _is_type(value: JsonValue) -> bool:
    kinds = value if isinstance(value, list) else [value]
    known = [kind for kind in kinds if isinstance(kind, str) and kind in TYPES]
    return bool(known) and len(known) == len(kinds) == len({*known})


def _is_id(value: JsonValue) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^#]*#?", value) is not None


def _is_anchor(value: JsonValue) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z_][-A-Za-z0-9._]*", value) is not None


_KINDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("title", "description", "format", "pattern", "$ref", "$dynamicRef", "$schema", "$comment"), str),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), str),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), bool),
    **dict.fromkeys(("enum", "examples"), list),
}
_SHAPES: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "type": _is_type,
    "required": _are_names,
    "dependentRequired": _map_to_names,
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _map_to_schemas),
    **dict.fromkeys(("items", "additionalProperties", "propertyNames", "contains", "contentSchema"), _is_schema),
    **dict.fromkeys(("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"), _is_schema),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _are_schemas),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    "multipleOf": _is_positive,
    "$id": _is_id,
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _is_anchor),
}
"""What the vocabularies of draft 2020-12 ask of one node; a list for `items`, as in older drafts, is no form of it."""
