"""The last messages of a test are kept, bounded, with what the server told between them."""

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_protocol.tools import ProgressNote, WireResult
from quarterdeck_pytest.client.notifications import Notification, Told
from quarterdeck_pytest.client.transcript import MESSAGE_CHARS, MESSAGES, NOTIFICATIONS, Transcript

LOG = "notifications/message"


def test_only_the_last_are_kept_and_long_ones_are_cut() -> None:
    """A test with a thousand calls, or one of 50 MB, would fill the log of CI."""
    kept = Transcript()
    for number in range(MESSAGES):
        kept.note_request("tools/call", f"{number} " + "x" * 10_000)
        kept.note_end(RemoteCallResult(WireResult(b"y" * 10_000, "")))
    lines, left_out = kept.last()
    assert (len(lines), left_out) == (MESSAGES, MESSAGES)
    assert all(len(line) < MESSAGE_CHARS + 50 for line in lines)
    assert lines[-1].endswith(" ... (10,000 characters)")


def test_each_end_says_what_it_was() -> None:
    """A reader could not tell a refusal from a death."""
    kept = Transcript()
    kept.note_end(ProtocolFault(FaultKind.TIMEOUT, "too late", code="call_timeout"))
    kept.note_end(TimeoutError("given up"))
    kept.note_end([{}, {}])
    assert kept.last()[0] == (
        "<- no result: timeout call_timeout (unknown): too late",
        "<- no result: TimeoutError given up",
        "<- 2 items",
    )


def test_questions_answers_and_progress_are_messages_too() -> None:
    """What was asked, and what the test said to it, would have to be guessed."""
    kept = Transcript()
    kept.note_asked("roots/list", b"{}")
    kept.note_answer("roots/list", QuestionEnd(b'{"roots":[]}'))
    kept.note_answer("elicitation/create", QuestionEnd(code=-32601, message="no answer"))
    kept.note_progress(ProgressNote(1, 2, "half"))
    assert kept.last()[0] == (
        "<- roots/list {}",
        '-> to roots/list: {"roots":[]}',
        "-> to elicitation/create: error -32601: no answer",
        "<- progress 1 of 2 half",
    )


def test_notifications_stand_where_they_came_and_push_nothing_out() -> None:
    """A server that logs a thousand lines would be all that is seen of a test."""
    told = Told()
    kept = Transcript(lambda: told.count)
    told.put(LOG, b'{"data":"first"}')
    kept.note_request("tools/call", "x {}")
    for number in range(100):
        told.put(LOG, b'{"data":%d}' % number)
    told.put("notifications/tools/list_changed", b"")
    kept.note_end([])
    lines, left_out = kept.last(told.since(0))
    assert lines == (
        f'<- {LOG} {{"data":"first"}}',
        "-> tools/call x {}",
        f"<- {LOG}, {100 - NOTIFICATIONS} times, then",
        *(f'<- {LOG} {{"data":{number}}}' for number in (97, 98, 99)),
        "<- notifications/tools/list_changed",
        "<- 0 items",
    )
    assert left_out == 0
    assert len(kept.last([(0, Notification(LOG, {}))] * 3)[0]) == 5
