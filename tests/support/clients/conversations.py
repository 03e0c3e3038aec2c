"""Conversations of real clients with a server on stdio: record one, and replay its client's side to another server.

A conversation is a file of JSON lines.  The first says who speaks: `{"client", "version", "era"}`; each of the others
is `{"from": "client" | "server", "message"}`, in the order in which they passed.  To record one, have a client start

    python tests/support/clients/conversations.py FILE CLIENT VERSION ERA -- COMMAND ARGUMENT…

in place of the server's own command.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from support.clients.raw_client import RawStdioClient

JsonObject = dict[str, Any]

CONVERSATIONS: Final = Path(__file__).resolve().parents[2] / "acceptance" / "conversations"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded conversation: the client's name and version, its era, and each message with who sent it."""

    client: str
    version: str
    era: str
    lines: tuple[tuple[str, JsonObject], ...]


@dataclass(slots=True)
class Heard:
    """What a server said in a conversation.

    Attributes:
        answers: by the number and the method of the client's request, in its order; without ids, states as `(opaque)`.
        asked: the server's own requests, without ids, in their order.
        told: the server's notifications: what it says beside an answer may come before or after.
    """

    answers: dict[str, JsonObject] = field(default_factory=dict)
    asked: list[JsonObject] = field(default_factory=list)
    told: list[JsonObject] = field(default_factory=list)


def conversations() -> Iterator[Conversation]:
    for path in sorted(CONVERSATIONS.glob("*.jsonl")):
        head, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        said = tuple((line["from"], line["message"]) for line in lines)
        yield Conversation(head["client"], head["version"], head["era"], said)


def recorded(conversation: Conversation) -> Heard:
    heard, names = Heard(), _names(conversation)
    for sender, message in conversation.lines:
        if sender == "client":
            continue
        if "method" not in message:
            heard.answers[names[json.dumps(message["id"])]] = _without_state(message)
        elif "id" in message:
            heard.asked.append({key: value for key, value in message.items() if key != "id"})
        else:
            heard.told.append(message)
    return heard


def replay(conversation: Conversation, peer: "RawStdioClient") -> Heard:
    """Send what the client sent, each message once the server has said what it had said before it.

    Args:
        conversation: the recorded one.
        peer: a client of the other server, that has sent nothing yet.

    Raises:
        TimeoutError: the server does not answer, or does not ask, where the recorded one did.
        PeerClosedError: the server has ended.
    """
    heard, names = Heard(), _names(conversation)
    ids: dict[str, object] = {}
    states: dict[str, str] = {}
    for sender, message in conversation.lines:
        if sender == "client":
            sent = message if "method" in message else message | {"id": ids[json.dumps(message["id"])]}
            peer.send_recorded(_with_states(sent, states))
        elif "method" not in message:
            reply = peer.reply(message["id"])
            before, after = (each.get("result", {}).get("requestState") for each in (message, reply))
            if after:
                states[before or ""] = after
            heard.answers[names[json.dumps(message["id"])]] = _without_state(reply)
        elif "id" in message:
            asked = peer.server_request(message["method"])
            ids[json.dumps(message["id"])] = asked.pop("id")
            heard.asked.append(asked)
    heard.told = list(peer.notifications)
    return heard


def _names(conversation: Conversation) -> dict[str, str]:
    """A name for each request of the client, by its id as JSON: ids that are equal in Python may differ in JSON."""
    requests = [
        message
        for sender, message in conversation.lines
        if sender == "client" and "method" in message and "id" in message
    ]
    return {json.dumps(each["id"]): f"{number} {each['method']}" for number, each in enumerate(requests)}


def _without_state(reply: JsonObject) -> JsonObject:
    answer = {key: value for key, value in reply.items() if key != "id"}
    if "requestState" in answer.get("result", {}):
        answer["result"] = answer["result"] | {"requestState": "(opaque)"}
    return answer


def _with_states(sent: JsonObject, states: dict[str, str]) -> JsonObject:
    """A client sends a server's state back with what was asked: this server's own in place of the recorded one's."""
    params = sent.get("params", {})
    if "inputResponses" not in params or not (state := states.get(params.get("requestState", ""))):
        return sent
    return sent | {"params": params | {"requestState": state}}


def _record(path: Path, client: str, version: str, era: str, argv: list[str]) -> None:
    lock = threading.Lock()
    with (
        path.open("w", encoding="utf-8") as file,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        to_server = server.stdin

        def write(value: JsonObject) -> None:
            with lock:
                print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), file=file, flush=True)

        def pass_on() -> None:
            for line in sys.stdin.buffer:
                write({"from": "client", "message": json.loads(line)})
                to_server.write(line)
                to_server.flush()
            to_server.close()

        write({"client": client, "version": version, "era": era})
        threading.Thread(target=pass_on, daemon=True).start()
        for line in server.stdout:
            write({"from": "server", "message": json.loads(line)})
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    _record(Path(sys.argv[1]), *sys.argv[2:5], sys.argv[6:])
