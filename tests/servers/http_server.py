"""Pretends to be a remote MCP server on 127.0.0.1: streamable HTTP (both eras) or legacy SSE, built on the SDK.

Prints one line of JSON when it listens: `{"port": ..., "url": ...}`.  Ends on SIGTERM, and with its stdin where that is
a pipe, so that it never outlives the test that started it.
"""

import argparse
import json
import os
import socket
import stat
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

Context = ServerRequestContext[Any, Any]
Arguments = dict[str, Any]

HOST: Final = "127.0.0.1"
SSE_PATH: Final = "/sse"
STREAMABLE_PATH: Final = "/mcp"

SHUTDOWN_S: Final = 1
"""Patience with open streams once told to end; a listening client never closes its own."""


async def echo(context: Context, arguments: Arguments) -> types.CallToolResult:
    return _text(arguments["text"])


async def add(context: Context, arguments: Arguments) -> types.CallToolResult:
    total = arguments["a"] + arguments["b"]
    return _text(str(total), {"sum": total})


async def slow(context: Context, arguments: Arguments) -> types.CallToolResult:
    await anyio.sleep(arguments["seconds"])
    return _text(f"slept {arguments['seconds']} s")


async def progress(context: Context, arguments: Arguments) -> types.CallToolResult:
    total = arguments["n"]
    for step in range(1, total + 1):
        await context.session.report_progress(step, total, f"step {step}")
    return _text(f"{total} steps")


def _text(text: str, structured: dict[str, Any] | None = None, *, is_error: bool = False) -> types.CallToolResult:
    block = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[block], structured_content=structured, is_error=is_error)


TOOLS: Final[dict[str, tuple[Callable[[Context, Arguments], Awaitable[types.CallToolResult]], dict[str, str]]]] = {
    "echo": (echo, {"text": "string"}),
    "add": (add, {"a": "number", "b": "number"}),
    "slow": (slow, {"seconds": "number"}),
    "progress": (progress, {"n": "integer"}),
}
"""Name -> what it does, and the type of each argument."""


async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_definition(name, arguments) for name, (_, arguments) in TOOLS.items()])


def _definition(name: str, arguments: dict[str, str]) -> types.Tool:
    properties = {argument: {"type": kind} for argument, kind in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    output = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
    return types.Tool(
        name=name, title=name.title(), input_schema=schema, output_schema=output if name == "add" else None
    )


async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        run, _ = TOOLS[params.name]
        return await run(context, params.arguments or {})
    except (LookupError, TypeError) as error:
        return _text(f"{type(error).__name__}: {error}", is_error=True)


async def die(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    os._exit(1)


@dataclass(frozen=True)
class SseEndpoint:
    """Serve one legacy SSE session a request."""

    server: Server[Any]
    transport: SseServerTransport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the server on this request's stream until the client leaves."""
        async with self.transport.connect_sse(scope, receive, send) as (reader, writer):
            await self.server.run(reader, writer, self.server.create_initialization_options())


@dataclass(frozen=True)
class TokenCheck:
    """Let in only who brings the bearer token."""

    app: ASGIApp
    token: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        wanted = (b"authorization", f"Bearer {self.token}".encode())
        if scope["type"] == "http" and wanted not in scope["headers"]:
            challenge = {"WWW-Authenticate": 'Bearer realm="tests", error="invalid_token"'}
            await JSONResponse({"error": "invalid_token"}, status_code=401, headers=challenge)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


async def legacy_only(context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Know nothing of the modern era, as most servers in the field."""
    if context.method == "server/discover":
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
    return await call_next(context)


def application(server: Server[Any], transport: str) -> ASGIApp:
    if transport == "streamable":
        return server.streamable_http_app(streamable_http_path=STREAMABLE_PATH, host=HOST)
    sse = SseServerTransport("/messages/")
    endpoint = Route(SSE_PATH, endpoint=SseEndpoint(server, sse), methods=["GET"])
    return Starlette(routes=[endpoint, Mount("/messages/", app=sse.handle_post_message)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", choices=("streamable", "sse"), default="streamable")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--require-token", metavar="T", help="answer 401 to requests without this bearer token")
    parser.add_argument("--die-on-call", action="store_true", help="exit at the first tools/call")
    parser.add_argument("--legacy", action="store_true", help="speak the legacy era alone")
    options = parser.parse_args()
    on_call = die if options.die_on_call else call_tool
    server = Server("http", version="1.0.0", on_list_tools=list_tools, on_call_tool=on_call)
    if options.legacy:
        server.middleware.append(legacy_only)
    app = application(server, options.transport)
    if options.require_token:
        app = TokenCheck(app, options.require_token)
    listen_and_serve(app, options.port, STREAMABLE_PATH if options.transport == "streamable" else SSE_PATH)


def listen_and_serve(app: ASGIApp, port: int, path: str, tls: Sequence[str] | None = None) -> None:
    """Serve on `HOST`, by a certificate and its key if given, and tell where, until SIGTERM or the end of stdin."""
    # Listening before it is announced: a client that connects at once waits instead of being refused.
    # Not `create_server`: asyncio sets TCP_NODELAY only for sockets that say what they are, and each call took 44 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen()
    port = listener.getsockname()[1]
    scheme, (cert, key) = ("https", tls) if tls else ("http", (None, None))
    print(json.dumps({"port": port, "url": f"{scheme}://{HOST}:{port}{path}"}), flush=True)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_leave_with_stdin, daemon=True).start()
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_S, ssl_certfile=cert, ssl_keyfile=key
    )
    uvicorn.Server(config).run(sockets=[listener])


def _leave_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
