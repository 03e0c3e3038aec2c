"""Lists of an endpoint: asked for once, kept, and no reason to give a server up."""

import pytest
from support.fleet.endpoints import IDLE, READY, Stage, stage
from support.fleet.workers import PlayedWorker, lists, lists_of
from support.waiting import turns

from quarterdeck.fleet.exchange import lists as lists_module
from quarterdeck.fleet.exchange import lists as server_lists
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault, ReplyError
from quarterdeck_protocol.link.frames import List, ListChanged, ServerCard
from quarterdeck_protocol.offers import Listing


async def test_the_list_is_asked_for_once() -> None:
    async with stage() as played:
        played.worker.rules[List] = lists("read", "write", "secret-one")
        first = await played.endpoint.list_tools()
        assert [tool.ref.name for tool in first] == ["read", "write"]
        del played.worker.rules[List]
        assert await played.endpoint.list_tools() is first
        assert played.endpoint.tools() is first
        assert played.seen[-1] == (READY, 2)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error"), FaultKind.PROTOCOL),
        (FaultRecord(FaultKind.TIMEOUT, "slow", "list_timeout"), FaultKind.TIMEOUT),
    ],
)
async def test_a_list_that_fails_is_the_callers_and_leaves_the_endpoint_ready(
    fault: FaultRecord, kind: FaultKind
) -> None:
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: worker.fail(request, fault)
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.list_tools()
        assert (caught.value.kind, caught.value.code) == (kind, fault.code)
        assert played.endpoint.phase is READY
        assert played.endpoint.status().list_fault is caught.value
        played.worker.rules[List] = lists("now")
        assert len(await played.endpoint.list_tools()) == 1
        assert played.endpoint.status().list_fault is None


async def test_a_list_that_is_no_list_is_a_protocol_fault() -> None:
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: worker.answer(request, b"{}")
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.list_tools()
        assert (caught.value.kind, caught.value.code) == (FaultKind.PROTOCOL, "bad_output")
        assert played.endpoint.phase is READY


async def test_a_large_list_is_read_beside_the_loop_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "DECODE_IN_THREAD_BYTES", 1)
    async with stage() as played:
        played.worker.rules[List] = lists("read")
        assert [tool.ref.name for tool in await played.endpoint.list_tools()] == ["read"]


async def test_what_is_left_out_of_a_list_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as played:
        played.worker.rules[List] = lists("good", "b a d")
        await played.endpoint.list_tools()
        assert "tool 2 of fs is left out" in caplog.text


async def test_a_caller_that_gives_up_a_list_tells_the_worker() -> None:
    async with stage() as played:
        del played.worker.rules[List]
        listing = played.start(played.endpoint.list_tools())
        request, _ = await played.worker.next(List)
        listing.cancel()
        assert (await played.worker.next_cancel()).request_id == request.request_id


# The other lists

CAN = b'{"tools":{},"prompts":{"listChanged":true},"resources":{}}'
EVERYTHING = ServerCard("2025-11-25", capabilities=CAN)
ITEMS: dict[str, list[dict[str, object]]] = {
    "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
    "prompts": [{"name": "p"}],
    "resources": [{"uri": "file:///a", "name": "a"}],
    "resourceTemplates": [{"uriTemplate": "file:///{x}", "name": "t"}],
}
NO_SUCH = FaultRecord(
    FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED, reply=ReplyError(-32601, "Method not found")
)


def keys(played: Stage) -> dict[str, list[str]]:
    return {listing.value: [each.key for each in played.endpoint.offers(listing)] for listing in Listing}


async def test_each_list_that_a_server_says_it_has_is_asked_for_once() -> None:
    async with stage(card=EVERYTHING) as played:
        asked: list[str] = []

        def rule(worker: PlayedWorker, request: List, body: bytes) -> None:
            asked.append(request.kind)
            lists_of(**ITEMS)(worker, request, body)

        played.worker.rules[List] = rule
        await played.endpoint.list_tools()
        await played.endpoint.list_tools()
        assert sorted(asked) == sorted(ITEMS)
        assert keys(played) == {
            "tools": [],
            "prompts": ["p"],
            "resources": ["file:///a"],
            "resourceTemplates": ["file:///{x}"],
        }
        assert played.endpoint.has_listed
        assert all(played.endpoint.has_come(listing) for listing in Listing)
        assert played.endpoint.offers(Listing.PROMPTS) is played.endpoint.offers(Listing.PROMPTS)


