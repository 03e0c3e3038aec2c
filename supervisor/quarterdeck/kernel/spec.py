"""A tool: what a model is told about it, and the function that runs it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from quarterdeck_protocol.tools import ToolCall, ToolDescriptor, ToolHints, ToolOutcome

from .arguments import Arguments, read_arguments
from .context import ToolContext
from .overflow import fit_result
from .results import ToolResult
from .validation import InputCheck

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
