"""A tool: what a model is told about it, and the function that runs it.

A tool's arguments as one type: what a model is told of them, and what the tool is handed, from one place.  Pure.

    class ReadArguments(Arguments):
        path: Annotated[str, Meta(min_length=1, description="The file to read.")]
        offset: Annotated[int, Meta(ge=1)] | None = None      # optional: absent is None, null is an error

Names are `snake_case` here and `camelCase` on the wire.  Objects are closed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import ToolCall, ToolDescriptor, ToolHints, ToolOutcome

from .context import ToolContext
from .overflow import fit_result
from .results import ToolResult
from .validation import InputCheck

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


RunTool = Callable[[object, ToolContext], Awaitable[ToolResult]]
"""Runs one call: the input (any JSON value) and the context; an expected failure is a result with `is_error`."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Everything that makes a tool.

    Attributes:
        name: what a model calls it by.
        parameters: the portable JSON Schema of its input.
        definition: for a grafted tool the server's own tool object, JSON bytes.
        title: what a person is shown; empty for the name.
        hints: what a client may assume of a native tool; None says nothing.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    run: RunTool
    definition: bytes | None = None
    title: str = ""
    hints: ToolHints | None = None


class DefinedTool:
    """A tool that can be called.

    A native tool's input is checked by its schema before it runs, and its texts are cut to the context's budget; what
    a grafted one takes and gives is between its server and its client.
    """

    def __init__(self, spec: ToolSpec) -> None:
        self._run = spec.run
        self._descriptor = ToolDescriptor(
            spec.name, spec.description, spec.parameters, spec.definition, spec.title, spec.hints
        )
        self._check = InputCheck(spec.name, spec.parameters) if spec.definition is None else None

    @property
    def name(self) -> str:
        """What a model calls it by."""
        return self._descriptor.name

    @property
    def label(self) -> str:
        """What a person is shown: the title, else the name."""
        return self._descriptor.title or self._descriptor.name

    @property
    def description(self) -> str:
        """What a model is told."""
        return self._descriptor.description

    @property
    def parameters(self) -> Mapping[str, object]:
        """The portable JSON Schema of its input."""
        return self._descriptor.parameters

    def descriptor(self) -> ToolDescriptor:
        """The tool as a model sees it."""
        return self._descriptor

    async def invoke(self, call: ToolCall, ctx: ToolContext) -> ToolOutcome:
        """Run the tool, as `run` does; the result's `wire` is copied unchanged."""
        return (await self.run(call.input, ctx)).to_outcome(call.id)

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run the tool on the input `value`; whatever it raises becomes a result with `is_error`.

        Only cancellation of the awaiting task passes.  A call whose token is cancelled already is not run.
        """
        if ctx.cancel.cancelled:
            return ToolResult.of_error(f"{self.name} was cancelled before it began.")
        given = coerce_input(value)
        if self._check is not None and (problem := self._check.problem(given)) is not None:
            return ToolResult.of_error(problem)
        try:
            result = await self._run(given, ctx)
            if self._check is not None:
                result = await fit_result(result, self.name, ctx.budget, ctx.overflow)
        except Exception as error:
            return ToolResult.of_error(f"{self.name} did not finish: {str(error) or type(error).__name__}")
        return result


A = TypeVar("A", bound=Arguments)


def typed(arguments: type[A], run: Callable[[A, ToolContext], Awaitable[ToolResult]]) -> RunTool:
    """`run`, taking its arguments as their type; for a tool whose parameters are `schema_of(arguments)`."""

    async def run_typed(value: object, ctx: ToolContext) -> ToolResult:
        return await run(read_arguments(arguments, value), ctx)

    return run_typed


def define_tool(spec: ToolSpec) -> DefinedTool:
    """The tool that `spec` describes."""
    return DefinedTool(spec)


def coerce_input(value: object) -> object:
    """`value` as a tool expects it: models send nothing, or JSON inside a string, where they mean an object."""
    if value is None:
        return {}
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return value
    return value
