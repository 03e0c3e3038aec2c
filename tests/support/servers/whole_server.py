"""A server on the SDK with one of everything that MCP has, in memory: what it says to an SDK's session and to a relay.

Its lists have two pages.  `ask` asks for what its argument names: an older client by a request in the middle of the
call, a modern one by its result.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

Context = ServerRequestContext[Any, Any]
Page = types.PaginatedRequestParams | None

ICON: Final = types.Icon(src="data:image/png;base64,AA==", mime_type="image/png", sizes=["1x1"])
TEXT: Final = types.TextContent(
    type="text", text="ä \u2028 \U0001f600", annotations=types.Annotations(audience=["user"])
)
FORM: Final[dict[str, Any]] = {"type": "object", "properties": {"name": {"type": "string"}}}

BLOCKS: Final[list[Any]] = [
    TEXT,
    types.ImageContent(type="image", data="AA==", mime_type="image/png"),
    types.AudioContent(type="audio", data="AA==", mime_type="audio/wav"),
    types.ResourceLink(type="resource_link", uri="file:///a", name="a", size=1),
    types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri="file:///a", text="x", mime_type="text/plain")
    ),
]

QUESTIONS: Final[dict[str, Callable[[], Any]]] = {
    "elicitation/create": lambda: types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="Who?", requested_schema=FORM)
    ),
    "roots/list": types.ListRootsRequest,
    "sampling/createMessage": lambda: types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=TEXT)], max_tokens=5
        )
    ),
}
"""What `ask` may ask."""

ANSWERS: Final[dict[str, Any]] = {
    "elicitation/create": types.ElicitResult(action="accept", content={"name": "n"}),
    "roots/list": types.ListRootsResult.model_validate({"roots": [{"uri": "file:///a"}]}),
    "sampling/createMessage": types.CreateMessageResult(role="assistant", content=TEXT, model="m"),
}
"""What a client answers."""


def whole_server() -> Server[Any]:
    """A new one."""
    bus = InMemorySubscriptionBus()

    def tool(name: str, **members: Any) -> types.Tool:
        return types.Tool(name=name, input_schema={"type": "object", "x": None}, **members)

    async def tools(context: Context, params: Page) -> types.ListToolsResult:
        if params is None or params.cursor is None:
            first = tool("blocks", title="B", icons=[ICON], _meta={"own/key": {"a": None}})
            return types.ListToolsResult(tools=[first], next_cursor="2")
        hints = types.ToolAnnotations(title="A", read_only_hint=True)
        return types.ListToolsResult(tools=[tool("ask", annotations=hints), tool("talk"), tool("fail")])

    async def call(context: Context, params: types.CallToolRequestParams) -> Any:
        arguments = params.arguments or {}
        match params.name:
            case "ask" if context.session.can_send_request:
                await context.session.send_request(
                    QUESTIONS[arguments["what"]](), type(ANSWERS[arguments["what"]]), metadata=None
                )
                return types.CallToolResult(content=[TEXT])
            case "ask" if params.input_responses is None:
                return types.InputRequiredResult(
                    input_requests={"k": QUESTIONS[arguments["what"]]()}, request_state="round"
                )
            case "talk":
                await context.session.report_progress(1, 2, "half")
                await context.session.send_log_message(level="warning", data={"a": [1]}, logger="own")
                await context.session.send_tool_list_changed()
                await bus.publish(ToolsListChanged())
            case "fail":
                raise MCPError(-32602, "no", {"why": ["x", None]})
        return types.CallToolResult(content=BLOCKS, structured_content={"n": None, "a": arguments}, _meta={"own": 1})

    async def resources(context: Context, params: Page) -> types.ListResourcesResult:
        if params is None or params.cursor is None:
            first = types.Resource(uri="file:///a", name="a", size=1, icons=[ICON])
            return types.ListResourcesResult(resources=[first], next_cursor="2")
        return types.ListResourcesResult(resources=[types.Resource(uri="odd:b", name="b")])

    async def templates(context: Context, params: Page) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[types.ResourceTemplate(uri_template="file:///{path}", name="t")]
        )

    async def read(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        blob = types.BlobResourceContents(uri=params.uri, blob="AA==", mime_type="x/y")
        return types.ReadResourceResult(contents=[blob, types.TextResourceContents(uri="file:///a", text="x\ny")])

    async def prompts(context: Context, params: Page) -> types.ListPromptsResult:
        argument = types.PromptArgument(name="a", required=True)
        return types.ListPromptsResult(prompts=[types.Prompt(name="p", arguments=[argument])])

    async def prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        said = [types.PromptMessage(role="user", content=block) for block in BLOCKS]
        return types.GetPromptResult(messages=said, description=str(params.arguments))

    async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[params.argument.value], total=1))

    async def nothing(context: Context, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    return Server(
        "whole",
        version="1",
        title="Whole",
        instructions="one of everything",
        icons=[ICON],
        on_list_tools=tools,
        on_call_tool=call,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_list_prompts=prompts,
        on_get_prompt=prompt,
        on_completion=complete,
        on_set_logging_level=nothing,
        on_subscriptions_listen=ListenHandler(bus),
    )


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Any, Any]]:
    """A new server that runs, and a client's streams to it."""
    server = whole_server()
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with (
        create_client_server_memory_streams() as ((read, write), (heard, said)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.run, heard, said, options)
        yield read, write
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def served_lines() -> AsyncIterator[tuple[MemoryObjectReceiveStream[bytes], Callable[[bytes], Any]]]:
    """A new server that runs, the lines that it writes, and what takes the lines that are written to it."""
    lines: MemoryObjectSendStream[bytes]
    lines, written = anyio.create_memory_object_stream[bytes](1_000)
    async with served() as (read, write), lines, written, anyio.create_task_group() as tasks:

        async def pass_on() -> None:
            async for item in read:
                assert isinstance(item, SessionMessage)
                text: str = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await lines.send(text.encode())

        async def say(data: bytes) -> None:
            for line in data.splitlines():
                await write.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

        tasks.start_soon(pass_on)
        yield written, say
        tasks.cancel_scope.cancel()
