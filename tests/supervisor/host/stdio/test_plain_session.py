"""What is answered without the SDK is what the SDK's session answers, and the rest is left to it."""

import asyncio
import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.mcp_clients import ENVELOPE
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox, answer

from quarterdeck.host.offers import publish
from quarterdeck.host.offers.publish import as_listed, is_valid
from quarterdeck.host.provider import ProviderHostInfo, create_provider_host
from quarterdeck.host.stdio.early_reply import HANDSHAKE_VERSIONS
from quarterdeck.host.stdio.plain_session import NEWEST, PlainSession
from quarterdeck.route.router import Router
from quarterdeck_protocol.tools import ToolDescriptor

from .host_pipes import served

INFO: Final = {"name": "raw", "version": "1"}


def greeting(version: str = "2025-11-25", **more: Any) -> dict[str, Any]:
    """The handshake's request."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": INFO} | more
    return {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}


def asked(method: str, meta: object = None, **params: Any) -> dict[str, Any]:
    """A request."""
    whole = params | ({"_meta": meta} if meta is not None else {})
    return {"jsonrpc": "2.0", "id": 7, "method": method, **({"params": whole} if whole else {})}


INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}

ODD: Final = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}

CONVERSATIONS: Final[dict[str, list[dict[str, Any]]]] = {
    **{version: [greeting(version), INITIALIZED, asked("tools/list")] for version in (*HANDSHAKE_VERSIONS, "2031-1-1")},
    "ping": [greeting(), INITIALIZED, asked("ping"), asked("ping", meta={"progressToken": 1})],
    "early list": [greeting(), asked("tools/list")],
    "early ping": [asked("ping"), greeting()],
    "list with a token": [greeting(), INITIALIZED, asked("tools/list", meta={"progressToken": "t", "x": 1})],
    "list with a cursor": [greeting(), INITIALIZED, asked("tools/list", cursor="5")],
    "all lists": [
        *(greeting(), INITIALIZED),
        *(asked("prompts/list"), asked("resources/list"), asked("resources/templates/list")),
    ],
    "all modern lists": [
        *(asked("prompts/list", meta=ENVELOPE), asked("resources/list", meta=ENVELOPE)),
        asked("resources/templates/list", meta=ENVELOPE),
    ],
    "rare, then usual": [greeting(), INITIALIZED, asked("resources/list"), asked("tools/list"), asked("ping")],
    "greeted twice": [greeting(), INITIALIZED, greeting()],
    "odd greeting": [greeting(clientInfo={"name": 5}), greeting(), INITIALIZED, asked("tools/list")],
    "modern": [asked("server/discover", meta=ENVELOPE), asked("tools/list", meta=ENVELOPE)],
    "modern list at once": [asked("tools/list", meta=ENVELOPE), asked("resources/list", meta=ENVELOPE)],
    "modern, with a token": [asked("tools/list", meta={**ENVELOPE, "progressToken": 3})],
    "modern, unknown revision": [asked("server/discover", meta=ODD), asked("tools/list", meta=ODD)],
    "modern, then older": [asked("server/discover", meta=ENVELOPE), greeting(), asked("tools/list")],
    "older, then modern": [greeting(), INITIALIZED, asked("tools/list", meta=ENVELOPE)],
}


def tools() -> LiveBox:
    """Two tools, one of them as no server of ours writes them."""
    box = LiveBox()
    box.graft("s__plain", answer(b'{"content":[]}'))
    box.graft("s__other", answer(b'{"content":[]}'))
    return box


def offers() -> Router:
    """What two servers have beside them."""
    return Router(
        OfferFleet(OfferServer("a", prompts=("p",), resources=("x:1",)), OfferServer("b", templates=("t:{x}",)))
    )


async def said_in(messages: list[dict[str, Any]], *, has_offers: bool = False) -> list[Any]:
    """The answers of a conversation, one after the other."""
    info = ProviderHostInfo("quarterdeck", "0.1.0")
    others = offers() if has_offers else None
    host = create_provider_host(tools(), info, instructions=lambda _: "Be kind.", offers=others)
    async with served(host) as client:
        answers = []
        for message in messages:
            await client.send(message)
            if "id" in message:
                answers.append(await client.receive())
        return answers


@pytest.mark.anyio
@pytest.mark.parametrize("has_offers", [False, True])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_answers_are_those_of_the_sdk(
    name: str, monkeypatch: pytest.MonkeyPatch, *, has_offers: bool
) -> None:
    """A client would see another server, by what it happened to say before."""
    from quarterdeck.host.stdio import early_reply, session

    # Both say that they are the product: the early answer knows no other name.
    assert early_reply.CLIENT_NAME == "quarterdeck"
    monkeypatch.setattr(early_reply, "CLIENT_VERSION", "0.1.0")
    ours = await said_in(CONVERSATIONS[name], has_offers=has_offers)
    monkeypatch.setattr(session.PlainSession, "take", lambda *_: None)
    assert ours == await said_in(CONVERSATIONS[name], has_offers=has_offers)


@pytest.mark.anyio
async def test_a_list_that_cannot_be_made_is_an_error_and_the_session_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client would wait for its tools for ever."""

    def fails(*_: object) -> list[bytes]:
        raise ValueError("a bug")

    async with served(create_provider_host(tools())) as client:
        await client.open_legacy()
        with monkeypatch.context() as patch:
            patch.setattr(publish.Catalog, "publish_json", fails)
            refused = await client.ask(1, "tools/list")
        assert refused["error"]["code"] == -32603
        assert len((await client.ask(2, "tools/list"))["result"]["tools"]) == 2
    assert "tools/list could not be answered" in caplog.text


