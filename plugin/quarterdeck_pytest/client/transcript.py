"""The last messages of one test with one server, in both directions, bounded."""

from collections import deque
from typing import Final

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault

MESSAGES: Final = 20
"""As many are kept."""

MESSAGE_CHARS: Final = 2000
"""Of each."""


class Transcript:
    """What a test sent, and what came back, the oldest first."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MESSAGES)
        self.sent = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The messages."""
        return tuple(self._lines)

    @property
    def left_out(self) -> int:
        """How many earlier ones are not kept."""
        return max(0, self.sent - len(self._lines))

    def note_request(self, method: str, params: str) -> None:
        """Something was sent."""
        self._note(f"-> {method} {params}")

    def note_asked(self, method: str, params: bytes) -> None:
        """The server asked something."""
        self._note(f"<- {method} {params[: MESSAGE_CHARS * 4].decode('utf-8', 'replace')}")

    def note_end(self, end: object) -> None:
        """Something came: a result, other values, or an exception."""
        match end:
            case RemoteCallResult():
                self._note(f"<- {end.body[: MESSAGE_CHARS * 4].decode('utf-8', 'replace')}")
            case ProtocolFault():
                self._note(f"<- no result: {end.kind} {end.code or ''} ({end.delivery}): {end.message}")
            case BaseException():
                self._note(f"<- no result: {type(end).__name__} {end}")
            case list():
                self._note(f"<- {len(end)} items")
            case _:
                pass

    def _note(self, text: str) -> None:
        self.sent += 1
        cut = f" ... ({len(text):,} characters)" if len(text) > MESSAGE_CHARS else ""
        self._lines.append(text[:MESSAGE_CHARS] + cut)
