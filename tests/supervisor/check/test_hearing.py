"""What a server's lines are, and what is noted of them."""

import json
from typing import Any

import pytest

from quarterdeck.check.decoys import Marks, make_decoys
from quarterdeck.check.episode import Episode, Marked, Members
from quarterdeck.check.hearing import LATE_S, MAX_ANSWERED, MAX_KEPT, Hearing


class Heard:
    """A hearing with one open request, `7`, and what it was answered."""

    def __init__(self) -> None:
        self.episode = Episode("legacy")
        self.hearing = Hearing(self.episode)
        self.replies: list[Members] = []
        self.hearing.opened(7, "tools/call", self.replies.append, "token")

    def receive(self, *messages: Any, now: float = 0.0) -> None:
        """Take messages, or lines as they are."""
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.hearing.receive(line, now)


def reply(request_id: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **(members or {"result": {}})}


def test_an_answer_reaches_whoever_asked_and_nothing_is_noted() -> None:
    """A sound server would be blamed."""
    heard = Heard()
    heard.receive({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, reply(7))
    assert heard.replies == [reply(7)]
    assert heard.episode == Episode("legacy")


@pytest.mark.parametrize(
    ("messages", "noted"),
    [
        ([b"ready"], {"junk": ["ready"]}),
        ([b'"text"'], {"junk": ['"text"']}),
        ([b"[" * 100_000], {"junk": ["[" * 160 + "…"]}),
        ([b'{"a": "\xff"}'], {"junk": ['{"a": "\ufffd"}']}),
        ([[reply(7)]], {"misshapen": ["a batch, which only 2025-03-26 knows"]}),
        ([{"id": 7, "result": {}}], {"misshapen": ['"jsonrpc" is None, not "2.0"']}),
        ([{"jsonrpc": "2.0"}], {"misshapen": ["a message has neither method nor id"]}),
        ([reply(7, result={}, error={})], {"misshapen": ["an answer has both result and error"]}),
        ([reply(7, error={"code": "x", "message": ""})], {"misshapen": ["an error's code is no whole number"]}),
        ([reply(7, error={"code": 1})], {"misshapen": ["an error's message is no text"]}),
        ([reply(7, result=[])], {"misshapen": ["a result is no object"]}),
        ([reply("7")], {"strays": ["id 7 was answered as '7'"]}),
        ([reply(7), reply(7)], {"strays": ["tools/call was answered twice"]}),
        ([reply(8)], {"strays": ["an answer to 8, which was never asked"]}),
        ([reply([1])], {"strays": ["an answer's id is [1]"]}),
        ([reply(1, method="roots/list")], {"asked": ["roots/list"]}),
        ([{"jsonrpc": "2.0", "method": "notifications/progress"}], {"foreign_progress": ["None"]}),
    ],
)
def test_what_is_wrong_is_noted(messages: list[Any], noted: dict[str, list[str]]) -> None:
    """A server that confuses clients would pass."""
    heard = Heard()
    heard.receive(*messages)
    kinds = ("junk", "misshapen", "strays", "asked", "foreign_progress")
    assert {kind: told for kind in kinds if (told := getattr(heard.episode, kind))} == noted


def test_an_answer_after_its_cancellation_is_late_unless_the_two_may_have_crossed() -> None:
    """A server that was about to answer would be blamed for it."""
    for after_s, is_late in ((LATE_S / 2, False), (LATE_S * 2, True)):
        heard = Heard()
        heard.hearing.closed(7)
        heard.hearing.cancelled(7, 10.0)
        heard.receive(reply(7), now=10.0 + after_s)
        assert heard.replies == []
        assert (7 in heard.hearing.late) == is_late
        assert heard.episode.strays == []


def test_requests_of_the_servers_are_answered_and_not_without_end() -> None:
    """A server that waits for its answer would look hung, or one that floods make us write for ever."""
    heard = Heard()
    heard.receive(reply(1, method="ping"), reply("two", method="sampling/createMessage"))
    first, second = map(json.loads, heard.hearing.answers)
    assert (first["id"], first["result"]) == (1, {})
    assert (second["id"], second["error"]["code"]) == ("two", -32601)
    heard.receive(*[reply(number, method="ping") for number in range(2 * MAX_ANSWERED)])
    assert len(heard.hearing.answers) == MAX_ANSWERED


def test_progress_goes_to_its_request_and_notes_are_bounded() -> None:
    """A flood of junk would fill our memory."""
    heard = Heard()
    params = {"progressToken": "token", "progress": 1}
    heard.receive({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    assert heard.hearing.progress_of("token") == (params,)
    heard.receive(*[b"junk %d" % number for number in range(1000)])
    assert (len(heard.episode.junk), heard.episode.junk_lines) == (MAX_KEPT, 1000)


def test_a_decoys_content_is_noted_in_whatever_carries_it() -> None:
    """A key that is spelt by its characters' numbers, or printed as junk, would leave unseen."""
    decoys = make_decoys((f"{at * 0x9E3779B97F4A7C15F39C:020x}"[-20:] for at in range(1, 50)).__next__)
    key, document = (decoys[-1].path, decoys[-1].mark), (decoys[0].path, decoys[0].mark)
    episode = Episode("calls")
    hearing = Hearing(episode, Marks(decoys))
    spelt = "".join(f"\\u{ord(each):04x}" for each in key[1])
    hearing.receive(f'{{"jsonrpc": "2.0", "id": 3, "result": {{"text": "{spelt}"}}}}'.encode(), 0.0)
    hearing.receive(json.dumps({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": document}).encode(), 0.0)
    hearing.receive(f"junk {document[1]}".encode(), 0.0)
    hearing.heard_on_stderr(key[1].encode())
    assert episode.marked == [Marked(key[0], 3), Marked(document[0]), Marked(key[0], in_stderr=True)]
