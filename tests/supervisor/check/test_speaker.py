"""What is recorded of a request, whichever way it was sent."""

import json
from typing import Any

from quarterdeck.check.episode import Ending, Episode, Members
from quarterdeck.check.speaker import OpenRequest, Outcome, Speaker


class Played(Speaker):
    """A server that says these messages once it is asked; `late` ones when nobody waits any more."""

    def __init__(self, *messages: dict[str, Any], is_late: bool = False) -> None:
        super().__init__(Episode("legacy"))
        self.messages, self.is_late = messages, is_late
        self.seen: list[OpenRequest] = []

    async def carry(self, request: OpenRequest, wait_s: float, *, in_pieces: bool) -> Outcome:
        """Say them."""
        self.seen.append(request)
        if self.is_late:
            request.close()
        for each in self.messages:
            self.hearing.receive(json.dumps({"jsonrpc": "2.0", **each}).encode(), 0.0)
        request.close() if not self.is_late else None
        return Outcome(Ending.ANSWERED if request.reply else Ending.SILENT, status=200)

    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Take it."""
        return True


async def test_a_request_is_recorded_with_its_answer_and_its_progress() -> None:
    """A judge would see an answer that belongs to another request, or none."""
    told = {"progressToken": "progress-1", "progress": 1}
    server = Played({"method": "notifications/progress", "params": told}, {"id": 1, "result": {"content": []}})
    exchange = await server.request("call", "tools/call", {"name": "x"}, wait_s=1.0, subject="x", progress=True)
    [request] = server.seen
    assert json.loads(request.message)["params"] == {"name": "x", "_meta": {"progressToken": "progress-1"}}
    assert server.episode.exchanges == [exchange]
    assert (exchange.result, exchange.progress, exchange.subject) == ({"content": []}, (told,), "x")
    odd = await server.request("odd", "ping", wait_s=1.0, request_id="own-id")
    assert (odd.request_id, odd.reply) == ("own-id", None)


async def test_an_answer_that_comes_once_nobody_waits_is_no_reply() -> None:
    """A cancelled request would be recorded as silent and answered at once."""
    server = Played({"id": 1, "result": {}}, is_late=True)
    assert (await server.request("hang", "tools/call", wait_s=1.0)).reply is None
