"""The messages between supervisor and worker: plain msgpack, closed, and typed to the last field."""

import msgpack
import msgspec
import pytest

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, RemoteCause, ReplyError
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.policy_values import PolicyValues

DECODER = msgspec.msgpack.Decoder(frames.Frame)

FAULT = FaultRecord(
    FaultKind.TIMEOUT,
    "late",
    "call_timeout",
    Delivery.UNKNOWN,
    RemoteCause("E", "m"),
    Dossier(1),
    ReplyError(-1, "no", b"[1]"),
    "read /a",
)
FAULT_ON_THE_WIRE = {
    "kind": "timeout",
    "message": "late",
    "code": "call_timeout",
    "delivery": "unknown",
    "cause": {"type_name": "E", "message": "m"},
    "dossier": {
        "exit_status": 1,
        "signal": None,
        "limit": None,
        "stderr_tail": "",
        "peak_rss_bytes": None,
        "peak_is_sampled": False,
        "cpu_s": None,
        "uptime_s": None,
        "hints": [],
    },
    "reply": {"code": -1, "message": "no", "data": b"[1]"},
    "denied": "read /a",
}

WIRE: list[tuple[frames.Frame, list[object]]] = [
    (frames.Hello(1, "0.1.0", b"token", 42), [1, 1, "0.1.0", b"token", 42]),
    (frames.Welcome("0.1.0"), [2, "0.1.0"]),
    (frames.Beat(), [3]),
    (frames.Credit(5), [4, 5]),
    (frames.Open(1, 60.0), [10, 1, 60.0]),
    (frames.List(2, 30.0, "resources"), [11, 2, 30.0, "resources"]),
    (
        frames.Call(3, 1.5, "echo", progress=True, meta=b"{}", capabilities=b'{"a":1}', log_level="info"),
        [12, 3, 1.5, "echo", True, b"{}", b'{"a":1}', "info"],
    ),
    (
        frames.Forward(3, 1.5, "resources/read", progress=True, meta=b"{}", capabilities=b"{}", log_level="info"),
        [16, 3, 1.5, "resources/read", True, b"{}", b"{}", "info"],
    ),
    (frames.AskAnswer(9, -32603, "no"), [17, 9, -32603, "no"]),
    (frames.Tell("notifications/roots/list_changed"), [18, "notifications/roots/list_changed"]),
    (frames.Listen(), [19]),
    (frames.Authorize(), [32]),
    (frames.Unauthorized(), [33, None]),
    (frames.Unauthorized(("write",)), [33, ["write"]]),
    (frames.Quarantined("/p/.envrc", "/q/1", "no room"), [34, "/p/.envrc", "/q/1", "no room"]),
    (frames.Hinted("it is hidden"), [35, "it is hidden"]),
    (frames.Close(4, 2.0), [13, 4, 2.0]),
    (frames.Cancel(3, "why"), [14, 3, "why"]),
    (frames.Condemn("memory_bytes", "too much"), [15, "memory_bytes", "too much"]),
    (frames.Answer(3, "2025-11-25", "complete", True, "read /a"), [20, 3, "2025-11-25", "complete", True, "read /a"]),  # noqa: FBT003
    (frames.Failed(3, FAULT), [21, 3, FAULT_ON_THE_WIRE]),
    (frames.Progress(3, 0.5, 1.0, "half"), [22, 3, 0.5, 1.0, "half"]),
    (frames.Log("info", "db"), [23, "info", "db"]),
    (frames.ListChanged("prompts"), [24, "prompts"]),
    (frames.Lost(FAULT), [25, FAULT_ON_THE_WIRE]),
    (frames.Started(), [26]),
    (frames.Asked(9, "roots/list"), [27, 9, "roots/list"]),
    (frames.AskEnded(9), [28, 9]),
    (frames.Note("notifications/tasks/status"), [29, "notifications/tasks/status"]),
    (frames.Updated("file:///a"), [30, "file:///a"]),
    (frames.Listening(2), [31, 2]),
]
"""Every frame, and what an independent msgpack library reads of it."""


