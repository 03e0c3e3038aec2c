"""One raw call: it ends once, on the wire or in silence."""

import json

import pytest
from support.tools.tool_boxes import LiveBox, answer, hold

from quarterdeck.host.caller import Caller
from quarterdeck.host.offers.content import Content
from quarterdeck.host.raw_calls import WireRequest
from quarterdeck.host.wire_call import WireCall
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import ANONYMOUS

pytestmark = pytest.mark.anyio

INFO = b'{"name":"hub"}'


class FakeOutlet:
    """Collects messages; congested when told."""

    def __init__(self):
        self.lines, self.errors = [], []
        self.is_congested = False

    def tell(self, message):
        """Collect one message."""
        self.lines.append(json.loads(message))

    def answer(self, id_json, *parts, error=0):
        """Collect one message, of which its code is part."""
        self.errors.append(error)
        self.lines.append(json.loads(b"".join(parts)))


def start(box, token=b"", *, is_modern=False):
    """A begun call, its sink, and the keys that ended."""
    sink, ended = FakeOutlet(), []
    request = WireRequest(7, b'"7"', "s__t", b'{"a":1}', b"", token, is_modern)
    call = WireCall(request, sink, INFO, ended.append)
    return call, sink, ended, call.begin(Caller(Content(box=box, name="hub", version="1"), ANONYMOUS))


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_result_is_answered_once_under_the_clients_own_id(is_modern):
    """The client waits for that very id, text or number."""
    box = LiveBox()
    box.graft("s__t", hold)
    call, sink, ended, _ = start(box, is_modern=is_modern)
    box.begun[0].settle({"content": []})
    box.begun[0].settle({"content": ["again"]})
    call.cancel("late")
    (line,) = sink.lines
    assert line["id"] == "7"
    assert line["result"]["content"] == []
    assert ("resultType" in line["result"]) == is_modern
    assert ended == [7]
    assert not box.begun[0].cancelled.done()


async def test_a_fault_is_answered_as_a_result():
    """A model reads results."""
    box = LiveBox()
    box.graft("s__t", hold)
    _, sink, _, _ = start(box)
    box.begun[0].settle(ProtocolFault("timeout", "slow"))
    assert sink.lines[0]["result"]["isError"]
    assert sink.errors == [0]


async def test_a_cancelled_call_says_nothing_more():
    """The specification forbids an answer."""
    box = LiveBox()
    box.graft("s__t", hold)
    call, sink, ended, _ = start(box, b"1")
    call.cancel("why")
    call.cancel("again")
    assert await box.begun[0].cancelled == "why"
    box.begun[0].note(1)
    box.begun[0].settle({"content": []})
    assert (sink.lines, ended) == ([], [7])


async def test_a_bad_body_is_answered_and_raised():
    """The client must not wait, and whoever delivered it must know."""
    box = LiveBox()
    box.graft("s__t", hold)
    _, sink, ended, _ = start(box)
    with pytest.raises(ValueError):
        box.begun[0].settle(b"{}{}")
    assert sink.lines[0]["result"]["_meta"]["quarterdeck/fault"]["code"] == "bad_result"
    assert ended == [7]


async def test_notes_pass_with_the_clients_token_while_there_is_room():
    """A note is worth less than memory; a number that is none would break the line."""
    box = LiveBox()
    box.graft("s__t", hold)
    _, sink, _, _ = start(box, b'"t"')
    begun = box.begun[0]
    begun.note(1, 2, "m")
    begun.note(float("inf"))
    sink.is_congested = True
    begun.note(2)
    params = {"progressToken": "t", "progress": 1, "total": 2, "message": "m"}
    assert sink.lines == [{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}]


async def test_a_call_that_cannot_begin_is_left_to_the_session():
    """There it becomes an answer, here it would be silence."""

    class Broken(LiveBox):
        """A box with a bug."""

        def begin(self, *_, **__):
            """Fail."""
            raise RuntimeError("bug")

    assert not start(Broken())[3]
    assert not start(LiveBox())[3]
    box = LiveBox()
    box.graft("s__t", answer({}))
    assert start(box)[3]
