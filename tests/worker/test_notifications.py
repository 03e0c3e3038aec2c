"""What a server says unasked: passed on whole, cut where it is long, dropped where it is too much."""

import json

from quarterdeck_protocol.link.frames import Asked, AskEnded, ListChanged, Log, News, Note, Progress, Updated
from quarterdeck_protocol.mcp.client import events
from quarterdeck_worker.notifications import (
    BURST,
    CUT_CHARS,
    MAX_LOG_BYTES,
    MAX_NOTE_CHARS,
    NOTE_BYTES,
    RATE_PER_S,
    Notifier,
)


class Clock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 64.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A notifier and what it passed on."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.passed: list[News] = []
        self.bodies: list[bytes] = []
        self.room = Notifier(self._post, self.clock)

    def _post(self, frame: News, body: bytes = b"") -> bool:
        self.passed.append(frame)
        self.bodies.append(body)
        return True


def test_notes_pass_as_they_are() -> None:
    """Progress and log lines would reach the client changed."""
    desk = Desk()
    desk.room.progress(7, 0.5, None, None)
    desk.room.progress(7, 1.0, 2.0, "half")
    desk.room.log("info", "db", b'{"a":1}')
    desk.room.log("error", None, b'"line"')
    desk.room.said(events.Noted("notifications/tasks/status", b'{"taskId":"1"}'))
    desk.room.said(events.Updated("file:///a"))
    assert desk.room.asked(3, "roots/list", b"{}")
    desk.room.ask_ended(3)
    assert desk.passed == [
        Progress(7, 0.5, None, None),
        Progress(7, 1.0, 2.0, "half"),
        Log("info", "db"),
        Log("error", ""),
        Note("notifications/tasks/status"),
        Updated("file:///a"),
        Asked(3, "roots/list"),
        AskEnded(3),
    ]
    assert desk.bodies == [b"", b"", b'{"a":1}', b'"line"', b'{"taskId":"1"}', b"", b"{}", b""]


def test_long_texts_are_cut() -> None:
    """A megabyte in a log line would be a megabyte in every client's stream."""
    desk = Desk()
    desk.room.progress(1, 1, None, "x" * 5_000)
    desk.room.log("l" * 100, "n" * 5_000, b'"%s"' % (b"d" * MAX_LOG_BYTES))
    note, line = desk.passed
    assert isinstance(note, Progress)
    assert isinstance(line, Log)
    assert len(note.message or "") == MAX_NOTE_CHARS
    assert (len(line.level), len(line.logger)) == (32, MAX_NOTE_CHARS)
    assert json.loads(desk.bodies[1]) == '"' + "d" * (CUT_CHARS - 1)


def test_a_flood_is_dropped_and_ends() -> None:
    """A server that shouts would fill the link, and stay silent for ever after."""
    desk = Desk()
    for _ in range(BURST + 30):
        desk.room.log("info", None, b"1")
    assert len(desk.passed) == BURST
    desk.clock.now += 0.25
    for number in range(int(RATE_PER_S)):
        desk.room.progress(1, number, None, None)
    assert len(desk.passed) == BURST + RATE_PER_S / 4


def test_changes_of_the_tools_pass_whatever_else_floods_but_once_a_list() -> None:
    """A flood would hide that tools changed, or a storm of changes would be one."""
    desk = Desk()
    for _ in range(BURST + 1):
        desk.room.log("info", None, b"1")
    desk.passed.clear()
    for _ in range(1_000):
        desk.room.changed("tools")
    assert desk.passed == [ListChanged()]
    desk.room.listing("tools")
    assert len(desk.passed) == 1
    desk.room.changed("tools")
    desk.room.changed("tools")
    assert desk.passed == [ListChanged(), ListChanged()]


def test_a_large_note_counts_as_several() -> None:
    """A flood of the largest that may pass would be gigabytes."""
    desk = Desk()
    for _ in range(BURST):
        desk.room.said(events.Noted("notifications/x", b"x" * (10 * NOTE_BYTES)))
    assert len(desk.passed) <= BURST / 10
