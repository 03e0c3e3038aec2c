"""Lists of an endpoint: asked for once, kept, and no reason to give a server up."""

import pytest
from support.fleet.workers import lists

from quarterdeck.fleet import requests
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import List

from .endpoints import READY, stage

pytestmark = pytest.mark.anyio


async def test_the_list_is_asked_for_once() -> None:
    """Every list of a client would be a round trip to the server."""
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
    """A server that cannot list once would be thrown away."""
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: worker.fail(request, fault)
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.list_tools()
        assert (caught.value.kind, caught.value.code) == (kind, fault.code)
        assert played.endpoint.phase is READY
        played.worker.rules[List] = lists("now")
        assert len(await played.endpoint.list_tools()) == 1


async def test_a_list_that_is_no_list_is_a_protocol_fault() -> None:
    """Nonsense would look like a server without tools."""
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: worker.answer(request, b"{}")
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.list_tools()
        assert (caught.value.kind, caught.value.code) == (FaultKind.PROTOCOL, "bad_output")
        assert played.endpoint.phase is READY


async def test_a_large_list_is_read_beside_the_loop_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with thousands of tools would stop everybody for a moment."""
    monkeypatch.setattr(requests, "DECODE_IN_THREAD_BYTES", 1)
    async with stage() as played:
        played.worker.rules[List] = lists("read")
        assert [tool.ref.name for tool in await played.endpoint.list_tools()] == ["read"]


async def test_what_is_left_out_of_a_list_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A user would look for a tool that is missing for a reason that nobody tells."""
    async with stage() as played:
        played.worker.rules[List] = lists("good", "b a d")
        await played.endpoint.list_tools()
        assert "tool 2 of fs is left out" in caplog.text


async def test_a_caller_that_gives_up_a_list_tells_the_worker() -> None:
    """The server would page on for nobody."""
    async with stage() as played:
        del played.worker.rules[List]
        listing = played.start(played.endpoint.list_tools())
        request, _ = await played.worker.next(List)
        listing.cancel()
        assert (await played.worker.next_cancel()).request_id == request.request_id
