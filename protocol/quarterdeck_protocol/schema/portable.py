"""A tool's input schema in a form that every model provider takes and that admits all that the server admits.

`normalize_schema` alone refuses real input: a nullable union gains `type: object`, a `$ref` loses its target.  Here
a node is what `normalize_schema` makes of it wherever that admits every value that the server's schema admits, else
something wider: a node of one type, an `anyOf` of such nodes, or any value.  Pure; an untrusted server wrote the input,
so neither its depth nor its size is ours to bear.  Keyword by keyword:

- A local `$ref` is replaced by its target; cycles are unrolled a few times and end in `{}`, like unknown targets.
- `allOf`, and keywords beside a `$ref`, become one node where that is exact; else an `allOf` stays.
- A list of types, an `enum` of several types and an untyped `anyOf` or `oneOf` become one flat `anyOf` without
  repetitions, or its one branch.  A nullable union keeps its `null`, since the server takes it.
- A missing type follows from `const` or `enum`.  `{"properties": …}` admits every string, so that such a node, and one
  with `items` and the like, becomes a union of that type with all others; only the root is an object anyway.
- The list form of `items` becomes the union of its members and of what may follow them.
- `not`, `if` and whatever else admits less when its inside admits more stays as it is, or goes if it holds a reference.
"""

from collections.abc import Generator
from typing import Final, TypeAlias

from .canonical import STRIPPED, JsonValue, Schema, copy_json, declared_names, normalize_schema
from .flatten import EXCLUSIVE_BOUNDS, UNEVALUATED, Flattener, SchemaDocument, Trail, ValueBudget
from .portable_types import CONSTRAINTS, alternatives, types_within

MAX_VALUES: Final = 50_000
"""JSON values read or written for one schema, about a megabyte of text: no model reads more."""

UNROLLINGS: Final = (2, 1, 0)
"""How often a reference may come back below its own target: the first of these that stays within `MAX_VALUES`."""

_DATA: Final = frozenset({"type", "enum", "const", "required"})
"""Keywords whose values hold no schema, whatever they look like."""

_RECURSED: Final = {"object": ("properties", "additionalProperties"), "array": ("items",)}
"""Where `normalize_schema` goes on, by type."""

_IN_PLACE: Final = frozenset({"anyOf", "oneOf", "allOf", "dependentSchemas", "if", "then", "else"})
"""Keywords that apply schemas to the same value as their node does."""

_CONDITION: Final = frozenset({"if", "then", "else"})

_HOLD_ONE: Final = frozenset({"items", "additionalProperties", "propertyNames"})
_HOLD_MAP: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_HOLD_LIST: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords that admit more when a schema inside admits more, by the shape of their value; no other may be rewritten."""

_Rewriting: TypeAlias = "Generator[_Rewriting, Schema, Schema]"
"""The rewriting of one schema: yields the rewritings of inner ones, is sent their results, returns its own."""


def portable_schema(original: object) -> Schema:
    """Return the portable form of a tool's input schema: `type: object` with `properties` at the top.

    Total: junk counts as a schema without constraint, nesting has no limit, and what `MAX_VALUES` do not reach is `{}`.
    The input, a JSON value, is neither changed nor shared. Keys keep their order.
    """
    root: Schema = original if isinstance(original, dict) else {}
    document = SchemaDocument(root)
    for unrollings in UNROLLINGS:
        budget = ValueBudget(MAX_VALUES)
        result = _run(_Rewriter(document, unrollings, budget).rewrite(root, (), "object"))
        if not budget.is_exceeded:
            break
    return result if result.get("type") == "object" else normalize_schema({})


def _run(rewriting: _Rewriting) -> Schema:
    """Drive a rewriting to its end, with a stack of our own in place of Python's."""
    running = [rewriting]
    result: Schema | None = None
    while running:
        try:
            inner = next(running[-1]) if result is None else running[-1].send(result)
        except StopIteration as done:
            running.pop()
            result = done.value
        else:
            running.append(inner)
            result = None
    assert result is not None
    return result


