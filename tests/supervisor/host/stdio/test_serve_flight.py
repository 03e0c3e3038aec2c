"""One call on the short way: it ends once, on the wire or in silence."""

import json

import pytest
from support.tools.tool_boxes import LiveBox, answer, hold

from quarterdeck.host.stdio.serve import Flight
from quarterdeck.host.stdio.short_way import ShortRequest
from quarterdeck_protocol.faults import ProtocolFault

pytestmark = pytest.mark.anyio

INFO = b'{"name":"hub"}'


class FakeSink:
    """Collects lines; congested when told."""

    def __init__(self):
        self.lines = []
        self.is_congested = False

    def write(self, *parts):
        """Collect one line."""
        self.lines.append(json.loads(b"".join(parts)))


def fly(box, token=b"", *, is_modern=False):
    """A begun flight, its sink, and the keys that landed."""
    sink, landed = FakeSink(), []
    request = ShortRequest(7, b'"7"', "s__t", b'{"a":1}', b"", token, is_modern)
    flight = Flight(request, sink, INFO, landed.append)
    return flight, sink, landed, flight.begin(box)


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_result_is_answered_once_under_the_clients_own_id(is_modern):
    """The client waits for that very id, text or number."""
    box = LiveBox()
    box.graft("s__t", hold)
    flight, sink, landed, _ = fly(box, is_modern=is_modern)
    box.begun[0].settle({"content": []})
    box.begun[0].settle({"content": ["again"]})
    flight.cancel("late")
    (line,) = sink.lines
    assert line["id"] == "7"
    assert line["result"]["content"] == []
    assert ("resultType" in line["result"]) == is_modern
    assert landed == [7]
    assert not box.begun[0].cancelled.done()


async def test_a_fault_is_answered_as_a_result():
    """A model reads results."""
    box = LiveBox()
    box.graft("s__t", hold)
    _, sink, _, _ = fly(box)
    box.begun[0].settle(ProtocolFault("timeout", "slow"))
    assert sink.lines[0]["result"]["isError"]


async def test_a_cancelled_flight_says_nothing_more():
    """The specification forbids an answer."""
    box = LiveBox()
    box.graft("s__t", hold)
    flight, sink, landed, _ = fly(box, b"1")
    flight.cancel("why")
    flight.cancel("again")
    assert await box.begun[0].cancelled == "why"
    box.begun[0].note(1)
    box.begun[0].settle({"content": []})
    assert (sink.lines, landed) == ([], [7])


async def test_a_bad_body_is_answered_and_raised():
    """The client must not wait, and whoever delivered it must know."""
    box = LiveBox()
    box.graft("s__t", hold)
    _, sink, landed, _ = fly(box)
    with pytest.raises(ValueError):
        box.begun[0].settle(b"{}{}")
    assert sink.lines[0]["result"]["_meta"]["quarterdeck/fault"]["code"] == "bad_result"
    assert landed == [7]


async def test_notes_pass_with_the_clients_token_while_there_is_room():
    """A note is worth less than memory; a number that is none would break the line."""
    box = LiveBox()
    box.graft("s__t", hold)
    _, sink, _, _ = fly(box, b'"t"')
    begun = box.begun[0]
    begun.note(1, 2, "m")
    begun.note(float("inf"))
    sink.is_congested = True
    begun.note(2)
    params = {"progressToken": "t", "progress": 1, "total": 2, "message": "m"}
    assert sink.lines == [{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}]


async def test_a_call_that_cannot_begin_goes_the_long_way():
    """There it becomes an answer, here it would be silence."""

    class Broken(LiveBox):
        """A box with a bug."""

        def begin(self, *_, **__):
            """Fail."""
            raise RuntimeError("bug")

    assert not fly(Broken())[3]
    assert not fly(LiveBox())[3]
    box = LiveBox()
    box.graft("s__t", answer({}))
    assert fly(box)[3]
