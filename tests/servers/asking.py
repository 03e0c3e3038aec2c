"""Questions that a server on the SDK asks its client in the middle of a request, in either era.

An older client is sent a request for each question, one after the other; a modern one is answered with all questions
of a round, and sends the same request again with its answers.  What a tool is given are the answers of the last round.
"""

import hashlib
import hmac
import os
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

Context = ServerRequestContext[Any, Any]
JsonObject = dict[str, Any]

Round = Mapping[str, JsonObject]
"""Questions by their keys, each a `method` and `params`."""

KINDS: Final[dict[str, tuple[type[Any], type[Any], str]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult, "action"),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult, "content"),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult, "roots"),
}
"""Method -> its request and result, and what an answer cannot be without."""

_KEY: Final = os.urandom(16)


class AskedError(Exception):
    """The request ends here for now: its result is a modern client's round of questions."""

    def __init__(self, result: JsonObject) -> None:
        super().__init__("input required")
        self.result = result


def form(message: str, properties: JsonObject, required: Sequence[str] = ()) -> JsonObject:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sample(text: str, max_tokens: int = 100) -> JsonObject:
    said = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"method": "sampling/createMessage", "params": {"messages": said, "maxTokens": max_tokens}}


def roots() -> JsonObject:
    return {"method": "roots/list", "params": {}}


async def ask(context: Context, rounds: Sequence[Round], *, with_state: bool = False) -> JsonObject:
    """The answers of the last round.

    Args:
        context: of the request in whose middle it is asked.
        rounds: one after the other.
        with_state: have a modern client carry a signed state from round to round.

    Raises:
        AskedError: a modern client has to answer first.
        MCPError: the state is not ours, or an older client refuses.
    """
    if context.session.can_send_request:
        answers: JsonObject = {}
        for questions in rounds:
            answers = {key: await _send(context, question) for key, question in questions.items()}
        return answers
    params = context.params or {}
    at = _round_of(context, params.get("requestState"))
    given = params.get("inputResponses") or {}
    answers = {key: given[key] for key, question in rounds[at].items() if _answers(given.get(key), question)}
    if answers.keys() == rounds[at].keys():
        at += 1
        if at == len(rounds):
            return answers
    asked: JsonObject = {"resultType": "input_required", "inputRequests": dict(rounds[at])}
    raise AskedError(asked | {"requestState": _sign(context, at)} if with_state else asked)


async def result_of(answer: Awaitable[JsonObject]) -> JsonObject:
    try:
        return await answer
    except AskedError as asked:
        return asked.result


def _answers(answer: object, question: JsonObject) -> bool:
    return isinstance(answer, dict) and KINDS[question["method"]][2] in answer


async def _send(context: Context, question: JsonObject) -> JsonObject:
    request, result, _ = KINDS[question["method"]]
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    answer = await context.session.send_request(request.model_validate(question), result, metadata=metadata)
    dumped: JsonObject = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _sign(context: Context, at: int) -> str:
    name = str((context.params or {}).get("name"))
    return f"{at}.{hmac.digest(_KEY, f'{name}:{at}'.encode(), hashlib.sha256).hex()}"


def _round_of(context: Context, state: object) -> int:
    if state is None:
        return 0
    at = int(state[:1]) if isinstance(state, str) and state[:1].isdigit() else 0
    if not isinstance(state, str) or not hmac.compare_digest(state, _sign(context, at)):
        raise MCPError(types.INVALID_PARAMS, "the state is not what this server signed")
    return at
