"""A tool's arguments as one type: what a model is told of them, and what the tool is handed, from one place.  Pure.

    class ReadArguments(Arguments):
        path: Annotated[str, Meta(min_length=1, description="The file to read.")]
        offset: Annotated[int, Meta(ge=1)] | None = None      # optional: absent is None, null is an error

Names are `snake_case` here and `camelCase` on the wire.  Objects are closed.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from quarterdeck_protocol.plain_words import plain_words

_DEFINITIONS: Final = "$defs"
_REF_PREFIX: Final = f"#/{_DEFINITIONS}/"
_ANYTHING: Final = {"title": "anything"}
"""The schema of `object`: nothing, but that is no answer to its maker, and titles go."""

_NULL: Final = {"type": "null"}


class Arguments(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Base of every tool's arguments, and of the objects inside them."""


T = TypeVar("T", bound=Arguments)


def schema_of(arguments: type[Arguments]) -> dict[str, object]:
    """The closed JSON Schema of `arguments`, without references, titles and nulls."""
    schema = msgspec.json.schema(arguments, schema_hook=lambda _: _ANYTHING)
    # A type's docstring is for us, not for the model.
    definitions = {
        name: {key: value for key, value in definition.items() if key != "description"}
        for name, definition in schema.pop(_DEFINITIONS).items()
    }
    # Defaults are values of ours until they have been JSON.
    return msgspec.json.decode(msgspec.json.encode(_plain(schema, definitions)), type=dict[str, object])


def read_arguments(arguments: type[T], value: object) -> T:
    """`value`, which `schema_of(arguments)` accepts, as its type.

    Raises:
        ValueError: the schema does not accept it.
    """
    try:
        # Not strict: to JSON Schema 5.0 is a whole number, and what else this would let pass the schema has refused.
        return msgspec.convert(value, arguments, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(plain_words(error)) from None


def _plain(node: object, definitions: Mapping[str, object]) -> object:
    if isinstance(node, list):
        return [_plain(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(ref := node.get("$ref"), str):
        target = _plain(definitions[ref.removeprefix(_REF_PREFIX)], definitions)
        assert isinstance(target, dict)
        return {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    members = {key: value for key, value in node.items() if key != "title"}
    choices = members.get("anyOf")
    if isinstance(choices, list) and _NULL in choices and members.get("default", ...) is None:
        [only] = [choice for choice in choices if choice != _NULL]
        rest = {key: value for key, value in members.items() if key not in ("anyOf", "default")}
        return _plain({**only, **rest}, definitions)
    choices = members.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        members = {"type": "string", **members}  # some clients refuse a parameter without a type
    return {
        # What stands here are names of properties, not keywords.
        key: {name: _plain(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _plain(value, definitions)
        for key, value in members.items()
        if key != "title"
    }
