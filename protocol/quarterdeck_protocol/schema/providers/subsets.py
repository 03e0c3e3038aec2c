"""The JSON Schema that model providers say they take for a tool's parameters, as tables by which `outside` judges.

Read on 22 November 2026; beneath each table is what it was read from: a provider's documentation, the types and
docstrings of its SDKs, and, marked "observed", what its API answers when it refuses a schema, as users quote it.

What nobody publishes is not judged: whether keywords that are taken are also obeyed; how large a schema may be without
strict mode; what Gemini's `parametersJsonSchema` does with keywords outside its list, and which references it unrolls;
the sizes of Anthropic's compiled grammars; limits on several tools together; what OpenAI's fine-tuned models leave out.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Provider(StrEnum):
    """Whose rules, for which field of a request."""

    OPENAI = "openai"
    OPENAI_STRICT = "openai-strict"
    GEMINI = "gemini"
    GEMINI_JSON = "gemini-json"
    ANTHROPIC = "anthropic"
    ANTHROPIC_STRICT = "anthropic-strict"


@dataclass(frozen=True, slots=True)
class Subset:
    """What one provider takes; every default is "anything goes".

    Attributes:
        keywords: those that it takes anywhere; None for all.
        not_at_root: those that it takes below the root only.
        instead_of_type: what lets a node go without `type`; None where nothing is needed.
        type_lists: whether `type` may be a list.
        boolean_schemas: whether `true` and `false` may stand for a schema.
        array_items: whether an array has to have `items`.
        root_properties: whether the root has to have `properties`.
        empty_objects: whether an object may have no properties.
        closed_objects: whether an object has to refuse further properties.
        all_required: whether an object has to require all its properties.
        declared_required: whether `required` may only name declared properties.
        lone_unions: whether nothing may stand beside `anyOf`.
        lone_references: whether nothing but words that begin with `$` may stand beside `$ref`.
        recursion: whether references may lead back to a schema that they stand in.
        remote_references: whether references may leave the document.
        formats: those that it takes, by type; None for all.
        enum_kinds: the types that listed values may have; None for all.
        enum_empty: whether a listed string may be empty.
        names: what names of the root's properties look like; None for any.
        least_items: the values that `minItems` may have; None for all.
        refused_pattern: what may not occur in a regular expression.
        most_depth: schemas within each other, the root included.
        most_levels: objects within each other, the root included.
        most_properties: properties in all.
        most_optional: properties in all that are not required.
        most_unions: properties in all whose schema is a union.
        most_choices: listed values in all.
        most_text: characters in all of property names, definition names, and listed strings.
        most_choice_text: characters of the strings of one list longer than `long_list`.
    """

    keywords: frozenset[str] | None = None
    not_at_root: frozenset[str] = frozenset()
    instead_of_type: frozenset[str] | None = None
    type_lists: bool = True
    boolean_schemas: bool = True
    array_items: bool = False
    root_properties: bool = False
    empty_objects: bool = True
    closed_objects: bool = False
    all_required: bool = False
    declared_required: bool = False
    lone_unions: bool = False
    lone_references: bool = False
    recursion: bool = True
    remote_references: bool = True
    formats: Mapping[str, frozenset[str]] | None = None
    enum_kinds: frozenset[str] | None = None
    enum_empty: bool = True
    names: re.Pattern[str] | None = None
    least_items: frozenset[int] | None = None
    refused_pattern: re.Pattern[str] | None = None
    most_depth: int | None = None
    most_levels: int | None = None
    most_properties: int | None = None
    most_optional: int | None = None
    most_unions: int | None = None
    most_choices: int | None = None
    most_text: int | None = None
    most_choice_text: int | None = None
    long_list: int = 250

    def takes_format(self, form: str, kinds: Iterable[object]) -> bool:
        """Whether a `format` is taken beside one of these values of `type`."""
        known = self.formats
        return known is None or any(isinstance(kind, str) and form in known.get(kind, ()) for kind in kinds)


_REMARKS: Final = frozenset({"$schema", "$id", "$comment", "title", "description"})
"""What says nothing about values.  No document of a strict mode names all of these; nobody was seen to be refused."""

_TREE: Final = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf"})
_REFERENCES: Final = frozenset({"$ref", "$defs", "definitions"})
_TYPED_BY: Final = frozenset({"anyOf", "allOf", "$ref", "enum", "const"})

_OPENAI: Final = Subset(
    not_at_root=frozenset({"oneOf", "anyOf", "allOf", "enum", "not"}), array_items=True, root_properties=True
)
"""Without `strict`.  Published: "parameters … described as a JSON Schema object" (openai-python 3.54.0,
`FunctionDefinition`).  Observed: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at
the top level" (langchainjs issue 9804), "array schema missing items" (mcphost issue 35), "In context=(), object schema
missing properties" (copilot-cli issue 2223, March 2026)."""

