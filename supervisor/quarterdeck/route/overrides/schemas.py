"""An input schema without the arguments that the user gives, as JSON: every other part of it stays as it was written.

Where an argument is sent by us, the model must neither see nor have to send it.  The edited schema accepts an object
without it exactly when the server's own accepts that object with the value in it.  Where that cannot be promised,
because another part of the schema speaks of the argument, or of all properties together, there is no edit but a reason.
Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from quarterdeck.config.overrides import GivenArgument
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth

MAX_DEPTH: Final = 240
"""Of a schema that is edited; what is published is no deeper."""

_WHOLE: Final = ("const", "enum")
"""Keywords that compare the whole object."""

_OTHER: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
"""Keywords that bring in another schema."""

_ANNOTATIONS: Final = frozenset(
    {"$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "examples", "title"}
)

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("not", "if", "then", "else")
_DEPENDENT: Final = ("dependentRequired", "dependentSchemas", "dependencies")
_SIZES: Final = ("minProperties", "maxProperties")


class ArgumentError(ValueError):
    """The schema cannot be shown without an argument; the text says which, and why."""


def without_arguments(schema: bytes, given: Mapping[str, GivenArgument]) -> bytes:
    """The schema, without what is fixed and not requiring what has a default.

    Raises:
        ArgumentError: what it would accept then is not known to be right.
    """
    try:
        check_depth(schema, MAX_DEPTH)
        members, whole = _members.decode(schema), msgspec.json.decode(schema)
        properties = _members.decode(members.get("properties", b"{}"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BodyError) as error:
        raise ArgumentError(f"its input schema cannot be edited: {error}") from None
    for name, argument in given.items():
        if (reason := _reason_against(whole, name, is_removed=argument.is_fixed)) is not None:
            raise ArgumentError(f"the argument {name!r} cannot be given by you: {reason}")
    removed = {name for name, argument in given.items() if argument.is_fixed}
    members["properties"] = _encoded({name: part for name, part in properties.items() if name not in removed})
    if isinstance(required := whole.get("required"), list):
        left = [name for name in required if name not in given]
        members["required"] = _encoded(left)
        if not left:
            del members["required"]  # older drafts allow no empty one
    for key in _SIZES:
        if key in whole:
            members[key] = _encoded(max(0, whole[key] - len(removed)))
            if whole[key] < len(removed) and key == "maxProperties":
                raise ArgumentError(f"the tool takes fewer than {len(removed)} arguments")
    return msgspec.json.encode(members)


def with_arguments(sent: bytes, given: Mapping[str, GivenArgument]) -> bytes:
    """The arguments of a call, with those that the user gives.

    Raises:
        ArgumentError: its caller sent one that is fixed, or no object.
    """
    try:
        members = _members.decode(sent or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArgumentError(f"the arguments are no JSON object: {error}") from None
    for name, argument in given.items():
        if not argument.is_fixed and name in members:
            continue
        if name in members:
            raise ArgumentError(f"the argument {name!r} is fixed by the configuration: call it without")
        members[name] = _encoded(argument.value)
    return msgspec.json.encode(members)


def _reason_against(schema: object, name: str, *, is_removed: bool) -> str | None:
    """Why a property of the schema cannot be removed, or not be required; None when it can."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict) or name not in properties:
        return "it is no plain property of the tool's input"
    for key in (*_WHOLE, *_OTHER):
        if key in schema:
            return f"the tool's input is described by {key!r}, of which it may be a part"
    for key in _SIZES:
        if key in schema and not (is_removed and _is_size(schema[key])):
            return f"{key!r} counts it"
    if not _ignores({key: schema[key] for key in (*_BRANCHES, *_CONDITIONS, *_DEPENDENT) if key in schema}, name):
        return "'oneOf', 'if' or the like of the tool's input may depend on it"
    kept = {**schema, "properties": {key: part for key, part in properties.items() if not is_removed or key != name}}
    if not all(_leads_elsewhere(reference, name, is_removed=is_removed) for reference in _references(kept)):
        return "another part of the tool's input refers to it"
    return None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ignores(schema: object, name: str) -> bool:
    """Whether what a schema says of an object is the same with and without this member; False where it is not plain."""
    if isinstance(schema, bool):
        return True
    return isinstance(schema, dict) and all(_is_apart(key, value, name) for key, value in schema.items())


def _is_apart(key: str, value: object, name: str) -> bool:
    """Whether a keyword says the same with and without the member."""
    if key in _ANNOTATIONS or key == "type":
        return True
    if key in _CONDITIONS:
        return _ignores(value, name)
    if key in _BRANCHES:
        return isinstance(value, list) and all(_ignores(each, name) for each in value)
    if key == "required":
        return isinstance(value, list) and name not in value
    if not isinstance(value, dict) or name in value:
        return False
    if key in _DEPENDENT:
        return all(name not in each if isinstance(each, list) else _ignores(each, name) for each in value.values())
    return key == "properties"


def _references(schema: object) -> Iterator[tuple[str, object]]:
    """Every reference in a schema, with its keyword."""
    level = [schema]
    while level:
        node = level.pop()
        if isinstance(node, dict):
            yield from ((key, value) for key, value in node.items() if key in _OTHER)
            level += node.values()
        elif isinstance(node, list):
            level += node


def _leads_elsewhere(reference: tuple[str, object], name: str, *, is_removed: bool) -> bool:
    """Whether a reference surely leads to what stays as it was."""
    key, target = reference
    if key != "$ref" or not isinstance(target, str) or not target.startswith("#/"):
        return False
    steps = [unquote(step).replace("~1", "/").replace("~0", "~") for step in target[2:].split("/")]
    if steps[:2] == ["properties", name]:
        return not is_removed
    return steps != ["properties"]


def _encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


_members: Final = msgspec.json.Decoder(dict[str, Raw])
