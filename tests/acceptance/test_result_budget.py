"""`max_result_tokens`: long results are cut, and their whole can be read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.raw_client import RawStdioClient, RpcError
from support.config.places import row, write_document
from support.processes.commands import DEADLINE_S
from support.serves.daemons import door, doors_at_home, own_file
from support.waiting import eventually

SIZE: Final = 1_000_000
MAX_CHARS: Final = 4400
"""Of 1,000 tokens."""
MAX_NOTICE: Final = 150


@pytest.fixture
def config(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """The user's own file, with a server of each era; no daemon is left at the end."""
    with doors_at_home(tmp_path):
        yield write(own_file(tmp_path), 1000)


def write(config: Path, max_result_tokens: int | None) -> Path:
    servers = {"legacy": row("echo"), "modern": row("modern")}
    return write_document(config, mcpServers=servers, max_result_tokens=max_result_tokens)


def uri_in(text: str) -> str:
    assert len(text) <= MAX_CHARS + MAX_NOTICE
    assert "bytes left out: the whole is the resource quarterdeck://results/" in text
    return "quarterdeck:" + text.partition("quarterdeck:")[2].partition("]")[0]


def text_of(result: dict[str, Any]) -> str:
    [block] = result["content"]
    text: str = block["text"]
    return text


def read(client: RawStdioClient, uri: str) -> str:
    [content] = client.request("resources/read", {"uri": uri})["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "text/plain")
    text: str = content["text"]
    return text


def test_a_door_is_answered_within_the_budget_and_reads_the_whole(config: Path) -> None:
    """One answer would fill a model's context; or what was left out be lost, or another client's to read."""
    with door(config) as client, door(config, "--search") as other:
        for each in (client, other):
            each.initialize()
        eventually(lambda: {"legacy__big", "modern__big"} <= {tool["name"] for tool in client.list_tools()}, DEADLINE_S)
        uris = []
        for server in ("legacy", "modern"):
            uris.append(uri_in(text_of(client.call(f"{server}__big", bytes=SIZE))))
            assert read(client, uris[-1]) == "x" * SIZE
            assert text_of(client.call(f"{server}__big", bytes=MAX_CHARS)) == "x" * MAX_CHARS
        failed = client.call("legacy__iserror", text="e" * SIZE)
        assert failed["isError"]
        uris.append(uri_in(text_of(failed)))
        assert len(set(uris)) == len(uris)

        found = other.call("call_tool", name="legacy__big", arguments={"bytes": SIZE})
        assert read(other, uri_in(text_of(found))) == "x" * SIZE
        for gone in (uris[0], "quarterdeck://results/nothing"):
            with pytest.raises(RpcError, match="call the tool again"):
                other.request("resources/read", {"uri": gone})
        write(config, None)
        eventually(lambda: text_of(client.call("legacy__big", bytes=SIZE)) == "x" * SIZE, DEADLINE_S, "no budget")