_OPENAI_STRICT: Final = Subset(
    keywords=_REMARKS
    | _TREE
    | _REFERENCES
    | {"const", "pattern", "format", "minLength", "maxLength", "multipleOf", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "patternProperties"},
    not_at_root=frozenset({"anyOf", "enum"}),
    instead_of_type=_TYPED_BY,
    boolean_schemas=False,
    array_items=True,
    root_properties=True,
    closed_objects=True,
    all_required=True,
    remote_references=False,
    formats={
        "string": frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
    },
    most_levels=10,
    most_properties=5000,
    most_choices=1000,
    most_text=120_000,
    most_choice_text=15_000,
)
"""With `strict: true`.  Published: the guide "Structured model outputs", section "Supported schemas"
(developers.openai.com/api/docs/guides/structured-outputs), with its limits.  `minLength`, `maxLength` and
`patternProperties` are taken to be supported because the guide withholds them from fine-tuned models only.  Observed:
any word that it does not list "is not permitted" (`oneOf`, `default`, `propertyNames`: oh-my-pi issue 209), "'uri' is
not a valid format" (oh-my-pi issue 206), "schema must have a 'type' key"."""

_GEMINI: Final = Subset(
    keywords=frozenset({"type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems"})
    | {"properties", "required", "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength"}
    | {"pattern", "example", "anyOf", "propertyOrdering", "default"},
    instead_of_type=frozenset({"anyOf"}),
    type_lists=False,
    boolean_schemas=False,
    array_items=True,
    empty_objects=False,
    declared_required=True,
    lone_unions=True,
    formats={
        "string": frozenset({"enum", "date-time"}),
        "integer": frozenset({"int32", "int64"}),
        "number": frozenset({"float", "double", "int32", "int64"}),
    },
    enum_kinds=frozenset({"string"}),
    enum_empty=False,
    names=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
    most_depth=32,
)
"""`functionDeclarations[].parameters`.  Published: the fields of `Schema` (google-ai-generativelanguage 0.12.1 of
October 2026; ai.google.dev/api/caching#Schema): `type` is one value and required, `enum` holds strings; names of
parameters (google-genai 3.4.0, `FunctionDeclaration.parameters`); "the maximum depth of nested schema is 32" (Google
Cloud, "Function calling").  Observed: 'Unknown name "const" … Cannot find field' for any other word (nodetool pull
4761), "only 'enum' and 'date-time' are supported for STRING type" (google/adk-python, `_gemini_schema_util`),
"enum[1]: cannot be empty" (ha-claude pull 32), "properties: should be non-empty for OBJECT type", required names that
are not declared (kilocode pull 11955), "items: missing field", and on Vertex "When using any_of, it must be the only
field set"."""

_GEMINI_JSON: Final = Subset(
    keywords=frozenset({"$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items"})
    | {"prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties"}
    | {"additionalProperties", "required", "propertyOrdering"},
    lone_references=True,
    remote_references=False,
    enum_kinds=frozenset({"string", "integer", "number"}),
    most_depth=32,
)
"""`functionDeclarations[].parametersJsonSchema`.  Published: it "must describe an object" (google-ai-generativelanguage
0.12.1).  Which words it knows is published for its twin `responseJsonSchema` only, "only the following properties are
supported"; that list is taken for both.  The depth is the one of function declarations in general."""

_ANTHROPIC: Final = Subset(
    not_at_root=frozenset({"oneOf", "allOf", "anyOf"}), names=re.compile(r"[a-zA-Z0-9_.-]{1,64}")
)
"""`input_schema`.  Published: a JSON Schema, draft 2020-12, with `type: object` (anthropic-python 2.12.0, `ToolParam`).
Observed: "input_schema does not support oneOf, allOf, or anyOf at the top level" (opencode issue 47543, September 2026)
and "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'", at the root (claude-code issue 79418, decocms/studio
pull 6874)."""

_ANTHROPIC_STRICT: Final = Subset(
    keywords=_REMARKS | _TREE | _REFERENCES | {"const", "allOf", "default", "format", "pattern", "minItems"},
    not_at_root=_ANTHROPIC.not_at_root,
    instead_of_type=_TYPED_BY,
    boolean_schemas=False,
    closed_objects=True,
    recursion=False,
    remote_references=False,
    formats={
        "string": frozenset(
            {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
        )
    },
    enum_kinds=frozenset({"string", "integer", "number", "boolean", "null"}),
    names=_ANTHROPIC.names,
    least_items=frozenset({0, 1}),
    refused_pattern=re.compile(r"(?<!\\)(?:\\\\)*\\[1-9bB]|\(\?[=!<]"),
    most_optional=24,
    most_unions=16,
)
"""With `strict: true`.  Published: "Structured outputs", sections "JSON Schema limitations" and "Schema complexity
limits" (platform.claude.com/docs/en/build-with-claude/structured-outputs); the formats, and that a node needs a type,
a union or literals, also in anthropic-python 2.12.0 (`transform_schema`).  The two limits are those of a request."""

SUBSETS: Final[Mapping[Provider, Subset]] = {
    Provider.OPENAI: _OPENAI,
    Provider.OPENAI_STRICT: _OPENAI_STRICT,
    Provider.GEMINI: _GEMINI,
    Provider.GEMINI_JSON: _GEMINI_JSON,
    Provider.ANTHROPIC: _ANTHROPIC,
    Provider.ANTHROPIC_STRICT: _ANTHROPIC_STRICT,
}
TOOL_NAMES: Final[Mapping[Provider, re.Pattern[str]]] = {
    Provider.OPENAI: re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    Provider.ANTHROPIC: re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    Provider.GEMINI: re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
}
"""What the name of a tool may be, whole, by whose field it is."""
