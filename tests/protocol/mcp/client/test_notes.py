"""What a server says unasked: progress, log lines, changes, and whatever else, bounded."""

import json

import pytest
from support.servers.greetings import JsonObject

from quarterdeck_protocol.mcp.client import FIRST_ID, notes
from quarterdeck_protocol.mcp.client.events import Changed, Event, Junk, Logged, Noted, Progressed, Updated

from .relays import in_flight, talk

ID = FIRST_ID + 7


def note(method: str, params: object = None) -> bytes:
    message: JsonObject = {"jsonrpc": "2.0", "method": f"notifications/{method}"}
    return json.dumps(message if params is None else {**message, "params": params}).encode()


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (note("tools/list_changed"), Changed(("tools",))),
        (note("prompts/list_changed", {}), Changed(("prompts",))),
        (note("resources/list_changed", {"_meta": {}}), Changed(("resources",))),
        (note("resources/updated", {"uri": "file:///a", "title": "x"}), Updated("file:///a")),
        (note("message", {"level": "error", "logger": "db", "data": "hm"}), Logged("error", "db", b'"hm"')),
        (note("message", {"data": {"a": [1]}}), Logged("info", "", b'{"a": [1]}')),
        (note("message", {}), Logged("info", "", b"null")),
        (
            note("elicitation/complete", {"elicitationId": "x"}),
            Noted("notifications/elicitation/complete", b'{"elicitationId": "x"}'),
        ),
        (note("tasks/status", {"taskId": "x"}), Noted("notifications/tasks/status", b'{"taskId": "x"}')),
        (note("own"), Noted("notifications/own", b"")),
        (b'{"method":"vendor/own"}', Noted("vendor/own", b"")),
    ],
)
def test_a_notification_is_an_event(line: bytes, event: Event) -> None:
    """A client would not hear what the server says."""
    assert talk().say(line) == [event]


@pytest.mark.parametrize("token", [ID, str(ID)])
def test_progress_is_of_the_request_whose_token_it_names(token: int | str) -> None:
    """A client would see another's progress."""
    talked = talk()
    line = note("progress", {"progressToken": token, "progress": 1, "total": 2.5, "message": "m"})
    assert talked.say(line) == []
    talked.relay.call(7, "echo", progress=True)
    foreign = [note("progress", {"progressToken": other, "progress": 1}) for other in (1, 7, "x", ID + 1)]
    assert talked.say(line, *foreign, note("progress", {"progressToken": token, "progress": 1e300})) == [
        Progressed(7, 1.0, 2.5, "m"),
        Progressed(7, 1e300),
    ]


DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize(
    "line",
    [
        note("progress"),
        note("progress", {"progress": 1}),
        note("progress", {"progressToken": [1], "progress": 1}),
        note("progress", {"progressToken": ID, "progress": "far"}),
        note("progress", [1]),
        note("message", {"level": 7}),
        note("message"),
        b'{"method":"notifications/message","params":{"data":%s}}' % DEEP,
        b'{"method":"notifications/message","params":{"data":%s}}' % (b"1" * 5_000),
        b'{"method":"notifications/message","params":{"data":"\xff"}}',
        b'{"method":"notifications/message","params":{"data":[1,\r2]}}',
        note("resources/updated", {}),
        note("resources/updated", {"uri": "x" * 9_000}),
        note("cancelled", {"requestId": [1]}),
        note("cancelled"),
        note("subscriptions/acknowledged", {}),
        note("subscriptions/acknowledged", {"notifications": {}, "_meta": 7}),
        note("own", [1]),
        b'{"method":"own","params":{"a":%s}}' % DEEP,
        note("x" * 200),
    ],
)
def test_a_broken_notification_is_junk_and_harmless(line: bytes) -> None:
    """One odd notification would end the server's session, or a client's."""
    talked = talk()
    talked.relay.call(7, "echo", progress=True)
    assert talked.say(line, note("tools/list_changed")) == [Junk(line), Changed(("tools",))]
    assert in_flight(talked.relay) == [7]


def test_a_notification_of_megabytes_is_not_read() -> None:
    """A server would have its worker take many times that from our memory."""
    line = note("message", {"data": "x" * notes.MAX_NOTE_BYTES})
    assert talk().say(line) == [Junk(line)]


def test_a_cancellation_of_nothing_is_nothing() -> None:
    """A server that gives up what it never asked would end something else."""
    talked = talk()
    talked.relay.call(7, "echo")
    assert talked.say(*[note("cancelled", {"requestId": of}) for of in (0, 1, ID, str(ID), "x", None)]) == []
    assert in_flight(talked.relay) == [7]