async def test_a_server_of_tools_is_asked_for_nothing_else() -> None:
    async with stage(card=ServerCard("2025-11-25", capabilities=b'{"tools":{}}')) as played:
        asked: list[str] = []
        played.worker.rules[List] = lambda worker, request, _: (
            asked.append(request.kind),
            worker.answer(request, b"[]"),
        )
        await played.endpoint.list_tools()
        played.worker.says(ListChanged("prompts"))
        await turns()
        assert asked == ["tools"]
        assert played.endpoint.has_come(Listing.PROMPTS), "it has said that there are none"


async def test_a_list_that_fails_is_said_and_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with stage(card=EVERYTHING) as played:

        def rule(worker: PlayedWorker, request: List, body: bytes) -> None:
            if request.kind == "prompts":
                worker.fail(request, FaultRecord(FaultKind.TOOL_ERROR, "not today", "reply_error"))
            elif request.kind == "resourceTemplates":
                worker.fail(request, NO_SUCH)
            else:
                lists_of(**ITEMS)(worker, request, body)

        played.worker.rules[List] = rule
        assert len(await played.endpoint.list_tools()) == 1
        assert keys(played)["resources"] == ["file:///a"]
        assert [played.endpoint.has_come(listing) for listing in Listing] == [True, False, True, True]
        assert caplog.text.count("does not list its") == 1, "many have no word for templates"
        assert "fs does not list its prompts: not today" in caplog.text


async def test_tools_wait_for_the_other_lists_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_module, "OTHER_LISTS_S", 0.0)
    async with stage(card=EVERYTHING) as played:
        held: list[List] = []

        def rule(worker: PlayedWorker, request: List, body: bytes) -> None:
            if request.kind == "tools" or held:
                lists_of(tools=ITEMS["tools"])(worker, request, body)
            else:
                held.append(request)

        played.worker.rules[List] = rule
        assert len(await played.endpoint.list_tools()) == 1
        assert played.endpoint.has_listed
        told = len(played.seen)
        [request] = held
        played.worker.answer(request, b"[]")
        await played.until(lambda: len(played.seen) > told and played.endpoint.has_come(Listing.TEMPLATES))


async def test_a_server_without_tools_that_refuses_to_list_them_has_none() -> None:
    """One that has prompts alone would be taken for one that breaks its era, and started again."""
    async with stage(card=ServerCard("2026-07-28", capabilities=b'{"prompts":{}}')) as played:

        def rule(worker: PlayedWorker, request: List, body: bytes) -> None:
            if request.kind == "tools":
                worker.fail(request, NO_SUCH)
            else:
                lists_of(**ITEMS)(worker, request, body)

        played.worker.rules[List] = rule
        assert await played.endpoint.list_tools() == ()
        assert (played.endpoint.has_listed, keys(played)["prompts"]) == (True, ["p"])


async def test_a_change_takes_that_list_anew_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm of changed prompts would list thousands of tools; a new template would not be seen."""
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    async with stage(card=EVERYTHING) as played:
        played.worker.rules[List] = lists_of(**ITEMS)
        await played.endpoint.list_tools()
        before = {listing: played.endpoint.offers(listing) for listing in Listing}
        asked: list[str] = []

        def rule(worker: PlayedWorker, request: List, body: bytes) -> None:
            asked.append(request.kind)
            more: list[dict[str, object]] = [*ITEMS["prompts"], {"name": "q"}]
            lists_of(**{**ITEMS, "prompts": more})(worker, request, body)

        played.worker.rules[List] = rule
        played.worker.says(ListChanged("prompts"))
        await played.until(lambda: keys(played)["prompts"] == ["p", "q"])
        assert asked == ["prompts"]
        played.worker.says(ListChanged("resources"))
        await played.until(lambda: len(asked) == 3)
        assert sorted(asked[1:]) == ["resourceTemplates", "resources"]
        await turns()
        assert played.endpoint.offers(Listing.RESOURCES) is before[Listing.RESOURCES]


async def test_the_next_generation_s_equal_lists_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(card=EVERYTHING) as first, stage(IDLE, card=EVERYTHING) as second:
        for each in (first, second):
            each.worker.rules[List] = lists_of(**ITEMS)
        await first.endpoint.list_tools()
        monkeypatch.setattr(server_lists, "parse_offers", None)
        second.endpoint.follow(first.endpoint)
        await second.endpoint.open()
        await second.endpoint.list_tools()
        assert second.endpoint.offers(Listing.PROMPTS) is first.endpoint.offers(Listing.PROMPTS)


@pytest.mark.parametrize("capabilities", [b"[]", b"", b"\xff"])
async def test_a_worker_whose_servers_capabilities_cannot_be_read_is_not_ours(capabilities: bytes) -> None:
    card = ServerCard("2025-11-25", capabilities=capabilities)
    async with stage(IDLE, card=card) as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert caught.value.code == "protocol_violation"
