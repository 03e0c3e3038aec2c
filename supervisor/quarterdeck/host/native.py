"""A native tool as an MCP client is shown it.  Pure, and light: commands show the same."""

from quarterdeck_protocol.tools import ToolDescriptor


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
    return form
