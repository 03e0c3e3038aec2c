"""Clients of one server: `McpClient` for plain tests, `AsyncMcpClient` for coroutines, with the same methods.

Definitions and results are the server's own JSON.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.offers import Listing

from .answers import Question
from .notifications import Notification
from .requests import OnProgress, Requests, ServerGreeting

__tracebackhide__ = True  # in tracebacks, so that they end at the line of the test

Json = dict[str, Any]

TOLD_S: Final = 60.0  # default seconds to wait for a notification


class _Client:
    """The methods that wait for nothing, alike in both."""

    def __init__(self, requests: Requests) -> None:
        self._requests: Final = requests

    def answer(self, **answers: object) -> None:
        """Answer the server's questions from now on: `elicitation=`, `sampling=`, `roots=`.

        Each is a value, or a function of the question's params that returns one or raises `McpAnswerError`. It runs
        where the test waits for its call, so that any other exception fails the test. None: such questions are no
        longer answered. Values: the content that is accepted, or "accept", "decline", "cancel"; a model's text, or its
        whole result; a list of folders, of their URIs, or of whole roots.
        """
        self._requests.answers.give(answers)

    @property
    def questions(self) -> list[Question]:
        """The last questions of the server that were answered, the oldest first."""
        return list(self._requests.answers.questions)

    @property
    def notifications(self) -> list[Notification]:
        """The server's notifications since this test began to use it, the last 1,000, the oldest first."""
        return self._requests.hearing.notifications

    @property
    def log_messages(self) -> list[Json]:
        """The log messages among them: `level`, `data`, and the `logger` if it named one."""
        return self._requests.hearing.log_messages


class McpClient(_Client):
    """A client of one server, for tests without a loop. Times are seconds.

    A request without a result raises `ProtocolFault`: it has a `kind`, a `code`, a `remedy`, a `delivery` and, when the
    server died, its `dossier`.
    """

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> RemoteCallResult:
        """Call a tool: `text`, `content`, `structured_content`, and `is_error`, which the tool sets.

        `on_progress` takes notes of progress, which have `progress`, `total` and `message`.
        """
        return self._requests.call_tool(name, arguments, timeout, on_progress).result()

    def list_tools(self) -> list[Json]:
        """Return the definitions of all tools."""
        return self._requests.items(Listing.TOOLS).result()

    def list_prompts(self) -> list[Json]:
        """Return the definitions of all prompts."""
        return self._requests.items(Listing.PROMPTS).result()

    def list_resources(self) -> list[Json]:
        """Return the definitions of all resources."""
        return self._requests.items(Listing.RESOURCES).result()

    def list_resource_templates(self) -> list[Json]:
        """Return the definitions of all templates of resources."""
        return self._requests.items(Listing.TEMPLATES).result()

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Json:
        """Return a prompt's messages."""
        return self._requests.request("prompts/get", {"name": name, "arguments": dict(arguments or {})}).result()

    def read_resource(self, uri: str) -> Json:
        """Return a resource's contents."""
        return self._requests.request("resources/read", {"uri": uri}).result()

    def complete(self, ref: Mapping[str, object], name: str, value: str) -> Json:
        """Return values for an argument of a prompt or a template, by the spec's `ref`."""
        return self._requests.request("completion/complete", _completion(ref, name, value)).result()

    def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Json:
        """Make any other request. Return its result as the server sent it."""
        return self._requests.request(method, params or {}, timeout, on_progress).result()

    def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Notify a server of 2025-11-25, as of `notifications/roots/list_changed`; a later one receives nothing."""
        self._requests.notify(method, params or {}).result()

    def greeting(self) -> ServerGreeting:
        """Return the server's handshake: `protocol_version`, `server_info`, `capabilities`, `instructions`."""
        return self._requests.greeting().result()

    def set_log_level(self, level: str) -> None:
        """Have the server log from this level on, while the test lasts; see `log_messages`."""
        self._requests.want("log_level", level).result()

    def subscribe(self, uri: str) -> None:
        """Subscribe to a resource while the test lasts; changes are `notifications/resources/updated`."""
        self._requests.want("subscribe", uri).result()

    def unsubscribe(self, uri: str) -> None:
        """End a subscription."""
        self._requests.want("unsubscribe", uri).result()

    def wait_for_notification(self, method: str, *, timeout: float = TOLD_S) -> Notification:
        """Return the first notification of this method that no wait has returned yet; AssertionError if none comes."""
        try:
            return self._requests.told(method).result(timeout)
        except TimeoutError:
            raise AssertionError(self._requests.hearing.missing(method, timeout)) from None


class AsyncMcpClient(_Client):
    """`McpClient` for coroutines, in any task of any asyncio loop: it owns no task and no cancel scope of the test's.

    Functions that answer, and `on_progress`, may be coroutine functions.
    """

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin's
        on_progress: OnProgress | None = None,
    ) -> RemoteCallResult:
        """See `McpClient`; cancelling it tells the server."""
        return await self._requests.call_tool(name, arguments, timeout, on_progress)

    async def list_tools(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.TOOLS)

    async def list_prompts(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.PROMPTS)

    async def list_resources(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.RESOURCES)

    async def list_resource_templates(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.TEMPLATES)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Json:
        """See `McpClient`."""
        return await self._requests.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def read_resource(self, uri: str) -> Json:
        """See `McpClient`."""
        return await self._requests.request("resources/read", {"uri": uri})

    async def complete(self, ref: Mapping[str, object], name: str, value: str) -> Json:
        """See `McpClient`."""
        return await self._requests.request("completion/complete", _completion(ref, name, value))

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin's
        on_progress: OnProgress | None = None,
    ) -> Json:
        """See `McpClient`."""
        return await self._requests.request(method, params or {}, timeout, on_progress)

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """See `McpClient`."""
        await self._requests.notify(method, params or {})

    async def greeting(self) -> ServerGreeting:
        """See `McpClient`."""
        return await self._requests.greeting()

    async def set_log_level(self, level: str) -> None:
        """See `McpClient`."""
        await self._requests.want("log_level", level)

    async def subscribe(self, uri: str) -> None:
        """See `McpClient`."""
        await self._requests.want("subscribe", uri)

    async def unsubscribe(self, uri: str) -> None:
        """See `McpClient`."""
        await self._requests.want("unsubscribe", uri)

    async def wait_for_notification(
        self,
        method: str,
        *,
        timeout: float = TOLD_S,  # noqa: ASYNC109 - as its twin's
    ) -> Notification:
        """See `McpClient`."""
        try:
            async with asyncio.timeout(timeout):
                return await self._requests.told(method)
        except TimeoutError:
            raise AssertionError(self._requests.hearing.missing(method, timeout)) from None


def _completion(ref: Mapping[str, object], name: str, value: str) -> Json:
    return {"ref": dict(ref), "argument": {"name": name, "value": value}}
