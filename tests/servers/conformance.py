"""The server that `@modelcontextprotocol/conformance` tests: one of everything, on the SDK, in both eras.

On stdio; with `--http` on 127.0.0.1, where it prints `{"port": ..., "url": ...}` once it listens.  `--legacy` has it
speak the older era alone, as most servers in the field.
"""

import argparse
import warnings
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from asking import Context, JsonObject, ask, result_of
from conformance_offer import (
    BLOCKS,
    CAPABLE,
    EMPTY,
    ICON,
    INSTRUCTIONS,
    PROMPT_QUESTIONS,
    PROMPTS,
    QUESTIONS,
    RESOURCES,
    TEMPLATES,
    WATCHED,
    WITH_STATE,
    contents,
    messages,
    text,
    tools,
)
from http_server import HOST, STREAMABLE_PATH, legacy_only, listen_and_serve
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

STEP_S: Final = 0.02
"""Between log lines, and between steps of progress: each can be seen to come by itself."""

WAIT_S: Final = 300.0
"""A call that is there to be cancelled."""

MISSING_CAPABILITY: Final = -32021


class Everything(Server[Any]):
    """The server.

    Attributes:
        bus: tells modern clients of changes.
        watched: what older clients subscribed to.
        cancelled: how many calls were.
        tells_all: whether an older client wants to hear what is no more than information.
        more: of which kind it offers one more for now.
    """

    def __init__(self, *, is_legacy: bool) -> None:
        self.bus: Final = InMemorySubscriptionBus()
        self.watched: Final[set[str]] = set()
        self.cancelled = 0
        self.tells_all = True
        self.more: Final[dict[str, bool]] = {"tool": False, "prompt": False, "resource": False}
        super().__init__(
            "mcp-conformance-test-server",
            version="1.0.0",
            title="Conformance",
            instructions=INSTRUCTIONS,
            icons=[types.Icon.model_validate(ICON)],
            on_list_tools=self._list_tools,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._prompt,
            on_completion=self._complete,
            on_set_logging_level=self._set_level,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        if is_legacy:
            self.middleware.append(legacy_only)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        """Announce each kind of change over HTTP, too, where the SDK asks for none."""
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(notification_options or every, *args, **kwargs)

    async def _list_tools(self, context: Context, params: Any) -> Any:
        return _listed(tools=[*tools(), *self._more("tool", inputSchema=EMPTY)])

    async def _list_resources(self, context: Context, params: Any) -> Any:
        at = int(params.cursor) if params is not None and params.cursor else 0
        offered = [*RESOURCES, *self._more("resource", uri="test://one-more")]
        rest = {"nextCursor": str(at + 2)} if at + 2 < len(offered) else {}
        return _listed(resources=offered[at : at + 2], **rest)

    async def _list_templates(self, context: Context, params: Any) -> Any:
        return _listed(resourceTemplates=TEMPLATES)

    async def _list_prompts(self, context: Context, params: Any) -> Any:
        return _listed(prompts=[*PROMPTS, *self._more("prompt")])

    def _more(self, kind: str, **members: Any) -> list[JsonObject]:
        return [{"name": "one_more", "description": "There for now", **members}] if self.more[kind] else []

    async def _read(self, context: Context, params: types.ReadResourceRequestParams) -> Any:
        found = contents(str(params.uri))
        if found is None:
            code = -32002 if context.session.can_send_request else types.INVALID_PARAMS
            raise MCPError(code, "Resource not found", {"uri": str(params.uri)})
        return _listed(contents=found)

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> Any:
        self.watched.add(str(params.uri))
        return {}

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> Any:
        self.watched.discard(str(params.uri))
        return {}

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> Any:
        self.tells_all = params.level in ("debug", "info")
        return {}

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> Any:
        given = params.context.arguments if params.context is not None and params.context.arguments else {}
        values = [params.argument.value + more for more in ("", "is", "k", *given.values())]
        return {"resultType": "complete", "completion": {"values": values, "total": 150, "hasMore": True}}

    async def _prompt(self, context: Context, params: types.GetPromptRequestParams) -> Any:
        if params.name == "test_input_required_result_prompt":
            return await result_of(self._asking_prompt(context))
        found = messages(params.name, params.arguments or {})
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name}")
        return {"resultType": "complete", "description": f"From {params.name}", "messages": found}

    async def _asking_prompt(self, context: Context) -> JsonObject:
        told = await ask(context, PROMPT_QUESTIONS)
        return {"resultType": "complete", "messages": [{"role": "user", "content": text(str(told))}]}

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Any:
        return await result_of(self._called(context, params.name, params.arguments or {}))

    async def _called(self, context: Context, name: str, arguments: JsonObject) -> JsonObject:
        if name in BLOCKS:
            return _result(*BLOCKS[name], _meta={"example.com/of": name})
        if name in QUESTIONS:
            told = await ask(context, QUESTIONS[name], with_state=name in WITH_STATE)
            return _result(text(f"state-ok: was told {sorted(told.items())}"))
        match name:
            case "test_error_handling":
                return _result(text("This tool intentionally returns an error for testing"), isError=True)
            case "test_also_protocol_error":
                raise MCPError(-31999, "This tool fails by the protocol", {"why": ["on purpose", None]})
            case "test_also_add":
                total = arguments["a"] + arguments["b"]
                return _result(text(str(total)), structuredContent={"sum": total})
            case "test_header_echo" | "json_schema_2020_12_tool":
                return _result(text(str(arguments)))
            case "test_tool_with_logging" | "test_logging_tool":
                for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                    if self.tells_all:
                        await context.session.send_log_message("info", line, "conformance", context.request_id)
                    await anyio.sleep(STEP_S)
                return _result(text("logged"))
            case "test_tool_with_progress":
                for step in (0, 50, 100):
                    await context.session.report_progress(step, 100, f"step {step}")
                    await anyio.sleep(STEP_S)
                return _result(text("done"))
            case "test_missing_capability":
                if not _capabilities(context).get("sampling"):
                    raise MCPError(MISSING_CAPABILITY, "sampling is needed", {"requiredCapabilities": {"sampling": {}}})
                return _result(text("there is sampling"))
            case "test_input_required_result_capabilities":
                can = _capabilities(context)
                return _result(text(str(await ask(context, [{k: q for k, q in CAPABLE.items() if k in can}]))))
            case "test_also_wait":
                try:
                    await anyio.sleep(WAIT_S)
                except anyio.get_cancelled_exc_class():
                    self.cancelled += 1
                    raise
                return _result(text("nobody cancelled"))
            case "test_also_was_cancelled":
                return _result(text(str(self.cancelled)))
        return await self._triggered(context, name)

    async def _triggered(self, context: Context, name: str) -> JsonObject:
        session = context.session
        match name:
            case "test_trigger_tool_change":
                self.more["tool"] ^= True
                await session.send_tool_list_changed()
                await self.bus.publish(ToolsListChanged())
            case "test_trigger_prompt_change":
                self.more["prompt"] ^= True
                await session.send_prompt_list_changed()
                await self.bus.publish(PromptsListChanged())
            case "test_also_trigger_resource_change":
                self.more["resource"] ^= True
                await session.send_resource_list_changed()
                await self.bus.publish(ResourcesListChanged())
            case "test_also_trigger_update":
                if WATCHED in self.watched:
                    await session.send_resource_updated(WATCHED)
                await self.bus.publish(ResourceUpdated(uri=WATCHED))
            case _:
                raise MCPError(types.INVALID_PARAMS, f"there is no tool {name}")
        return _result(text("told"))


