"""Serve one `subscriptions/listen`: subscribe what it names, acknowledge it, tell of changes until it ends."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from quarterdeck.host.budget.budgeted import state_within_budget
from quarterdeck.host.caller import CapabilitiesOnly, of_task_may_have_schema
from quarterdeck.host.calls import end_of
from quarterdeck.host.offers.content import Content
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.server.subscriptions import ChangeStream
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CancelToken, Client, WireResult

from .news import ClientNews
from .work import SUBSCRIBE, TaskWork

MAX_STREAMS: Final = 1024
"""Of one session."""

MAX_WAITING: Final = 64
"""States of tasks that wait for the acknowledgement; of more the oldest are dropped."""

SUBSCRIBE_S: Final = 10.0
"""How long servers may take to subscribe what a stream names, before it is acknowledged all the same."""


class StreamWork(TaskWork, kw_only=True):
    """One stream of changes.

    Attributes:
        stream: what it names, and the form of its messages.
        news: tells what changes, once the stream is acknowledged.
        waiting: states of tasks that wait for that.
    """

    stream: ChangeStream
    news: ClientNews | None = None
    waiting: deque[bytes] = msgspec.field(default_factory=partial(deque, maxlen=MAX_WAITING))

    def open(
        self, content: Content, client: Client, holder: Client, closing: CancelToken, on_end: Callable[[], None]
    ) -> None:
        """Serve it until it is given up, or serving ends.

        Args:
            content: what there is to be told of.
            client: whose it is.
            holder: the same, as the part that this stream is.
            closing: ends the stream with an answer.
            on_end: called when it is over.
        """
        self.begin(partial(self._serve, content, client, holder, closing, on_end))

    async def _serve(
        self,
        content: Content,
        client: Client,
        holder: Client,
        closing: CancelToken,
        on_end: Callable[[], None],
        _: TaskWork,
    ) -> None:
        ending = asyncio.Event()
        unwatch: list[Callable[[], object]] = []
        try:
            unwatch.append(closing.on_cancel(ending.set))
            # Before the stream is acknowledged: what changes from then on is told.
            resources = await self._subscribed(content, holder)
            tasks = []
            for task in self.stream.tasks:
                if (forget := self._watch(content, client, task)) is not None:
                    unwatch.append(forget)
                    tasks.append(task)
            self.outlet.tell(self.stream.acknowledgement(resources, tasks))
            self.news = ClientNews(content, holder, self.outlet, stream=self.stream, resources=resources)
            unwatch.append(self.news.close)
            self._tell_waiting()
            await ending.wait()
            self.complete()
        finally:
            on_end()
            for each in unwatch:
                each()
            if content.offers is not None:
                content.offers.leave(holder)

    async def _subscribed(self, content: Content, holder: Client) -> list[str]:
        """Subscribe the resources; what was refused is left out, since nobody tells it."""
        if content.offers is None:
            return []
        refused: set[str] = set()

        async def subscribe(uri: str) -> None:
            assert content.offers is not None
            request = RawRequest(SUBSCRIBE, msgspec.json.encode({"uri": uri}), client=holder)
            if not isinstance(await end_of(partial(content.offers.subscribe, request)), WireResult):
                refused.add(uri)

        with anyio.move_on_after(SUBSCRIBE_S):
            async with anyio.create_task_group() as tasks:
                for uri in self.stream.resources:
                    tasks.start_soon(subscribe, uri)
        return [uri for uri in self.stream.resources if uri not in refused]

    def _watch(self, content: Content, client: Client, task: str) -> Callable[[], None] | None:
        """Have a task's states told; None for one that is not the client's."""
        if content.offers is None:
            return None
        params, answerer = msgspec.json.encode({"taskId": task}), CapabilitiesOnly(self.request.capabilities)
        look = RawRequest("tasks/get", params, client=client, answerer=answerer)
        return content.offers.watch_task(look, partial(self._take_state, content, client, task))

    def _take_state(self, content: Content, client: Client, task: str, state: bytes) -> None:
        if content.results is not None:
            has_schema = partial(of_task_may_have_schema, content.box, content.offers, client, task)
            try:
                state = state_within_budget(content.results, client.key, state, has_schema)
            except BodyError:
                return  # a fault where it is asked for: a stream has no word for it
        self.waiting.append(state)
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        while self.waiting and self.news is not None:
            params = msgspec.json.decode(self.waiting.popleft(), type=dict[str, object])
            self.news.tell(self.stream.message("notifications/tasks", params))
