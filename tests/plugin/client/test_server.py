"""What is asserted of a server, and how the failure of an assertion reads."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_protocol.tools import WireResult
from quarterdeck_pytest.client.notifications import Told
from quarterdeck_pytest.client.pending import Inbox, McpTestError, Pending
from quarterdeck_pytest.client.server import McpDeck, McpServer, snapshot_of
from quarterdeck_pytest.messages import Asked, Explanation, Greeting, ServerView, Takes


class PlayedBackend:
    """A server whose answers are told beforehand; None for one that never comes."""

    id = "played"

    def __init__(self, end: object = None, tools: Iterable[dict[str, Any]] = (), drifts: Iterable[str] = ()) -> None:
        self._end, self._tools, self._drifts = end, list(tools), list(drifts)
        self.told = Told()
        self.wanted: list[tuple[str, str]] = []

    def call(
        self, tool: str, arguments: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox | None
    ) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        return self._soon(self._end)

    def ask(
        self, method: str, params: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox | None
    ) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        return self._soon(RemoteCallResult(WireResult(b'{"method":"%s"}' % method.encode(), "")))

    def answer(self, asked: Asked, end: QuestionEnd) -> None:
        """See `Backend`."""
        raise NotImplementedError

    def greeting(self) -> Pending[Greeting]:
        """See `Backend`."""
        return self._soon(Greeting("2025-11-25", b'{"name":"played"}', b'{"tools":{}}', "be kind"))

    def tell(self, method: str, params: bytes) -> Pending[None]:
        """See `Backend`."""
        raise NotImplementedError

    def want(self, what: str, value: str) -> Pending[None]:
        """See `Backend`."""
        self.wanted.append((what, value))
        return self._soon(())

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """See `Backend`."""
        return self._soon([msgspec.json.encode(tool) for tool in self._tools])

    def view(self) -> Pending[ServerView]:
        """See `Backend`."""
        return self._soon(ServerView("played", "faulted", fault=FaultRecord(FaultKind.TRANSPORT, "it exited")))

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """See `Backend`."""
        raise NotImplementedError

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:
        """See `Backend`."""
        return self._soon(())

    def recovered(self) -> Pending[None]:
        """See `Backend`."""
        return self._soon(None)

    def compare(self, lock: str) -> Pending[list[tuple[str, str]]]:
        """See `Backend`."""
        return self._soon(self._drifts)

    @staticmethod
    def _soon(end: object) -> Pending[Any]:
        future: Future[object] = Future()
        if isinstance(end, BaseException):
            future.set_exception(end)
        elif end is not None:
            future.set_result(end)
        return Pending(future, lambda value: value)


ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}}}


def test_a_call_must_fail_and_in_time() -> None:
    """A server that hangs, or answers what it should refuse, would pass."""
    fault = ProtocolFault(FaultKind.TIMEOUT, "late")
    assert McpServer(PlayedBackend(fault)).assert_fails_within(9, "x") is fault
    with pytest.raises(AssertionError, match=r"neither failed nor answered within 0\.01 s"):
        McpServer(PlayedBackend()).assert_fails_within(0.01, "x")
    result = RemoteCallResult(WireResult(b'{"content":[{"type":"text","text":"fine"}]}', ""))
    with pytest.raises(AssertionError, match="answered, where it should have failed: 'fine'"):
        McpServer(PlayedBackend(result)).assert_fails_within(9, "x")


def test_a_server_that_does_not_recover_says_why() -> None:
    """A crash loop would read as a slow machine."""
    with pytest.raises(AssertionError, match=r"not ready within 0\.01 s, but faulted: it exited"):
        McpServer(PlayedBackend()).assert_recovers_within(0.01)


def test_tools_of_two_eras_are_compared_line_by_line() -> None:
    """A tool that is lost in one era would be noticed by its users first."""
    servers = {"2025-11-25": PlayedBackend(tools=[ECHO, ADD]), "2026-07-28": PlayedBackend(tools=[ADD, ECHO])}
    McpServer(servers["2025-11-25"], lambda era: McpServer(servers[era])).assert_same_tools()
    servers["2026-07-28"] = PlayedBackend(tools=[ECHO])
    with pytest.raises(AssertionError, match='-  "name": "add"'):
        McpServer(servers["2025-11-25"], lambda era: McpServer(servers[era])).assert_same_tools()
    with pytest.raises(McpTestError, match="within a deck"):
        McpServer(PlayedBackend()).assert_same_tools()


def test_a_snapshot_does_not_depend_on_the_order_of_tools_or_members() -> None:
    """Each harmless change of order would ask for a review."""
    turned = {"inputSchema": ADD["inputSchema"], "name": "add"}
    assert snapshot_of([ECHO, ADD]) == snapshot_of([turned, ECHO])
    assert snapshot_of([ECHO]).splitlines()[1] == '  "inputSchema": {'


def test_schemas_are_held_against_model_providers() -> None:
    """A tool that one provider refuses takes the whole request with it."""
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}}
    McpServer(PlayedBackend(tools=[ADD])).assert_schema_portable()
    with pytest.raises(AssertionError, match=r"gemini: odd: .*a: type must be one word"):
        McpServer(PlayedBackend(tools=[odd])).assert_schema_portable()
    with pytest.raises(McpTestError, match="no provider 'mistral': known are openai"):
        McpServer(PlayedBackend(tools=[ADD])).assert_schema_portable(for_=("mistral",))


def test_what_differs_from_a_lock_is_listed() -> None:
    """A changed definition would reach users unseen."""
    drifts = [("played", "played: tool echo changed\n- 12\n+ 34"), ("other", "other: the lock names it")]
    McpServer(PlayedBackend(drifts=drifts[1:])).assert_deck_unchanged("deck.lock")
    with pytest.raises(AssertionError, match="tool echo changed"):
        McpServer(PlayedBackend(drifts=drifts)).assert_deck_unchanged("deck.lock")
    backend = PlayedBackend(drifts=drifts[1:])
    with pytest.raises(AssertionError, match="other: the lock names it"):
        McpDeck({"played": McpServer(backend)}, {"played": backend}).assert_deck_unchanged()


def test_a_deck_calls_by_qualified_names_and_names_what_it_has() -> None:
    """A mistyped server would be a KeyError of ours."""
    result = RemoteCallResult(WireResult(b"{}", ""))
    backend = PlayedBackend(result)
    deck = McpDeck({"played": McpServer(backend)}, {"played": backend})
    assert deck.call("played__x") is result
    with pytest.raises(McpTestError, match="no server 'plaid': it has played"):
        deck.call("plaid__x")


def test_a_client_asks_for_everything_that_servers_have() -> None:
    """A suite that is moved here could not test its prompts and resources."""
    client = McpServer(PlayedBackend(tools=[ECHO])).client()
    assert client.list_tools() == client.list_prompts() == client.list_resources() == client.list_resource_templates()
    assert client.get_prompt("p", {"a": "b"}) == {"method": "prompts/get"}
    assert client.read_resource("file:///x") == {"method": "resources/read"}
    assert client.complete({"type": "ref/prompt", "name": "p"}, "a", "b") == {"method": "completion/complete"}
