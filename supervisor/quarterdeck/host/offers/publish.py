"""How tools are shown to MCP clients: a server's whole definition under its qualified name, a native tool's own form.

No I/O.  Nothing of a definition is interpreted but its name; the rest is forwarded as the server wrote it.  What a
client's protocol revision forbids is shown in a plainer form: a client refuses a whole list for one bad tool.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX, BodyError, check_depth
from quarterdeck_protocol.mcp.tasks import without_task_support
from quarterdeck_protocol.tools import ToolDescriptor

_STRUCTURES_SINCE: Final = "2025-06-18"
"""The revision that brought output schemas and structured content."""


def knows_structures(version: str) -> bool:
    """Whether a client of the protocol revision `version` knows output schemas and structured content."""
    return version >= _STRUCTURES_SINCE  # dates


def native_form(descriptor: ToolDescriptor) -> dict[str, object]:
    """The tool object: what a model is told of the tool, what a person is shown, and what a client may assume.

    Source: MCP specification, "Tools", section Tool; `ToolAnnotations` in its schema.
    """
    form: dict[str, object] = {
        "name": descriptor.name,
        "description": descriptor.description,
        "inputSchema": dict(descriptor.parameters),
    }
    if descriptor.title:
        form["title"] = descriptor.title
    if (hints := descriptor.hints) is not None:
        form["annotations"] = {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive and not hints.read_only,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        }
    if descriptor.output_schema is not None:
        form["outputSchema"] = dict(descriptor.output_schema)
    return form


MAX_DEFINITION_DEPTH: Final = 240
"""Nesting of one definition; a list adds a few levels, and serialisers stop at 256."""

Shown = dict[str, object]

_HEADER_MARK: Final = b"x-mcp-header"

_logger = logging.getLogger(__name__)


class Catalog:
    """The published form of a box's tools; each is made once per protocol revision, while its descriptor lives."""

    def __init__(self, *, portable_schemas: bool = False) -> None:
        self._portable = portable_schemas
        self._known: dict[str, dict[str, _Form]] = {}

    def publish_json(
        self, descriptors: Sequence[ToolDescriptor], version: str, *, only: Sequence[ToolDescriptor] | None = None
    ) -> list[bytes]:
        """The tools as a client of `version` is shown them, each as JSON; what cannot be shown is left out.

        `only` are those of them that this client may use.
        """
        return [form.json for form in self._shown(descriptors, version, only)]

    def publish(
        self, descriptors: Sequence[ToolDescriptor], version: str, *, only: Sequence[ToolDescriptor] | None = None
    ) -> list[Shown]:
        """The same as values."""
        return [form.value for form in self._shown(descriptors, version, only)]

    def _shown(
        self, descriptors: Sequence[ToolDescriptor], version: str, only: Sequence[ToolDescriptor] | None
    ) -> "list[_Form]":
        # Of all, whoever asks: each form is made once.
        forms = self._forms(descriptors, version)
        if only is None or only is descriptors:
            return [form for form in forms if form.json]
        names = {tool.name for tool in only}
        return [form for form in forms if form.json and form.descriptor.name in names]

    def _forms(self, descriptors: Sequence[ToolDescriptor], version: str) -> "Collection[_Form]":
        old = self._known.get(version, {})
        known: dict[str, _Form] = {}
        for descriptor in descriptors:
            form = old.get(descriptor.name)
            if form is None or not is_same_form(form.descriptor, descriptor):
                form = _Form(descriptor, self._show(descriptor, version))
            known.setdefault(descriptor.name, form)
        self._known[version] = known
        return known.values()

    def header_schema(
        self, descriptors: Sequence[ToolDescriptor], name: str, version: str
    ) -> Mapping[str, object] | None:
        """The input schema of a tool that mirrors arguments into HTTP headers, None for every other tool."""
        found = next((each for each in descriptors if each.name == name), None)
        if found is None or found.definition is None or _HEADER_MARK not in found.definition:
            return None
        shown = next((tool for tool in self.publish(descriptors, version) if tool["name"] == name), {})
        schema = shown.get("inputSchema")
        return schema if isinstance(schema, dict) else None

    def _show(self, descriptor: ToolDescriptor, version: str) -> bytes:
        if descriptor.output_schema is not None and not knows_structures(version):
            descriptor = replace(descriptor, output_schema=None)
        if descriptor.definition is not None and is_modern(version):
            # Calls of these clients become no tasks of servers of 2025-11-25, the era whose word it is.
            descriptor = replace(descriptor, definition=without_task_support(descriptor.definition))
        if (plain := as_listed(descriptor)) and not (self._portable and descriptor.definition is not None):
            return plain
        for form, shown in forms(descriptor, portable_schemas=self._portable):
            if is_valid(shown, version):
                if form:
                    _logger.warning("the tool %s is shown %s to clients of %s", descriptor.name, form, version)
                return msgspec.json.encode(shown)
        _logger.warning("the tool %s cannot be shown to clients of %s", descriptor.name, version)
        return b""


