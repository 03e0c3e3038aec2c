"""Classify a server's lines: answers, its own requests, progress, or junk; note them in an episode.  Pure.

It knows which requests are open, and gives each answer to whoever asked.  A request of the server's is answered at
once: `ping`, and all else with -32601.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.schema.canonical import JsonValue

from .decoys import NO_MARKS, Marks
from .episode import Episode, Marked, Members, RequestId
from .schemas import shown

MAX_KEPT: Final = 20
"""Notes of each kind."""

MAX_MARKED: Final = 500
"""Contents of decoys that are noted."""

MAX_PROGRESS: Final = 1000
"""Notifications of one request that are kept."""

MAX_ANSWERED: Final = 1000
"""Requests of the server's that are answered."""

LATE_S: Final = 0.25
"""An answer that comes so soon after its cancellation may have crossed it."""

ODD_ID: Final = {"a": 1}
"""The id of a malformed request: an answer may repeat it."""

Receiver = Callable[[Members], None]
"""Takes the message that answers a request, once."""


class Hearing:
    """Classifies the messages of a server in one episode.

    Attributes:
        null_errors: number of errors that name no request.
        late: cancelled requests that were answered later all the same.
        answers: lines to write, which answer the server's requests.
    """

    def __init__(self, episode: Episode, marks: Marks = NO_MARKS) -> None:
        self._episode = episode
        self._marks = marks
        self._receivers: dict[RequestId, Receiver] = {}
        self._open: set[RequestId] = set()
        self._methods: dict[RequestId, str] = {}
        self._progress: dict[str, list[Members]] = {}
        self._cancelled: dict[RequestId, float] = {}
        self._asked_count = 0
        self.null_errors = 0
        self.late: set[RequestId] = set()
        self.answers: list[bytes] = []

    def opened(self, request_id: RequestId, method: str, receiver: Receiver, token: str = "") -> None:
        """Expect the answer of a request that is about to be sent, and its progress if it has a `token`."""
        self._open.add(request_id)
        self._methods[request_id], self._receivers[request_id] = method, receiver
        if token:
            self._progress[token] = []

    def closed(self, request_id: RequestId) -> None:
        """Ignore the answer of a request from now on."""
        self._open.discard(request_id)

    def cancelled(self, request_id: RequestId, now: float) -> None:
        """Note when a request was cancelled."""
        self._cancelled[request_id] = now

    def progress_of(self, token: str) -> tuple[Members, ...]:
        """Return the progress that was reported for a token."""
        return tuple(self._progress.get(token, ()))

    def receive(self, line: bytes, now: float) -> None:
        """Take one line, received `now` in monotonic seconds."""
        try:
            message = msgspec.json.decode(line)
            line.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        self._look_for_marks(line, message)
        if isinstance(message, list):
            self.note(self._episode.misshapen, "a batch, which only 2025-03-26 knows")
            for each in message[:MAX_KEPT]:
                if isinstance(each, dict):
                    self._message(each, now)
        elif isinstance(message, dict):
            self._message(message, now)
        else:
            self._episode.junk_lines += 1
            self.note(self._episode.junk, shown(line[:400].decode(errors="replace")))

    def heard_on_stderr(self, data: bytes) -> None:
        """Look for contents of decoys in stderr."""
        for decoy in self._marks.found_in(data):
            self._note_marked(Marked(decoy, in_stderr=True))

    def _look_for_marks(self, line: bytes, message: object) -> None:
        # JSON can spell each character of a mark by its number.
        told = msgspec.json.encode(message) if b"\\u" in line and message is not None else line
        for decoy in self._marks.found_in(told):
            said = message.get("id") if isinstance(message, dict) and "method" not in message else None
            is_id = isinstance(said, int | str) and not isinstance(said, bool)
            self._note_marked(Marked(decoy, said if is_id else None))

    def _note_marked(self, marked: Marked) -> None:
        if marked not in self._episode.marked and len(self._episode.marked) < MAX_MARKED:
            self._episode.marked.append(marked)

    def note(self, kept: list[str], text: str) -> None:
        """Keep a text once, while there is room."""
        if text not in kept and len(kept) < MAX_KEPT:
            kept.append(text)

    def _message(self, message: Members, now: float) -> None:
        if message.get("jsonrpc") != "2.0":
            self.note(self._episode.misshapen, f'"jsonrpc" is {shown(str(message.get("jsonrpc")))}, not "2.0"')
        method = message.get("method")
        if not isinstance(method, str):
            self._replied(message, now)
        elif "id" in message:
            self._asked(method, message["id"])
        elif method == "notifications/progress":
            self._progressed(message.get("params"))

    def _asked(self, method: str, request_id: JsonValue) -> None:
        if method != "ping":
            self.note(self._episode.asked, shown(method))
        self._asked_count += 1
        if self._asked_count > MAX_ANSWERED:
            return
        answer: Members = {"jsonrpc": "2.0", "id": request_id}
        if method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": METHOD_NOT_FOUND, "message": "this client did not declare that capability"}
        self.answers.append(msgspec.json.encode(answer) + b"\n")

    def _progressed(self, params: JsonValue) -> None:
        token = params.get("progressToken") if isinstance(params, dict) else None
        told = self._progress.get(token) if isinstance(token, str) else None
        if told is None or not isinstance(params, dict):
            self.note(self._episode.foreign_progress, shown(str(token)))
        elif len(told) < MAX_PROGRESS:
            told.append(params)

    def _replied(self, message: Members, now: float) -> None:
        if problem := misshapen(message):
            self.note(self._episode.misshapen, problem)
        said = message.get("id")
        strays = self._episode.strays
        if said is None:
            self.null_errors += "error" in message
        elif said == ODD_ID:
            pass
        elif not isinstance(said, int | str) or isinstance(said, bool):
            self.note(strays, f"an answer's id is {shown(str(said))}")
        elif said in self._cancelled:
            if now - self._cancelled[said] > LATE_S:
                self.late.add(said)
        elif said in self._methods:
            self._give(said, message)
        elif (other := self._spelt_otherwise(said)) is not None:
            self.note(strays, f"id {other!r} was answered as {said!r}")
            self._give(other, message)
        else:
            self.note(strays, f"an answer to {shown(repr(said))}, which was never asked")

    def _give(self, request_id: RequestId, message: Members) -> None:
        receiver = self._receivers.pop(request_id, None)
        if receiver is None:
            self.note(self._episode.strays, f"{self._methods[request_id]} was answered twice")
        elif request_id in self._open:
            receiver(message)

    def _spelt_otherwise(self, request_id: RequestId) -> RequestId | None:
        return next((each for each in self._open if str(each) == str(request_id)), None)


def misshapen(message: Members) -> str:
    """Return what is wrong with an answer by JSON-RPC; empty for nothing."""
    if "id" not in message:
        return "a message has neither method nor id"
    if ("result" in message) == ("error" in message):
        return "an answer has " + ("both result and error" if "result" in message else "neither result nor error")
    if "result" in message:
        return "" if isinstance(message["result"], dict) else "a result is no object"
    error = message["error"]
    if not isinstance(error, dict):
        return "an error is no object"
    if not isinstance(error.get("code"), int) or isinstance(error.get("code"), bool):
        return "an error's code is no whole number"
    return "" if isinstance(error.get("message"), str) else "an error's message is no text"
