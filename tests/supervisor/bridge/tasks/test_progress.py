"""How far tasks are, as clients hear it by their own tokens, and until when; no clock but the test's own."""

import msgspec
import pytest

from quarterdeck.bridge.tasks import progress
from quarterdeck.bridge.tasks.progress import MAX_TOKEN_BYTES, ProgressTokens
from quarterdeck_protocol.mcp.tasks import PROGRESS, RELATED, TaskProgress
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.tools import CallEnd, Client, WireResult

OLD = "2025-11-25"
ADA = Client("ada", "door-1")


class Clock:
    """One that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def made(task: str = "1", status: str = "working", ttl: object = None) -> WireResult:
    """The answer of a call that has become a task."""
    return WireResult(msgspec.json.encode({"task": {"taskId": task, "status": status, "ttl": ttl}}), OLD)


def kept(clock: Clock | None = None, token: bytes = b'"t"', end: WireResult | None = None) -> ProgressTokens:
    """The token of a task of ada's at the server a, which she calls a:1."""
    tokens = ProgressTokens(clock or Clock())
    tokens.keep(RawRequest("tools/call", b"{}", client=ADA, progress_token=token), "a", "1", "a:1", end or made())
    return tokens


def note(task: str = "1", server: str = "a") -> ServerNote:
    """What a server says of how far a task is."""
    return ServerNote(server, PROGRESS, TaskProgress(task, 0.5, 2.0, "half").encoded())


def state(status: str) -> bytes:
    """That of the task."""
    return msgspec.json.encode({"taskId": "1", "status": status})


def is_heard(tokens: ProgressTokens) -> bool:
    """Whether ada hears of her task."""
    return tokens.noted(ADA.key, note()) is not None


def test_a_client_hears_by_its_own_token_and_its_own_id() -> None:
    """It could tell neither which request, nor which task, the note is of."""
    told = kept(token=b"7").noted(ADA.key, note())
    assert told is not None
    assert (told.method, told.clients) == (PROGRESS, frozenset((ADA.key,)))
    expected = {"progressToken": 7, "progress": 0.5, "total": 2.0, "message": "half"}
    assert msgspec.json.decode(told.params) == {**expected, "_meta": {RELATED: {"taskId": "a:1"}}}


@pytest.mark.parametrize("other", [note("2"), note(server="b")])
def test_nobody_hears_of_another_task(other: ServerNote) -> None:
    """A server would tell of another one's task."""
    assert kept().noted(ADA.key, other) is None
    assert kept().noted("door-2", note()) is None


@pytest.mark.parametrize(
    "params", [b"{}", b"[]", b'{"taskId":"1"}', b'{"taskId":"1","progress":"x"}', b'{"taskId":"1","progress":1e999}']
)
def test_what_cannot_be_read_is_not_told(params: bytes) -> None:
    """A client would get what is no number, from a worker that checks nothing."""
    assert kept().noted(ADA.key, ServerNote("a", PROGRESS, params)) is None


def test_long_words_are_cut() -> None:
    """A server would fill a client's window."""
    long = ServerNote("a", PROGRESS, TaskProgress("1", 1.0, None, "x" * 1_000_000).encoded())
    told = kept().noted(ADA.key, long)
    assert told is not None
    assert len(told.params) < 2_000


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_nothing_is_heard_of_a_task_that_has_ended(status: str) -> None:
    """Progress would come after the result."""
    tokens = kept()
    tokens.told(ADA.key, ServerNote("a", "notifications/tasks/status", state(status)))
    assert not is_heard(tokens)

    for method, body in (("tasks/get", state(status)), ("tasks/cancel", state(status)), ("tasks/result", b"{}")):
        tokens, ends = kept(), list[CallEnd]()
        request = RawRequest(method, b"{}", client=ADA)
        tokens.until_ended(request, "a", "1", ends.append)(WireResult(body, OLD))
        assert len(ends) == 1
        assert not is_heard(tokens)
    assert not is_heard(kept(end=made(status=status)))


def test_a_task_that_goes_on_is_heard_of() -> None:
    """Whoever looks at a task would lose its progress."""
    tokens = kept()
    tokens.told(ADA.key, ServerNote("a", "notifications/tasks/status", state("input_required")))
    tokens.told(ADA.key, ServerNote("a", "notifications/tasks/status", b"[]"))
    request = RawRequest("tasks/get", b"{}", client=ADA)
    tokens.until_ended(request, "a", "1", lambda _: None)(WireResult(state("working"), OLD))
    assert is_heard(tokens)


def test_a_token_ends_with_the_time_to_live_and_with_its_client() -> None:
    """Tokens would pile up, and a new request that uses one again hear of an old task."""
    clock = Clock()
    tokens = kept(clock, end=made(ttl=5_000))
    clock.now_s = 5.0
    assert is_heard(tokens)
    clock.now_s = 5.1
    assert not is_heard(tokens)
    clock.now_s = 0.0
    assert not is_heard(tokens)
    for_ever = kept(clock, end=made(ttl="x"))
    clock.now_s = 1e9
    assert is_heard(for_ever)
    for_ever.leave(ADA.key)
    assert not is_heard(for_ever)


def test_tokens_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would fill all memory."""
    assert not is_heard(kept(token=b'"%s"' % (b"x" * MAX_TOKEN_BYTES)))
    assert not is_heard(kept(token=b""))
    monkeypatch.setattr(progress, "MAX_EACH", 2)
    tokens = kept()
    for own in ("2", "3"):
        tokens.keep(RawRequest("tools/call", b"{}", client=ADA, progress_token=b"1"), "a", own, own, made(own))
    assert [tokens.noted(ADA.key, note(own)) is not None for own in "123"] == [False, True, True]


def test_the_next_task_of_one_id_without_a_token_is_not_the_last_one() -> None:
    """A server that was started anew gives the same ids again."""
    tokens = kept()
    tokens.keep(RawRequest("tools/call", b"{}", client=ADA), "a", "1", "1", made())
    assert not is_heard(tokens)
