"""Where a tool's schema falls outside what a model provider says it takes.

What is taken stands in `subsets`, with the documents it was read from and what they leave open.  Nothing is
repaired here: `portable` does that, as far as nothing is lost.  Pure; an untrusted server wrote the schema, so the walk
is a loop, ends, and says where it looked no further.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from quarterdeck_protocol.schema.canonical import JsonValue, Schema
from support.schemas.providers.shapes import misshapen
from support.schemas.providers.subsets import SUBSETS, Provider, Subset
from support.schemas.providers.totals import Totals

__all__ = ["MAX_DEPTH", "MAX_FOUND", "MAX_SCHEMAS", "Outside", "Provider", "Rule", "outside"]

MAX_SCHEMAS: Final = 50_000
"""Schemas looked at in one; as many values as the portable form has at most."""

MAX_DEPTH: Final = 128
"""Schemas within each other that are looked at, four times the deepest that a provider names."""

MAX_FOUND: Final = 500
"""Findings told of one schema: more help nobody."""

_MAX_WORD_CHARS: Final = 64
"""Of a server's own words in a finding."""


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


@dataclass(frozen=True, slots=True)
class Outside:
    """One place where a schema is not what a provider takes.

    Attributes:
        pointer: a JSON pointer into the schema; very long names in it are cut.
        sentence: for people; a server's own words in it are quoted, escaped and cut.
    """

    rule: Rule
    pointer: str
    sentence: str


