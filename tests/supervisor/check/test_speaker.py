"""What is recorded of a request, whichever way it was sent."""

import json

import pytest

from quarterdeck.check.episode import Ending, Episode
from quarterdeck.check.speaker import Recorder

pytestmark = pytest.mark.anyio


async def test_a_request_is_recorded_with_its_answer_and_its_progress() -> None:
    """A judge would see an answer that belongs to another request, or none."""
    recorder = Recorder(Episode("legacy"))
    first = recorder.open("call", "tools/call", {"name": "x"}, "x", None, progress=True)
    other = recorder.open("odd", "ping", None, "", "own-id", progress=False)
    assert (first.request_id, other.request_id) == (1, "own-id")
    assert json.loads(first.message)["params"] == {"name": "x", "_meta": {"progressToken": "progress-1"}}
    told = {"progressToken": "progress-1", "progress": 1}
    for line in ({"method": "notifications/progress", "params": told}, {"id": 1, "result": {"content": []}}):
        recorder.hearing.receive(json.dumps({"jsonrpc": "2.0", **line}).encode(), 0.0)
    first.close()
    exchange = first.record(Ending.ANSWERED, status=200)
    assert recorder.episode.exchanges == [exchange]
    assert (exchange.result, exchange.progress, exchange.subject, exchange.status) == (
        {"content": []},
        (told,),
        "x",
        200,
    )


async def test_an_answer_that_comes_once_nobody_waits_is_no_reply() -> None:
    """A cancelled request would be recorded as silent and answered at once."""
    recorder = Recorder(Episode("legacy"))
    request = recorder.open("hang", "tools/call", None, "", None, progress=False)
    request.close()
    recorder.hearing.receive(b'{"jsonrpc":"2.0","id":1,"result":{}}', 0.0)
    assert request.record(Ending.SILENT).reply is None
