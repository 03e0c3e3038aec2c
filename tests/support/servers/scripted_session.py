"""An SDK client session whose server is a script: each method has its answer, in memory, in one event loop."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, METHOD_NOT_FOUND, MODERN, Answer, JsonObject

PATIENCE_S: Final = 30.0
"""Patience with a wait that ends at once unless something is broken."""


class ScriptedServer:
    """The far end of a session; `asked` holds every message that it was sent."""

    def __init__(self, answers: Mapping[str, Answer], send: Callable[[SessionMessage], Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[JsonObject] = []
        self.hears = anyio.Event()
        self._send = send

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.asked if "method" in message]

    async def say(self, message: JsonObject) -> None:
        complete = types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})
        await self._send(SessionMessage(complete))

    async def until(self, method: str) -> JsonObject:
        """Wait until a message of this method came, and return it."""
        with anyio.fail_after(PATIENCE_S):
            while method not in self.methods:
                self.hears = anyio.Event()
                await self.hears.wait()
        return next(message for message in self.asked if message.get("method") == method)

    async def take(self, item: SessionMessage) -> None:
        message: JsonObject = item.message.model_dump(by_alias=True, exclude_unset=True)
        self.asked.append(message)
        self.hears.set()
        if "id" not in message or "method" not in message:
            return
        answer = self.answers.get(message["method"], METHOD_NOT_FOUND)
        reply = answer(message.get("params") or {}) if callable(answer) else answer
        if reply is not None:
            await self.say({"id": message["id"], **reply})


@asynccontextmanager
async def scripted_session(
    answers: Mapping[str, Answer],
    era: str | None = None,
    dispatcher: type[JSONRPCDispatcher[Any]] = JSONRPCDispatcher,
    **members: Any,
) -> AsyncIterator[tuple[ClientSession, ScriptedServer]]:
    """A session with these `members`, entered but not greeted unless an `era` is adopted."""
    async with create_client_server_memory_streams() as ((read, write), (heard, said)):
        server = ScriptedServer(answers, said.send)

        async def serve() -> None:
            async for item in heard:
                assert isinstance(item, SessionMessage)
                await server.take(item)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with ClientSession(dispatcher=dispatcher(read, write), **members) as session:
                if era == LEGACY:
                    session.adopt(types.InitializeResult.model_validate(INITIALIZED["result"]))
                elif era == MODERN:
                    session.adopt(types.DiscoverResult.model_validate(DISCOVERED["result"]))
                yield session, server
            tasks.cancel_scope.cancel()