def _result(*content: JsonObject, **members: Any) -> JsonObject:
    return {"resultType": "complete", "content": list(content), **members}


def _listed(**members: Any) -> JsonObject:
    return {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private", **members}


def _capabilities(context: Context) -> dict[str, object]:
    found = context.session.client_capabilities
    return {} if found is None else {key: value for key, value in found if value is not None}


async def _serve_stdio(server: Everything, *, is_legacy: bool) -> None:
    options = server.create_initialization_options()
    async with stdio_server() as (reader, writer):
        if not is_legacy:
            await server.run(reader, writer, options)
            return
        # `run` takes a first request of the modern era for the era of the connection, even one that is refused.
        async with server.lifespan(server) as state:
            await serve_loop(server, reader, writer, lifespan_state=state, init_options=options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--port", type=int, default=0, help="with --http; 0: any free one")
    parser.add_argument("--legacy", action="store_true", help="speak the legacy era alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    server = Everything(is_legacy=options.legacy)
    if options.http:
        app = server.streamable_http_app(streamable_http_path=STREAMABLE_PATH, host=HOST)
        listen_and_serve(app, options.port, STREAMABLE_PATH)
    else:
        anyio.run(partial(_serve_stdio, server, is_legacy=options.legacy))


if __name__ == "__main__":
    main()
