"""Lists of tools past the SDK: which are answered by the bytes of the last one, and that those are never stale."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from support.clients.http_clients import listening
from support.clients.wire_http import ENVELOPE, META, Reply, WireHttp, wired
from support.tools.tool_boxes import LiveBox, answer
from support.waiting import PATIENCE_S, POLL_S, eventually_async

from quarterdeck.host.http import serve
from quarterdeck.host.offers.publish import Catalog
from quarterdeck_protocol.tools import ToolDescriptor

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ERAS = pytest.mark.parametrize("is_modern", [False, True], ids=["legacy", "modern"])

TEXT = "x" * 32 * 1024 * 1024
"""More than a socket holds."""


class KeptBox(LiveBox):
    """Gives the same list as long as it has the same tools, as the product's does."""

    def __init__(self, *tools: str) -> None:
        super().__init__()
        self._kept: Sequence[ToolDescriptor] = ()
        for tool in tools:
            self.graft(tool, answer({"content": []}))

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """See `ToolSource`."""
        present = super().descriptors()
        self._kept = self._kept if len(present) == len(self._kept) else present
        return self._kept


def listing(number: int | str = 1, *, is_modern: bool = False, **params: Any) -> dict[str, Any]:
    """A request for the tools."""
    given = params | ({"_meta": ENVELOPE} if is_modern else {})
    return {"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": given}


async def opened(client: WireHttp, *, is_modern: bool) -> None:
    """Let a client come so far that what it asks may be answered past the SDK."""
    await (client.introduce() if is_modern else client.greet())
    if is_modern:
        client.headers["Mcp-Method"] = "tools/list"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions of the lists that the SDK answered."""
    versions: list[str] = []
    publish = Catalog.publish
    monkeypatch.setattr(
        Catalog, "publish", lambda *given, **only: versions.append(given[-1]) or publish(*given, **only)
    )
    return versions


def names_in(reply: Reply) -> list[str]:
    """The tools of a list."""
    return [tool["name"] for tool in reply.answer["result"]["tools"]]


@ERAS
async def test_the_same_tools_are_listed_by_the_same_bytes_and_others_anew(built, is_modern):
    """A client with many sessions would wait for each list to be built; or be shown tools that are gone."""
    box = KeptBox("s__a")
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=is_modern)
        first = await client.ask(listing(1, is_modern=is_modern))
        built.clear()
        again = await client.ask(listing("7", is_modern=is_modern))
        assert not built
        assert again.answer == first.answer | {"id": "7"}
        assert again.headers.get("mcp-session-id") == client.headers.get("Mcp-Session-Id")
        box.graft("s__b", answer({"content": []}))
        for number in (2, 3):
            assert names_in(await client.ask(listing(number, is_modern=is_modern))) == ["s__a", "s__b"]
        assert len(built) == 1


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"cursor": "2"}, {}),
        ({"_meta": {"progressToken": 1}}, {}),
        ({"_meta": ENVELOPE}, {}),
        ({}, {"Content_Encoding": "gzip"}),
    ],
    ids=["cursor", "meta", "envelope", "encoding"],
)
async def test_a_list_that_says_more_is_the_sdks(built, params, headers):
    """What it says would be passed over."""
    async with listening(KeptBox("s__a")) as url, wired(url) as client:
        await opened(client, is_modern=False)
        await client.ask(listing(1))
        built.clear()
        await client.ask(listing(2))
        assert not built
        await client.ask(listing(3, **params), **headers)
        assert len(built) == 1


@pytest.mark.parametrize(
    ("headers", "meta", "status"),
    [
        ({"Mcp_Name": "s__a"}, ENVELOPE, 200),
        ({"Mcp_Method": "tools/call"}, ENVELOPE, 400),
        ({}, ENVELOPE | {f"{META}clientInfo": {"name": "another", "version": "1"}}, 200),
        ({}, ENVELOPE | {"progressToken": 1}, 200),
    ],
    ids=["name", "method", "envelope", "token"],
)
async def test_a_modern_list_that_is_not_exactly_what_was_accepted_before_is_the_sdks(built, headers, meta, status):
    """The SDK alone judges envelopes, and headers that have to say the same."""
    async with listening(KeptBox("s__a")) as url, wired(url) as client:
        await opened(client, is_modern=True)
        built.clear()
        await client.ask(listing(is_modern=True))
        assert not built
        assert (await client.ask(listing(2, _meta=meta), **headers)).status == status
        assert len(built) == (status == 200)


async def test_a_list_that_is_not_read_counts_as_open(monkeypatch):
    """One client's connections, none of which it reads, would fill the memory."""
    monkeypatch.setattr(serve, "MAX_REQUESTS_EACH", 1)
    box = KeptBox()
    box.graft("s__a", answer({}), name="a", description=TEXT, inputSchema={"type": "object"})
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=False)
        await client.ask(listing())
        async with wired(url, client) as other:
            client.writer.write(client.request(listing(2)))
            # Before that the other's could come first, and this one be refused.
            await eventually_async(lambda: client.reader._buffer)
            await eventually_status(other, 429)
            assert names_in(await client.read()) == ["s__a"]
            await eventually_status(other, 200)


async def eventually_status(client: WireHttp, status: int) -> None:
    """Ask for lists until one is answered with this status."""
    with anyio.fail_after(PATIENCE_S):
        while (await client.ask(listing(3))).status != status:  # noqa: ASYNC110 - the server has no event for us
            await anyio.sleep(POLL_S)
