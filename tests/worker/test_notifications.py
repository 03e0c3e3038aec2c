"""What a server says unasked: passed on whole, cut where it is long, dropped where it is too much."""

import pytest

from quarterdeck_protocol.link.frames import ListChanged, Log, Progress
from quarterdeck_worker.notifications import (
    BURST,
    MAX_LOG_CHARS,
    MAX_NOTE_CHARS,
    RATE_PER_S,
    Notifier,
    log_text,
)


class Clock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 64.0

    def __call__(self) -> float:
        """Now."""
        return self.now


class Desk:
    """A notifier and what it passed on."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.passed: list[Progress | Log | ListChanged] = []
        self.room = Notifier(self._post, self.clock)

    def _post(self, frame: Progress | Log | ListChanged) -> bool:
        self.passed.append(frame)
        return True


def test_notes_pass_as_they_are() -> None:
    """Progress and log lines would reach the client changed."""
    desk = Desk()
    desk.room.progress(7, 0.5, None, None)
    desk.room.progress(7, 1.0, 2.0, "half")
    desk.room.log("info", "db", "line")
    desk.room.log("error", None, "line")
    assert desk.passed == [
        Progress(7, 0.5, None, None),
        Progress(7, 1.0, 2.0, "half"),
        Log("info", "db", "line"),
        Log("error", "", "line"),
    ]


def test_long_texts_are_cut() -> None:
    """A megabyte in a log line would be a megabyte in every client's stream."""
    desk = Desk()
    desk.room.progress(1, 1, None, "x" * 5_000)
    desk.room.log("l" * 100, "n" * 5_000, "d" * 50_000)
    note, line = desk.passed
    assert isinstance(note, Progress)
    assert isinstance(line, Log)
    assert len(note.message or "") == MAX_NOTE_CHARS
    assert (len(line.level), len(line.logger), len(line.data)) == (32, MAX_NOTE_CHARS, MAX_LOG_CHARS)


def test_a_flood_is_dropped_and_ends() -> None:
    """A server that shouts would fill the link, and stay silent for ever after."""
    desk = Desk()
    for _ in range(BURST + 30):
        desk.room.log("info", None, "x")
    assert len(desk.passed) == BURST
    desk.clock.now += 0.25
    for number in range(int(RATE_PER_S)):
        desk.room.progress(1, number, None, None)
    assert len(desk.passed) == BURST + RATE_PER_S / 4


def test_changes_of_the_tools_pass_whatever_else_floods_but_once_a_list() -> None:
    """A flood would hide that tools changed, or a storm of changes would be one."""
    desk = Desk()
    for _ in range(BURST + 1):
        desk.room.log("info", None, "x")
    desk.passed.clear()
    for _ in range(1_000):
        desk.room.tools_changed()
    assert desk.passed == [ListChanged()]
    desk.room.listing()
    assert len(desk.passed) == 1
    desk.room.tools_changed()
    desk.room.tools_changed()
    assert desk.passed == [ListChanged(), ListChanged()]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("a line", "a line"),
        ({"msg": "ä", "n": 1}, '{"msg": "ä", "n": 1}'),
        (None, "null"),
        ([1, 2.5], "[1, 2.5]"),
        ({"x": {1}}, '{"x": "{1}"}'),
    ],
)
def test_a_log_lines_data_becomes_one_text(data: object, text: str) -> None:
    """Structured log lines would be shown as Python values, or crash."""
    assert log_text(data) == text
