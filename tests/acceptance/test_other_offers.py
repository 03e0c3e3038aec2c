"""A server behind a URL asks, in both eras; `test_features` has one of everything that MCP has as a process."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from support.config.places import row
from support.processes.http_servers import forked_http_server

from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_pytest import McpClient, McpServer

WAYS: Final = ("http-modern", "http-legacy")

PATIENT_S: Final = 120.0
"""For a start on a busy machine."""

FORM: Final = {"username": "u", "email": "e", "response": "r", "name": "n"}
"""What is entered into whatever form."""

ANSWERS: Final = {"elicitation": FORM, "roots": ["file:///a"], "sampling": "hm"}


@pytest.fixture(scope="module")
def mcp_config() -> Iterator[dict[str, object]]:
    """The server of everything, reached in each way; and one that may not ask."""
    with (
        forked_http_server("--http", name="conformance") as modern,
        forked_http_server("--http", "--legacy", name="conformance") as legacy,
    ):
        rows = {
            "http-modern": {"url": modern, "protocol": "2026-07-28"},
            "http-legacy": {"url": legacy},
            "stdio-denied": row("conformance", "--legacy", ask="deny"),
            "http-denied": {"url": legacy, "ask": "deny"},
        }
        yield {"mcpServers": rows}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    way: str = request.param
    return way


@pytest.fixture
def client(mcp_server: Callable[..., McpServer], way: str) -> McpClient:
    return mcp_server(way, scope="module", timeout=PATIENT_S).client()


@pytest.mark.parametrize("mcp_answers", [ANSWERS])
@pytest.mark.parametrize(
    ("tool", "kinds"),
    [
        ("test_elicitation", ["elicitation"]),
        ("test_sampling", ["sampling"]),
        ("test_input_required_result_list_roots", ["roots"]),
        ("test_input_required_result_multi_round", ["elicitation", "elicitation"]),
        ("test_input_required_result_multiple_inputs", sorted(ANSWERS)),
    ],
)
def test_what_it_asks_is_answered_by_whoever_called(client: McpClient, tool: str, kinds: list[str]) -> None:
    """In the older era by requests, in the newer by rounds: neither would reach the user."""
    result = client.call_tool(tool, {"prompt": "hi", "message": "hi"})
    assert sorted(asked.kind for asked in client.questions) == kinds
    assert not result.is_error
    assert "state-ok" in result.text


def test_without_anybody_to_ask_it_says_so(client: McpClient) -> None:
    """A script would wait for a person that it has not."""
    assert refused(client, "test_elicitation")


@pytest.mark.parametrize("mcp_answers", [ANSWERS])
@pytest.mark.parametrize("way", ["stdio-denied", "http-denied"])
def test_a_server_that_may_not_ask_is_told_that_nobody_can_be_asked(client: McpClient) -> None:
    """`"ask": "deny"` would be a word."""
    assert refused(client, "test_elicitation")
    assert client.questions == []


def refused(client: McpClient, tool: str) -> bool:
    """Whether a call that asks has an error for its end, of whichever kind."""
    try:
        return client.call_tool(tool, {"message": "hi"}).is_error
    except ProtocolFault as fault:
        return fault.code in ("input_required", "reply_error")