def outside(schema: object, provider: Provider) -> tuple[Outside, ...]:
    """Every place where a tool's input schema is outside a provider's subset, the outermost first.

    Total: what is not an object counts as `{}`.  Empty is no promise: see `subsets` for what nobody publishes.
    """
    root: Schema = schema if isinstance(schema, dict) else {}
    return tuple(islice(_Visit(root, SUBSETS[provider]).found(), MAX_FOUND))


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema in the schema."""

    schema: JsonValue
    parent: "_Place | None" = None
    step: tuple[str, ...] = ()
    depth: int = 1
    levels: int = 0

    def pointer(self, *further: str) -> str:
        steps = [further]
        place: _Place | None = self
        while place is not None:
            steps.append(place.step)
            place = place.parent
        return "".join(f"/{_escaped(token)}" for step in reversed(steps) for token in step)


class _Visit:
    """One walk over one schema."""

    def __init__(self, root: Schema, subset: Subset) -> None:
        self._root = root
        self._subset = subset
        self._totals = Totals(root)

    def found(self) -> Iterator[Outside]:
        """All findings."""
        yield from self._at_root()
        pending = deque([_Place(self._root)])
        seen = 0
        while pending:
            place = pending.popleft()
            seen += 1
            if seen > MAX_SCHEMAS or place.depth > MAX_DEPTH:
                yield Outside(Rule.LIMIT, place.pointer(), "It is too large or too deep here to be looked at further.")
                return
            if not isinstance(place.schema, dict):
                if not self._subset.boolean_schemas:
                    yield Outside(Rule.BOOLEAN, place.pointer(), "`true` or `false` is used as a schema.")
                continue
            yield from self._at(place, place.schema)
            inner = list(self._inside(place, place.schema))
            self._totals.note(place.schema, [(inside.step[0], inside.schema) for inside in inner])
            pending.extend(inner)
        for sentence in self._totals.exceeded(self._subset):
            yield Outside(Rule.LIMIT, "", sentence)
        if not self._subset.recursion and self._totals.recurses():
            yield Outside(Rule.RECURSION, "", "A schema refers back to itself.")

    def _at_root(self) -> Iterator[Outside]:
        if self._root.get("type") != "object":
            yield Outside(Rule.ROOT_TYPE, "", "The root is not of the type object.")
        for keyword in self._root:
            if keyword in self._subset.not_at_root:
                yield Outside(Rule.ROOT_WORD, f"/{keyword}", f"`{keyword}` is at the root.")
        if self._subset.root_properties and "properties" not in self._root:
            yield Outside(Rule.ROOT_PROPERTIES, "", "The root has no `properties`.")
        named = self._root.get("properties")
        for name in named if self._subset.names is not None and isinstance(named, dict) else ():
            if self._subset.names is not None and not self._subset.names.fullmatch(name):
                pointer = f"/properties/{_escaped(name)}"
                yield Outside(Rule.NAME, pointer, f"A parameter cannot be named {_quoted(name)}.")

    def _at(self, place: _Place, node: Schema) -> Iterator[Outside]:
        """What is wrong with one node by itself."""
        for keyword in misshapen(node):
            yield Outside(Rule.SHAPE, place.pointer(keyword), f"The value of `{keyword}` is of the wrong kind.")
        for keyword in node:
            if self._subset.keywords is not None and keyword not in self._subset.keywords:
                yield Outside(Rule.KEYWORD, place.pointer(keyword), f"The keyword {_quoted(keyword)} is not supported.")
        for rule, keyword, sentence in (*self._of_type(node), *self._of_object(node), *self._of_values(node)):
            yield Outside(rule, place.pointer(*([keyword] if keyword else [])), sentence)
        if self._subset.most_depth is not None and place.depth == self._subset.most_depth + 1:
            yield Outside(Rule.LIMIT, place.pointer(), f"Over {self._subset.most_depth} schemas are nested.")
        if self._subset.most_levels is not None and _is_object(node) and place.levels == self._subset.most_levels:
            yield Outside(Rule.LIMIT, place.pointer(), f"Over {self._subset.most_levels} objects are nested.")

    def _of_type(self, node: Schema) -> Iterator[tuple[Rule, str, str]]:
        subset, kind = self._subset, node.get("type")
        if subset.instead_of_type is not None and kind is None and subset.instead_of_type.isdisjoint(node):
            yield Rule.UNTYPED, "", "It has no type."
        if not subset.type_lists and isinstance(kind, list):
            yield Rule.TYPE_LIST, "type", "It has several types in a list."
        if subset.array_items and kind == "array" and "items" not in node:
            yield Rule.ITEMS, "", "An array has no `items`."
        if subset.lone_unions and "anyOf" in node and len(node) > 1:
            yield Rule.UNION, "anyOf", "`anyOf` has other keywords beside it."
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return
        if subset.lone_references and any(not word.startswith("$") for word in node):
            yield Rule.REFERENCE, "$ref", "`$ref` has other keywords beside it."
        if not subset.remote_references and not reference.startswith("#"):
            yield Rule.REFERENCE, "$ref", "`$ref` leads out of the schema."

    def _of_object(self, node: Schema) -> Iterator[tuple[Rule, str, str]]:
        if not _is_object(node):
            return
        subset = self._subset
        names = properties if isinstance(properties := node.get("properties"), dict) else {}
        required = needed if isinstance(needed := node.get("required"), list) else []
        if not subset.empty_objects and not names:
            yield Rule.EMPTY_OBJECT, "", "An object declares no properties."
        if subset.closed_objects and node.get("additionalProperties") is not False:
            yield Rule.OPEN_OBJECT, "", "An object does not say `additionalProperties: false`."
        if subset.all_required and not names.keys() <= {name for name in required if isinstance(name, str)}:
            yield Rule.OPTIONAL, "", "An object does not require all its properties."
        if subset.declared_required and any(isinstance(name, str) and name not in names for name in required):
            yield Rule.UNDECLARED, "required", "A required property is not declared."

    def _of_values(self, node: Schema) -> Iterator[tuple[Rule, str, str]]:
        subset = self._subset
        form, declared = node.get("format"), node.get("type")
        kinds = declared if isinstance(declared, list) else [declared]
        if isinstance(form, str) and not subset.takes_format(form, kinds):
            yield Rule.FORMAT, "format", f"The format {_quoted(form)} is not supported for this type."
        choices = listed if isinstance(listed := node.get("enum"), list) else []
        if subset.enum_kinds is not None and not {*map(_kind, choices)} <= subset.enum_kinds:
            yield Rule.CHOICE, "enum", f"It lists values of other types than {', '.join(sorted(subset.enum_kinds))}."
        if not subset.enum_empty and "" in choices:
            yield Rule.CHOICE, "enum", "It lists an empty string."
        text = sum(len(choice) for choice in choices if isinstance(choice, str))
        if subset.most_choice_text is not None and len(choices) > subset.long_list and text > subset.most_choice_text:
            yield Rule.LIMIT, "enum", f"Its many choices have more than {subset.most_choice_text} characters."
        least = node.get("minItems")
        if subset.least_items is not None and isinstance(least, int) and least not in subset.least_items:
            yield Rule.BOUND, "minItems", "It asks for more than one item."
        pattern = node.get("pattern")
        if subset.refused_pattern is not None and isinstance(pattern, str) and subset.refused_pattern.search(pattern):
            yield Rule.PATTERN, "pattern", "Its pattern looks around, looks back or asks for word boundaries."

    def _inside(self, place: _Place, node: Schema) -> Iterator[_Place]:
        """The schemas that stand in a node, beneath words that are taken."""
        depth, levels = place.depth + 1, place.levels + _is_object(node)
        for keyword, value in node.items():
            if self._subset.keywords is not None and keyword not in self._subset.keywords:
                continue
            if keyword in _HOLD_ONE and isinstance(value, dict | bool):
                if not (keyword == "additionalProperties" and isinstance(value, bool)):
                    yield _Place(value, place, (keyword,), depth, levels)
            elif keyword in _HOLD_LIST and isinstance(value, list):
                for index, child in enumerate(value):
                    yield _Place(child, place, (keyword, str(index)), depth, levels)
            elif keyword in _HOLD_MAP and isinstance(value, dict):
                for name, child in value.items():
                    yield _Place(child, place, (keyword, name), depth, levels)


_HOLD_ONE: Final = frozenset(
    {"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"}
)
_HOLD_LIST: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_HOLD_MAP: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords that hold schemas, by the shape of their value."""


def _is_object(node: Schema) -> bool:
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or (kind is None and "properties" in node)


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "object" if isinstance(value, dict) else "array"


def _quoted(word: str) -> str:
    return ascii(word[:_MAX_WORD_CHARS])


def _escaped(token: str) -> str:
    cut = token if len(token) <= _MAX_WORD_CHARS else f"{token[:_MAX_WORD_CHARS]}…"
    return cut.replace("~", "~0").replace("/", "~1")