class _Form:
    """One tool as it is shown: as JSON, empty when it cannot be, and as a value when one is asked for."""

    __slots__ = ("_value", "descriptor", "json")

    def __init__(self, descriptor: ToolDescriptor, json: bytes) -> None:
        self.descriptor = descriptor
        self.json = json
        self._value: Shown | None = None

    @property
    def value(self) -> Shown:
        """It, decoded."""
        if self._value is None:
            self._value = msgspec.json.decode(self.json, type=dict[str, object])
        return self._value


def as_listed(descriptor: ToolDescriptor) -> bytes:
    """The definition as it was written, but for its name; empty where it is not plainly right in every revision."""
    try:
        definition = descriptor.definition or msgspec.json.encode(native_form(descriptor))
        if b"\n" in definition or b"\r" in definition:
            return b""  # a line ends there
        check_depth(definition, MAX_DEFINITION_DEPTH)
        tool = _plain_tool.decode(definition)
        if any(name.startswith(ENVELOPE_PREFIX) for name in tool.meta or ()):
            return b""
        members = _members.decode(definition)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError, BodyError):
        return b""
    members["name"] = Raw(msgspec.json.encode(descriptor.name))
    return msgspec.json.encode(members)


class _PlainSchema(msgspec.Struct, gc=False):
    type: Literal["object"]
    schema: str | None = msgspec.field(name="$schema", default=None)
    properties: dict[str, dict[str, Raw] | bool] | None = None
    required: list[str] | None = None


class _PlainHints(msgspec.Struct, gc=False):
    title: str | None = None
    destructiveHint: bool | None = None  # noqa: N815 - the wire's names
    idempotentHint: bool | None = None  # noqa: N815
    openWorldHint: bool | None = None  # noqa: N815
    readOnlyHint: bool | None = None  # noqa: N815


class _PlainIcon(msgspec.Struct, gc=False):
    src: str
    mimeType: str | None = None  # noqa: N815
    sizes: list[str] | None = None
    theme: Literal["dark", "light"] | None = None


class _PlainExecution(msgspec.Struct, gc=False):
    taskSupport: Literal["forbidden", "optional", "required"] | None = None  # noqa: N815


class _PlainTool(msgspec.Struct, gc=False):
    """A tool that every revision of the protocol takes; stricter than any."""

    name: str
    inputSchema: _PlainSchema  # noqa: N815
    outputSchema: _PlainSchema | None = None  # noqa: N815
    title: str | None = None
    description: str | None = None
    annotations: _PlainHints | None = None
    icons: list[_PlainIcon] | None = None
    execution: _PlainExecution | None = None
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class _ModernTool(_PlainTool, gc=False):
    """One as 2026-07-28 takes it, whose output may be anything."""

    outputSchema: dict[str, object] | None = None  # type: ignore[assignment]  # noqa: N815


_modern_tool: Final = msgspec.json.Decoder(_ModernTool)
_plain_tool: Final = msgspec.json.Decoder(_PlainTool)
_members: Final = msgspec.json.Decoder(dict[str, Raw])


def is_valid(tool: Shown, version: str) -> bool:
    """Whether a client of `version` accepts a list with this tool in it; a test holds it against the SDK."""
    try:
        (_modern_tool if is_modern(version) else _plain_tool).decode(json.dumps(tool))
    except (msgspec.DecodeError, ValueError):
        return False
    return True


def forms(descriptor: ToolDescriptor, *, portable_schemas: bool = False) -> Iterator[tuple[str, Shown]]:
    """The forms in which a tool can be shown, best first, each with what is wrong with it (nothing for the first)."""
    plain = native_form(descriptor)
    if descriptor.definition is None:
        yield "", plain
        return
    try:
        tool = _whole(descriptor.definition)
    except BodyError as error:
        yield f"without its definition, which is {error},", plain
        return
    tool["name"] = descriptor.name
    if portable_schemas:
        tool["inputSchema"] = plain["inputSchema"]
    yield "", tool
    # A 2026-07-28 server may describe output that is not an object; earlier clients refuse to read of it.
    yield "without its output schema", {key: value for key, value in tool.items() if key != "outputSchema"}
    yield "without its definition, which is invalid,", plain


def is_same_form(known: ToolDescriptor, descriptor: ToolDescriptor) -> bool:
    """Whether the form of `known` is that of `descriptor`."""
    if known is descriptor:
        return True
    # Each client has native tools of its own, all alike; to compare what a server wrote takes time of its choosing.
    return descriptor.hints is not None and descriptor.definition is None and known == descriptor


def _whole(definition: bytes) -> Shown:
    check_depth(definition, MAX_DEFINITION_DEPTH)
    try:
        tool = msgspec.json.decode(definition, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not one JSON object", error) from None
    return tool