@pytest.mark.anyio
async def test_a_session_that_cannot_begin_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would wait for an answer that nobody will give."""
    from quarterdeck.host.provider import ProviderHostImpl

    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no SDK")

    monkeypatch.setattr(ProviderHostImpl, "connect", fails)
    with pytest.raises(ExceptionGroup) as caught:
        async with served(create_provider_host(tools())) as client:
            await client.open_legacy()
            await client.send(client.request(1, "prompts/list"))
            assert await client.line() == b""
    assert "serving the client broke: no SDK" in str(caught.getrepr())


@pytest.mark.anyio
@pytest.mark.parametrize("request_id", [1, "1", "list"])
async def test_a_list_that_is_cancelled_has_no_answer(request_id: int | str) -> None:
    """A client would take it for the answer to another request."""
    waits = asyncio.Event()
    async with served(create_provider_host(tools(), settled=waits.wait)) as client:
        await client.open_legacy()
        await client.send(client.request(request_id, "tools/list"))
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
        await client.send(client.request(2, "ping"))
        assert (await client.receive())["id"] == 2
        waits.set()
        assert (await client.ask(3, "tools/list"))["id"] == 3


@pytest.mark.anyio
async def test_an_id_that_is_used_again_is_the_later_list() -> None:
    """It could not be cancelled: the one before would have been forgotten in its place."""
    waits = asyncio.Event()
    async with served(create_provider_host(tools(), settled=waits.wait)) as client:
        await client.open_legacy()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        await client.send(client.request(1, "tools/list"), cancel, client.request(1, "tools/list"))
        assert (await client.ask(2, "ping"))["id"] == 2
        await client.send(cancel)
        assert (await client.ask(3, "ping"))["id"] == 3
        waits.set()
        assert (await client.ask(4, "tools/list"))["id"] == 4


def test_what_is_rare_is_left_to_the_sdk() -> None:
    """A request would be answered by what does not know it."""
    from quarterdeck.host.raw_calls import read_message

    plain = PlainSession(b"{}", str)
    for message in (asked("prompts/list"), asked("tools/list"), INITIALIZED, asked("server/discover", meta=ODD)):
        line = json.dumps(message).encode()
        assert plain.take(line, read_message(line)) is None


LEAVES: Final = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "object", "dark", "required"])
)

VALUES: Final = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.sampled_from(["type", "src", "x"]), LEAVES)

TOOLS: Final = st.fixed_dictionaries(
    {"name": st.just("t") | VALUES, "inputSchema": st.just({"type": "object"}) | VALUES},
    optional={
        key: VALUES
        | st.just({"type": "object", "properties": {"a": {}}, "required": ["a"]})
        | st.just({"readOnlyHint": True, "title": "x"})
        | st.just([{"src": "data:x", "sizes": ["1x1"]}])
        | st.just({"taskSupport": "required"})
        for key in ("title", "description", "outputSchema", "annotations", "icons", "execution", "_meta", "x-own")
    },
)


@given(TOOLS)
def test_what_is_forwarded_as_it_is_the_sdk_takes_in_every_revision(tool: dict[str, Any]) -> None:
    """A client refuses a whole list for one bad tool."""
    listed = as_listed(ToolDescriptor("s__t", "", {"type": "object"}, json.dumps(tool).encode()))
    if listed:
        shown = json.loads(listed)
        assert shown == tool | {"name": "s__t"}
        assert all(is_valid(shown, version) for version in (*HANDSHAKE_VERSIONS, NEWEST))


@pytest.mark.parametrize(
    "definition",
    [
        b'{"name":"t","inputSchema":{"type":"object"},\n"x":1}',
        b'{"name":"t","inputSchema":{"type":"object"},"_meta":{"io.modelcontextprotocol/x":1}}',
        b'{"name":"t","inputSchema":' + b'{"type":"object","not":' * 300 + b"1" + b"}" * 301,
        b'{"name":"t","inputSchema":{"type":"object"}',
        b'{"name":"t","inputSchema":{"type":"array"}}',
    ],
)
def test_what_is_not_plainly_right_is_not_forwarded_as_it_is(definition: bytes) -> None:
    """A line break would end the line, and what the era says of itself would be a server's word."""
    assert as_listed(ToolDescriptor("s__t", "", {"type": "object"}, definition)) == b""


def test_a_definition_keeps_what_only_its_server_knows() -> None:
    """Numbers that no float holds, and members of the future, would be lost on the way."""
    definition = b'{"name":"t","x":1.10,"inputSchema":{"type":"object"},"y":12345678901234567890123}'
    [shown] = publish.Catalog().publish_json([ToolDescriptor("s__t", "", {}, definition)], NEWEST)
    assert shown == definition.replace(b'"t"', b'"s__t"')
