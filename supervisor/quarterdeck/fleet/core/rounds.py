"""Read what a server of 2026-07-28 asks before it gives a result, and make the request that answers it. Pure.

Source: the 2026-07-28 specification, "Multi Round-Trip Requests" (SEP-2322).
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object, params_without_envelope
from quarterdeck_protocol.questions import CAPABILITY_OF, Question

from .asks import MAX_ASKED_BYTES

INPUT_REQUIRED: Final = "input_required"
"""The type of a result that asks."""

MAX_ROUNDS: Final = 10
"""Rounds of one request, as the SDKs allow."""

MAX_QUESTIONS: Final = 16
"""Questions of one round: a person answers them one by one."""

MAX_STATE_BYTES: Final = 1024 * 1024
"""Bytes of the state that the server wants back."""

PAUSE_S: Final = 0.25
"""Seconds before the repeated request to a server that asked nothing, and only wants its state back."""


class RoundError(ValueError):
    """A server asks in a way that cannot be answered."""


class Round(msgspec.Struct, frozen=True):
    """One result's questions, by the server's own names, and the state that it wants back: a JSON text, or empty."""

    questions: tuple[Question, ...]
    state: bytes


class _Entry(msgspec.Struct):
    method: str
    params: Raw = Raw(b"{}")


def read_round(server: str, members: Mapping[str, Raw]) -> Round:
    """Return what a result with these members asks. Raise RoundError if it is too much, or cannot be answered."""
    state = bytes(members.get("requestState", b""))
    if len(state) > MAX_STATE_BYTES:
        raise RoundError(f"its state has {len(state):,} bytes")
    wanted = members.get("inputRequests", _NULL)
    try:
        if state:
            _text.decode(state)
        entries = _entries.decode(wanted) or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RoundError("its questions cannot be read") from None
    if not entries and not state:
        raise RoundError("it asks nothing")
    questions = tuple(_question(server, key, entry) for key, entry in entries.items())
    if why := too_much(questions):
        raise RoundError(why)
    return Round(questions, state)


def too_much(questions: Collection[Question]) -> str:
    """Return why these questions of one round are not asked; empty if they may be."""
    if len(questions) > MAX_QUESTIONS:
        return f"it asks {len(questions):,} questions at once"
    size = sum(len(question.params) for question in questions)
    return f"its questions have {size:,} bytes" if size > MAX_ASKED_BYTES else ""


def _question(server: str, key: str, entry: _Entry) -> Question:
    if entry.method not in CAPABILITY_OF:
        raise RoundError(f"it asks for {entry.method[:64]!r}, which nobody can answer")
    try:
        params = bytes(entry.params)
        check_object(params, max_bytes=MAX_ASK_BYTES)
        return Question(server, entry.method, params_without_envelope(params), key)
    except BodyError as error:
        raise RoundError(f"a question cannot be passed on: {error}") from None


def next_params(params: bytes, answers: Mapping[str, bytes], state: bytes) -> bytes:
    """The params of the same request with these answers, by the server's names for its questions, and its state."""
    members = {key: value for key, value in _members.decode(params).items() if key not in _OWN}
    if answers:
        members["inputResponses"] = Raw(msgspec.json.encode({key: Raw(each) for key, each in answers.items()}))
    if state:
        members["requestState"] = Raw(state)
    return msgspec.json.encode(members)


_OWN: Final = frozenset({"inputResponses", "requestState"})
_NULL: Final = Raw(b"null")
_text: Final = msgspec.json.Decoder(str)
_entries: Final = msgspec.json.Decoder(dict[str, _Entry] | None)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
