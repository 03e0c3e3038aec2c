"""What is asserted of a server, and how the failure of an assertion reads."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_pytest.client.backends import Backend
from quarterdeck_pytest.client.notifications import Told
from quarterdeck_pytest.client.pending import McpTestError
from quarterdeck_pytest.client.server import McpDeck, McpServer, snapshot_of
from quarterdeck_pytest.messages import (
    Answered,
    Ask,
    Compare,
    List,
    Look,
    Meanwhile,
    Numbered,
    Reply,
    ServerView,
    reply_of,
)


class PlayedLink:
    """Answers each request as told beforehand, with `end` for a call; None: no answer comes."""

    def __init__(self, end: object, tools: Iterable[dict[str, Any]], drifts: Iterable[tuple[str, str]]) -> None:
        self._end, self._tools, self._drifts = end, [msgspec.json.encode(tool) for tool in tools], list(drifts)
        self._told = Told()

    def next_id(self) -> int:
        return 1

    def send(self, request: Numbered, meanwhile: Callable[[Meanwhile], None] | None = None) -> Future[Reply]:
        future: Future[Reply] = Future()
        match request:
            case Ask(tool="", method=method):
                future.set_result(Reply(1, b'{"method":"%s"}' % method.encode()))
            case Ask() if isinstance(self._end, BaseException):
                future.set_exception(self._end)
            case Ask() if isinstance(self._end, bytes):
                future.set_result(Reply(1, self._end))
            case List():
                future.set_result(reply_of(request, self._tools))
            case Look():
                fault = FaultRecord(FaultKind.TRANSPORT, "it exited")
                future.set_result(reply_of(request, [ServerView("played", "faulted", fault=fault)]))
            case Compare():
                future.set_result(reply_of(request, self._drifts))
        return future

    def answer(self, answered: Answered) -> None:
        raise NotImplementedError

    def told(self, key: str, server: str) -> Told:
        return self._told


def played(end: object = None, tools: Iterable[dict[str, Any]] = (), drifts: Iterable[tuple[str, str]] = ()) -> Backend:
    return Backend(PlayedLink(end, tools, drifts), "key", "played", Path("/"))


ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}}}


def test_a_call_must_fail_and_in_time() -> None:
    """A server that hangs, or answers what it should refuse, would pass."""
    fault = ProtocolFault(FaultKind.TIMEOUT, "late")
    assert McpServer(played(fault)).assert_fails_within(9, "x") is fault
    with pytest.raises(AssertionError, match=r"neither failed nor answered within 0\.01 s"):
        McpServer(played()).assert_fails_within(0.01, "x")
    result = b'{"content":[{"type":"text","text":"fine"}]}'
    with pytest.raises(AssertionError, match="answered, where it should have failed: 'fine'"):
        McpServer(played(result)).assert_fails_within(9, "x")


def test_a_server_that_does_not_recover_says_why() -> None:
    """A crash loop would read as a slow machine."""
    with pytest.raises(AssertionError, match=r"not ready within 0\.01 s, but faulted: it exited"):
        McpServer(played()).assert_recovers_within(0.01)


def test_tools_of_two_eras_are_compared_line_by_line() -> None:
    """A tool that is lost in one era would be noticed by its users first."""
    servers = {"2025-11-25": played(tools=[ECHO, ADD]), "2026-07-28": played(tools=[ADD, ECHO])}
    McpServer(servers["2025-11-25"], lambda era: McpServer(servers[era])).assert_same_tools()
    servers["2026-07-28"] = played(tools=[ECHO])
    with pytest.raises(AssertionError, match='-  "name": "add"'):
        McpServer(servers["2025-11-25"], lambda era: McpServer(servers[era])).assert_same_tools()
    with pytest.raises(McpTestError, match="within a deck"):
        McpServer(played()).assert_same_tools()


def test_a_snapshot_does_not_depend_on_the_order_of_tools_or_members() -> None:
    """Each harmless change of order would ask for a review."""
    turned = {"inputSchema": ADD["inputSchema"], "name": "add"}
    assert snapshot_of([ECHO, ADD]) == snapshot_of([turned, ECHO])
    assert snapshot_of([ECHO]).splitlines()[1] == '  "inputSchema": {'


def test_schemas_are_held_against_model_providers() -> None:
    """A tool that one provider refuses takes the whole request with it."""
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}}
    McpServer(played(tools=[ADD])).assert_schema_portable()
    with pytest.raises(AssertionError, match=r"gemini: odd: .*a: type must be one word"):
        McpServer(played(tools=[odd])).assert_schema_portable()
    with pytest.raises(McpTestError, match="no provider 'mistral': known are openai"):
        McpServer(played(tools=[ADD])).assert_schema_portable(for_=("mistral",))


def test_what_differs_from_a_lock_is_listed() -> None:
    """A changed definition would reach users unseen."""
    drifts = [("played", "played: tool echo changed\n- 12\n+ 34"), ("other", "other: the lock names it")]
    McpServer(played(drifts=drifts[1:])).assert_deck_unchanged("deck.lock")
    with pytest.raises(AssertionError, match="tool echo changed"):
        McpServer(played(drifts=drifts)).assert_deck_unchanged("deck.lock")
    backend = played(drifts=drifts[1:])
    with pytest.raises(AssertionError, match="other: the lock names it"):
        McpDeck({"played": McpServer(backend)}, {"played": backend}).assert_deck_unchanged()


def test_a_deck_calls_by_qualified_names_and_names_what_it_has() -> None:
    """A mistyped server would be a KeyError of ours."""
    backend = played(b'{"content":[{"type":"text","text":"fine"}]}')
    deck = McpDeck({"played": McpServer(backend)}, {"played": backend})
    assert deck.call("played__x").text == "fine"
    with pytest.raises(McpTestError, match="no server 'plaid': it has played"):
        deck.call("plaid__x")


def test_a_client_asks_for_everything_that_servers_have() -> None:
    """A suite that is moved here could not test its prompts and resources."""
    client = McpServer(played(tools=[ECHO])).client()
    assert client.list_tools() == client.list_prompts() == client.list_resources() == client.list_resource_templates()
    assert client.get_prompt("p", {"a": "b"}) == {"method": "prompts/get"}
    assert client.read_resource("file:///x") == {"method": "resources/read"}
    assert client.complete({"type": "ref/prompt", "name": "p"}, "a", "b") == {"method": "completion/complete"}
