"""The last messages of a test are kept, bounded."""

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import WireResult
from quarterdeck_pytest.client.transcript import MESSAGE_CHARS, MESSAGES, Transcript


def test_only_the_last_are_kept_and_long_ones_are_cut() -> None:
    """A test with a thousand calls, or one of 50 MB, would fill the log of CI."""
    kept = Transcript()
    for number in range(MESSAGES):
        kept.note_request("tools/call", f"{number} " + "x" * 10_000)
        kept.note_end(RemoteCallResult(WireResult(b"y" * 10_000, "")))
    assert (len(kept.lines), kept.left_out) == (MESSAGES, MESSAGES)
    assert all(len(line) < MESSAGE_CHARS + 50 for line in kept.lines)
    assert "characters)" in kept.lines[0]


def test_each_end_says_what_it_was() -> None:
    """A reader could not tell a refusal from a death."""
    kept = Transcript()
    kept.note_end(ProtocolFault(FaultKind.TIMEOUT, "too late", code="call_timeout"))
    kept.note_end(TimeoutError("given up"))
    kept.note_end([{}, {}])
    assert kept.lines == (
        "<- no result: timeout call_timeout (unknown): too late",
        "<- no result: TimeoutError given up",
        "<- 2 items",
    )