@pytest.mark.parametrize(("frame", "wire"), WIRE, ids=lambda value: type(value).__name__)
def test_the_wire_is_plain_msgpack(frame: frames.Frame, wire: list[object]) -> None:
    """Any msgpack library can read a capture, and a change of tags or fields must raise the link's version."""
    assert msgpack.unpackb(msgspec.msgpack.encode(frame)) == wire
    assert DECODER.decode(msgpack.packb(wire)) == frame


@pytest.mark.parametrize("frame", [frame for frame, _ in WIRE], ids=lambda frame: type(frame).__name__)
def test_a_frame_has_no_fields_but_its_own(frame: frames.Frame) -> None:
    """What a newer or hostile peer adds is not silently dropped."""
    more = [*msgpack.unpackb(msgspec.msgpack.encode(frame)), "more"]
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(msgpack.packb(more))


@pytest.mark.parametrize("frame", [frame for frame, _ in WIRE], ids=lambda frame: type(frame).__name__)
@pytest.mark.parametrize("intruder", [msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 2), msgpack.ExtType(0, b"")])
def test_no_field_takes_an_extension_or_a_timestamp(frame: frames.Frame, intruder: object) -> None:
    """Extensions of msgpack are how other systems came to build objects from a peer's bytes."""
    wire = msgpack.unpackb(msgspec.msgpack.encode(frame))
    for index in range(len(wire)):
        with pytest.raises(msgspec.ValidationError):
            DECODER.decode(msgpack.packb([*wire[:index], intruder, *wire[index + 1 :]]))
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(msgpack.packb(intruder))


@pytest.mark.parametrize(
    "wire",
    [
        *([], [0], [9], [27], ["3"], [3.0], [None], [[3]], [2**64 - 1], {"type": 3}, 3, None, "x", [4], [4, "5"]),
        *([4, 5.0], [4, True], [10, 1], [10, "1", 60.0], [10, 1, "60"]),
        [12, 1, 1.0, b"echo", False, b""],
        [12, 1, 1.0, "echo", 1, b""],
        [12, 1, 1.0, "echo", False, "{}"],
        [1, 1, "v", "token", 1],
        [21, 1, {"kind": "nonsense", "message": "m"}],
        *([21, 1, {"kind": "timeout"}], [21, 1, ["timeout", "m"]]),
        [21, 1, {"kind": "timeout", "message": "m", "dossier": {"hints": [1]}}],
    ],
    ids=str,
)
def test_what_is_no_frame_is_refused(wire: object) -> None:
    """Decoding validates; nothing half-right reaches the link."""
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(msgpack.packb(wire))


def test_an_order_a_start_and_a_card_survive_json() -> None:
    """They are bodies, and cross as JSON."""
    order = frames.OpenOrder(
        frames.StdioServer("x", ("a",), "/cwd", PolicyValues(read=("/r",), network=("a.example:443",))),
        "2025-11-25",
        env={"PATH": "/bin", "Ü": "\U0001f4a5"},
        home="/home",
        tmp="/tmp",
    )
    start = frames.ServerStart(
        7, 5, 6, "/bin/ü", "/w", ("/s",), ("/tmp",), ("memory_bytes",), '{"tier":"limits"}', ("gap",)
    )
    card = frames.ServerCard("2026-07-28", 42, "name", "1.0", "be nice", announces=("tools",))
    assert msgspec.json.decode(msgspec.json.encode(order), type=frames.OpenOrder) == order
    assert msgspec.json.decode(msgspec.json.encode(start), type=frames.ServerStart) == start
    assert msgspec.json.decode(msgspec.json.encode(card), type=frames.ServerCard) == card


def test_a_card_needs_no_more_than_its_era() -> None:
    """A remote server has no pid, and many say nothing of themselves."""
    assert msgspec.json.decode(b'{"era":"2025-11-25"}', type=frames.ServerCard) == frames.ServerCard("2025-11-25")
