"""News of tasks on the streams of clients of 2026-07-28: `taskIds` of `subscriptions/listen`, which the SDK knows not.

Source: the Tasks Extension (SEP-2663), "Task Status Notifications".
"""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import anyio
import mcp_types as types
import msgspec
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import EXTENSION, MISSING_CAPABILITY, takes_tasks
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import Client

from .budget.budgeted import state_within_budget
from .caller import CapabilitiesOnly, of_task_may_have_schema
from .offers.content import Content
from .sdk_requests import Context, wire_request

MAX_TASKS: Final = 100
"""Tasks that one stream may name; of more, these are told of."""

MAX_WAITING: Final = 64
"""States that wait for a slow client; more are dropped, for each task is looked at again."""


@asynccontextmanager
async def tasks_told(content: Content, client: Client, context: Context) -> AsyncIterator[Context]:
    """Tell a stream of the tasks that its request names, while it is open; yields the context to serve it in.

    What is raised inside comes out as it is.

    Raises:
        MCPError: its client takes no tasks.
    """
    wanted = _named(context)
    if not wanted or content.offers is None:
        yield context
        return
    capabilities = wire_request(context).capabilities
    if not takes_tasks(capabilities):
        needed: dict[str, object] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_CAPABILITY, "Missing required client capability", needed)
    send, receive = anyio.create_memory_object_stream[bytes](MAX_WAITING)

    def tell(task: str, state: bytes) -> None:
        # A result that cannot be read is a fault where it is asked for: a stream has no word for it.
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError, BodyError):
            if content.results is not None:
                has_schema = partial(of_task_may_have_schema, content.box, content.offers, client, task)
                state = state_within_budget(content.results, client.key, state, has_schema)
            send.send_nowait(state)

    acknowledged = anyio.Event()

    async def pass_on() -> None:
        await acknowledged.wait()
        # Private, but the only way to a notification that the SDK does not know (mcp 2.3).
        channel = context.session._request_outbound  # noqa: SLF001
        async for state in receive:
            params = msgspec.json.decode(state, type=dict[str, object])
            meta = params.get("_meta")
            stamp = {SUBSCRIPTION_ID_META_KEY: context.request_id}
            params["_meta"] = {**meta, **stamp} if isinstance(meta, dict) else stamp
            await channel.notify("notifications/tasks", params)

    failure: Exception | None = None
    with ExitStack() as stack:
        stack.callback(receive.close)
        stack.callback(send.close)
        honored: list[str] = []
        for task in wanted:
            params = msgspec.json.encode({"taskId": task})
            look = RawRequest("tasks/get", params, client=client, answerer=CapabilitiesOnly(capabilities))
            if (forget := content.offers.watch_task(look, partial(tell, task))) is not None:
                stack.callback(forget)
                honored.append(task)
        session = _Acknowledging(context.session, honored, acknowledged.set)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on)
            try:
                yield replace(context, session=cast("ServerSession", session))
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _named(context: Context) -> list[str]:
    """The ids that a request names, each once; what is none is none."""
    notifications = (context.params or {}).get("notifications")
    found = notifications.get("taskIds") if isinstance(notifications, dict) else None
    if not isinstance(found, list):
        return []
    return list(dict.fromkeys(each for each in found if isinstance(each, str)))[:MAX_TASKS]


class _Acknowledging:
    """A session whose acknowledgement of a stream names the tasks that it tells of; all else is the session's."""

    def __init__(self, session: ServerSession, tasks: list[str], on_acknowledged: Callable[[], None]) -> None:
        self._session = session
        self._tasks = tasks
        self._on_acknowledged = on_acknowledged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(self, notification: types.ServerNotification, **options: Any) -> None:
        """See `ServerSession`."""
        if isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            params = notification.params
            if self._tasks:
                honored = params.notifications.model_copy(update={"taskIds": self._tasks})
                params = params.model_copy(update={"notifications": honored})
            await self._session.send_notification(notification.model_copy(update={"params": params}), **options)
            self._on_acknowledged()
        else:
            await self._session.send_notification(notification, **options)