class _Rewriter:
    def __init__(self, document: SchemaDocument, unrollings: int, budget: ValueBudget) -> None:
        self._document = document
        self._flattener = Flattener(document, unrollings, budget)
        self._budget = budget

    def rewrite(self, schema: JsonValue, trail: Trail, within: str | None = None) -> _Rewriting:
        """Return the portable form of one schema; `within` is the type that its values have anyway, if known."""
        if schema is False:
            return normalize_schema({})
        node, trail = self._flattener.flatten(schema, trail)
        if not self._budget.affords(1):
            return {}
        kinds = types_within(node, within)
        if len(kinds) == 1:
            return (yield from self._plain(node, kinds[0], trail))
        branches = alternatives(node, kinds)
        if branches is None:
            return (yield from self._plain(node, None, trail))
        return self._beside_remarks(node, (yield from self._union(branches, trail)))

    def _plain(self, node: Schema, kind: str | None, trail: Trail) -> _Rewriting:
        """Handle a node of one type, or of any: what `normalize_schema` makes of it, over sound subschemas."""
        widened = {key for key, value in node.items() if key in _IN_PLACE and not self._document.stands_alone(value)}
        dropped = (UNEVALUATED if widened else frozenset()) | (_CONDITION if "if" in widened else frozenset())
        node = _shaped({key: value for key, value in node.items() if key not in dropped}, kind)
        if not self._budget.affords(sum(self._cost(key, value, kind) for key, value in node.items())):
            return {}
        result: Schema = {}
        for key, value in node.items():
            if self._stays(key, value, kind):
                result[key] = copy_json(value)
                continue
            inside = yield from self._inside(key, value, trail, kind if key in _IN_PLACE else None)
            if inside is None or (key == "oneOf" and "anyOf" in node):
                continue
            result["anyOf" if key == "oneOf" else key] = inside  # widened branches overlap: `oneOf` would refuse that
        return result

    def _stays(self, key: str, value: JsonValue, kind: str | None) -> bool:
        if key in _DATA or isinstance(value, bool):
            return True
        return key not in _RECURSED.get(kind or "", ()) and self._document.stands_alone(value)

    def _cost(self, key: str, value: JsonValue, kind: str | None) -> int:
        """The values that a keyword writes itself; the schemas that are rewritten in it pay for themselves."""
        if self._stays(key, value, kind):
            return self._document.size(value)
        return 1 + len(value) if isinstance(value, dict | list) else 1

    def _inside(
        self, key: str, value: JsonValue, trail: Trail, within: str | None
    ) -> Generator[_Rewriting, Schema, JsonValue]:
        """Rewrite the schemas in a keyword's value; None if the keyword has to go."""
        if key in _HOLD_ONE and isinstance(value, dict):
            return (yield self.rewrite(value, trail))
        if key in _HOLD_MAP and isinstance(value, dict):
            named: Schema = {}
            for name, child in value.items():
                named[name] = yield self.rewrite(child, trail, within)
            return named
        if key in _HOLD_LIST and isinstance(value, list):
            listed: list[JsonValue] = []
            for child in value:
                rewritten = yield self.rewrite(child, trail, within)
                listed.append(rewritten)
            return listed
        return None

    def _union(self, branches: list[JsonValue], trail: Trail) -> _Rewriting:
        """Make a flat union without repetitions; the branch itself if one is left, `{}` if one admits everything."""
        if not self._budget.affords(len(branches)):
            return {}
        united: dict[str | int, Schema] = {}
        for branch in branches:
            result = yield self.rewrite(branch, trail)
            if result.keys().isdisjoint(CONSTRAINTS):
                return {}
            for piece in _pieces(result):
                united.setdefault(_identity(piece), piece)
        if len(united) > 1:
            return {"anyOf": [*united.values()]}
        return next(iter(united.values()), {})

    def _beside_remarks(self, node: Schema, core: Schema) -> Schema:
        """Put what a node admits at the place of its first constraint, among its remarks."""
        result: Schema = {}
        for key, value in node.items():
            if key in CONSTRAINTS:
                result.update((word, said) for word, said in core.items() if word not in result)
            elif (
                key not in STRIPPED
                and self._stays(key, value, None)
                and self._budget.affords(self._document.size(value))
            ):
                result[key] = copy_json(value)
        return result


def _shaped(node: Schema, kind: str | None) -> Schema:
    """A node's own keywords as `normalize_schema` leaves them, and as the current draft spells them."""
    shaped = {
        key: value
        for key, value in node.items()
        if key not in STRIPPED and not (key in EXCLUSIVE_BOUNDS and isinstance(value, bool))
    }
    if isinstance(members := shaped.get("items"), list):
        rest, limit = shaped.pop("additionalItems", True), shaped.get("maxItems")
        is_full = isinstance(limit, int) and limit <= len(members)
        shaped["items"] = {"anyOf": members if is_full else [*members, rest]}
    if kind is None:
        shaped.pop("type", None)
        return shaped
    shaped["type"] = kind
    if kind == "object":
        properties = named if isinstance(named := shaped.get("properties"), dict) else {}
        shaped["properties"] = properties
        if required := declared_names(shaped.get("required"), properties):
            shaped["required"] = required
        else:
            shaped.pop("required", None)
    return shaped


def _pieces(schema: Schema) -> list[Schema]:
    inner = schema["anyOf"] if schema.keys() == {"anyOf"} else None
    return [piece for piece in inner if isinstance(piece, dict)] if isinstance(inner, list) else [schema]


def _identity(schema: Schema) -> str | int:
    """Equal for small schemas that say the same; one that holds more, at whatever depth, is like no other."""
    return repr(schema) if all(isinstance(value, str) or value == {} for value in schema.values()) else id(schema)
