"""The demonstration's three servers, each by itself."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.clients.raw_client import PeerClosedError, RawStdioClient, RpcError

from quarterdeck.demo.servers import CRASH_STATUS

pytestmark = pytest.mark.process


@contextmanager
def running(server: str, tools: int) -> Iterator[RawStdioClient]:
    """A server that lists so many tools, whose needs are closed: those of the demonstration have no holes."""
    with RawStdioClient([sys.executable, "-m", "quarterdeck.demo.servers", server]) as client:
        client.initialize()
        listed = client.list_tools()
        assert len(listed) == tools
        assert all(tool["inputSchema"]["required"] == list(tool["inputSchema"]["properties"]) for tool in listed)
        yield client


def text_of(result: dict[str, object]) -> object:
    content = result["content"]
    assert isinstance(content, list)
    return content[0]["text"]


def test_the_well_behaved_one_answers() -> None:
    """There would be nothing to compare the others with."""
    with running("tidy", tools=2) as client:
        assert text_of(client.call("add", a=2, b=40)) == "42"
        assert text_of(client.call("count_words", text="all hands on deck")) == "4"
        assert client.request("ping") == {}
        with pytest.raises(RpcError, match="no method"):
            client.request("resources/list")


def test_the_one_that_hangs_still_answers_the_rest() -> None:
    """Nobody could tell a call that hangs from a dead server."""
    with running("stuck", tools=2) as client:
        params = {"name": "think", "arguments": {"question": "why?"}, "_meta": {"progressToken": 7}}
        hanging = client.send("tools/call", params)
        note = client.notification("notifications/progress")
        assert note["params"]["progressToken"] == 7
        assert text_of(client.call("ping")) == "pong"
        assert hanging not in client._replies


def test_the_one_that_crashes_leaves_its_reason() -> None:
    """The dossier of the demonstration would be empty."""
    with running("fragile", tools=1) as client:
        assert text_of(client.call("divide", a=84, b=2)) == "42"
        with pytest.raises(PeerClosedError):
            client.call("divide", a=1, b=0)
        assert client.process.wait(10) == CRASH_STATUS
        client._stderr.seek(0)
        assert client._stderr.read() == b"cannot go on: ZeroDivisionError: float division by zero\n"
