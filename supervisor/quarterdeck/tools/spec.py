"""Define a native tool: its description for a model, its arguments as one type, and the function that runs it.

    class ReadArguments(Arguments):
        path: Annotated[str, Meta(min_length=1, description="The file to read.")]
        offset: Annotated[int, Meta(ge=1)] | None = None      # optional: absent is None, null is an error

Names are `snake_case` here and `camelCase` on the wire. Objects are closed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import ToolCall, ToolDescriptor, ToolHints, ToolOutcome

from .context import ToolContext
from .input_check import InputCheck, is_plain
from .results import Output, ToolResult
from .runner import describe, fit_result, guarded

_DEFINITIONS: Final = "$defs"
_REF_PREFIX: Final = f"#/{_DEFINITIONS}/"
_ANYTHING: Final = {"title": "anything"}  # the schema of `object`: msgspec's hook must return one; titles are removed
_NULL: Final = {"type": "null"}


class Arguments(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Base of every tool's arguments, and of the objects inside them."""


A = TypeVar("A", bound=Arguments)

RunTool = Callable[[Any, ToolContext], Awaitable[ToolResult]]
"""Runs one call with its arguments and context; an expected failure is a result with `is_error`."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The definition of a tool."""

    name: str
    description: str
    parameters: Mapping[str, object]  # the portable JSON Schema of its input
    run: RunTool  # takes the input as a JSON value, or as `arguments` where that is given
    definition: bytes | None = None  # a server's own tool, JSON: its input is not judged, its texts are not cut
    title: str = ""  # its name for people; empty for the name itself
    hints: ToolHints | None = None  # assumptions that a client may make of a native tool; None for none
    arguments: type[Arguments] | None = None  # what `parameters` describes; None where the tool reads its input
    output_schema: Mapping[str, object] | None = None  # an object's, of each success's `structured`


class DefinedTool:
    """A `Card` that judges its input before it runs, and cuts its texts to the context's budget."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec: Final = spec
        self.name: Final = spec.name
        self.label: Final = spec.title or spec.name
        self.description: Final = spec.description
        self.parameters: Final = spec.parameters
        self.hints: Final = spec.hints
        self.read_only: Final = spec.hints is not None and spec.hints.read_only
        self.definition: Final = spec.definition
        self.output_schema: Final = spec.output_schema
        self._check = InputCheck(spec.name, spec.parameters)

    def titled(self, title: str) -> "DefinedTool":
        """Return the same tool under this title."""
        return DefinedTool(replace(self.spec, title=title))

    def descriptor(self) -> ToolDescriptor:
        """Return the tool as a model sees it."""
        return describe(self)

    async def invoke(self, call: ToolCall, ctx: ToolContext) -> ToolOutcome:
        """Run the tool, as `run` does; the result's `wire` is copied unchanged."""
        return (await self.run(call.input, ctx)).to_outcome(call.id)

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run the tool on the input `value`; like `guarded`, it raises nothing but cancellation."""
        return await guarded(self.name, ctx.cancel, lambda: self._run(coerce_input(value), ctx))

    async def _run(self, given: object, ctx: ToolContext) -> ToolResult:
        spec = self.spec
        if spec.definition is not None:
            return await spec.run(given, ctx)
        arguments: object = None
        if spec.arguments is not None and is_plain(given):
            with suppress(msgspec.ValidationError, UnicodeEncodeError):  # the latter for half a surrogate pair
                arguments = msgspec.convert(given, spec.arguments)
        if arguments is None:
            # The schema's own judgement is slow, and says in full what is wrong.
            if (problem := self._check.problem(given)) is not None:
                return ToolResult.of_error(problem)
            arguments = given if spec.arguments is None else read_arguments(spec.arguments, given)
        return await fit_result(await spec.run(arguments, ctx), self.name, ctx.budget, ctx.overflow)


def native_tool(
    name: str,
    description: str,
    arguments: type[A],
    run: Callable[[A, ToolContext], Awaitable[ToolResult]],
    *,
    hints: ToolHints,
    outputs: Sequence[type[Output]] = (),
) -> DefinedTool:
    """Make a tool of `run`, on input that the schema of `arguments` describes.

    Each success of it is structured as one of `outputs`; without any it is text alone.
    """
    return DefinedTool(
        ToolSpec(
            name,
            description,
            schema_of(arguments),
            run,
            hints=hints,
            arguments=arguments,
            output_schema=output_schema_of(*outputs) if outputs else None,
        )
    )


def define_tool(spec: ToolSpec) -> DefinedTool:
    """Make the tool that `spec` describes."""
    return DefinedTool(spec)


@cache
def schema_of(struct: type[Arguments | Output]) -> Mapping[str, object]:
    """Return the closed JSON Schema of `struct`, without references, titles, and nulls that are a default."""
    schema = msgspec.json.schema(struct, schema_hook=lambda _: _ANYTHING)
    # A type's docstring is for us, not for the model.
    definitions = {
        name: {key: value for key, value in definition.items() if key != "description"}
        for name, definition in schema.pop(_DEFINITIONS).items()
    }
    # Defaults are values of ours until they have been JSON.
    return msgspec.json.decode(msgspec.json.encode(_plain(schema, definitions)), type=dict[str, object])


@cache
def output_schema_of(*outputs: type[Output]) -> Mapping[str, object]:
    """Return the schema of one of `outputs`, always an object's at its top: MCP requires that up to 2025-11-25."""
    schemas = [schema_of(each) for each in outputs]
    return schemas[0] if len(schemas) == 1 else {"type": "object", "anyOf": schemas}


def read_arguments(arguments: type[A], value: object) -> A:
    """Convert `value`, which `schema_of(arguments)` accepts. Raise `ValueError` if it does not."""
    try:
        # Not strict: to JSON Schema 5.0 is a whole number, and what else this would let pass the schema has refused.
        return msgspec.convert(value, arguments, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(plain_words(error)) from None


def coerce_input(value: object) -> object:
    """Return `value` as a tool expects it: for an object, models may send nothing, or JSON inside a string."""
    if value is None:
        return {}
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return value
    return value


def _plain(node: object, definitions: Mapping[str, object]) -> object:
    """Return a part of a schema without references, titles and nulls."""
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
    }
