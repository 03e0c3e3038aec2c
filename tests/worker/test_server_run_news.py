"""A modern server's changes of tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.client.subscriptions import SubscriptionLost
from support.servers.scripted_session import DISCOVERED, MODERN, JsonObject
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker import server_run

from .sessions import ANSWERS, ended, opened, stage

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


# News of a modern server


async def test_a_modern_server_that_cannot_be_listened_to_stays_open() -> None:
    """A server that announces more than it does would be thrown away."""
    asked: list[JsonObject] = []
    modern: JsonObject = {"result": {**DISCOVERED["result"], "capabilities": {"tools": {"listChanged": True}}}}

    def refuses(params: JsonObject) -> JsonObject:
        asked.append(params)
        return {"error": {"code": -32601, "message": "no"}}

    async with stage({**ANSWERS, "server/discover": modern, "subscriptions/listen": refuses}, era=MODERN) as played:
        server = await opened(played)
        assert server.card.announces_tools
        while not asked:
            await turns(1)
        await turns()
        assert not played.task.done()
        assert isinstance(await ended(server), SplitResult)


async def test_a_lost_subscription_means_that_tools_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed while nobody listened would never be seen."""
    monkeypatch.setattr(server_run, "RELISTEN_S", 0.0)
    scenes: list[str] = ["lost", "event", "lost", "end"]
    news: list[str] = []

    @asynccontextmanager
    async def listen(session: object, *, tools_list_changed: bool) -> AsyncIterator[AsyncIterator[object]]:
        scene = scenes.pop(0)
        if scene == "lost":
            raise SubscriptionLost("the stream broke")

        async def events() -> AsyncIterator[object]:
            if scene == "event":
                yield object()
                raise SubscriptionLost("the stream broke")

        yield events()

    class Newsdesk:
        def tools_changed(self) -> None:
            news.append(scenes[0] if scenes else "none")

    monkeypatch.setattr(server_run, "listen", listen)
    with anyio.fail_after(PATIENCE_S):
        await server_run._subscribe(None, Newsdesk())  # type: ignore[arg-type]
    assert scenes == []
    assert news == ["event", "lost", "lost", "end"]
