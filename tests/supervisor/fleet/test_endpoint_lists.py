"""Lists of an endpoint, and what its worker says unasked: kept, told, and no reason to give a server up."""

import logging

import pytest
from support.fleet.endpoints import CLOSED, CLOSING, CONNECTING, EXITED, FAULTED, IDLE, READY, Stage, stage
from support.fleet.workers import lists
from support.waiting import turns

from quarterdeck.fleet.exchange import lists as server_lists
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import List, ListChanged, Log, ServerCard


async def test_the_list_is_asked_for_once(played: Stage) -> None:
    """Every list of a client would be a round trip to the server."""
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
    fault: FaultRecord, kind: FaultKind, played: Stage
) -> None:
    """A server that cannot list once would be thrown away."""
    played.worker.rules[List] = lambda worker, request, _: worker.fail(request, fault)
    with pytest.raises(ProtocolFault) as caught:
        await played.endpoint.list_tools()
    assert (caught.value.kind, caught.value.code) == (kind, fault.code)
    assert played.endpoint.phase is READY
    assert played.endpoint.status().list_fault is caught.value
    played.worker.rules[List] = lists("now")
    assert len(await played.endpoint.list_tools()) == 1
    assert played.endpoint.status().list_fault is None


async def test_a_large_list_is_read_beside_the_loop_and_is_the_same(
    monkeypatch: pytest.MonkeyPatch, played: Stage
) -> None:
    """A server with thousands of tools would stop everybody for a moment."""
    monkeypatch.setattr(server_lists, "DECODE_IN_THREAD_BYTES", 1)
    played.worker.rules[List] = lists("read")
    assert [tool.ref.name for tool in await played.endpoint.list_tools()] == ["read"]


async def test_what_is_left_out_of_a_list_is_said(caplog: pytest.LogCaptureFixture, played: Stage) -> None:
    """A user would look for a tool that is missing for a reason that nobody tells."""
    played.worker.rules[List] = lists("good", "b a d")
    await played.endpoint.list_tools()
    assert "tool 2 of fs is left out" in caplog.text


async def test_a_caller_that_gives_up_a_list_tells_the_worker(played: Stage) -> None:
    """The server would page on for nobody."""
    del played.worker.rules[List]
    listing = played.start(played.endpoint.list_tools())
    request, _ = await played.worker.next(List)
    listing.cancel()
    assert (await played.worker.next_cancel()).request_id == request.request_id


@pytest.mark.parametrize("capabilities", [b"[]", b"", b"\xff"])
async def test_a_worker_whose_servers_capabilities_cannot_be_read_is_not_ours(capabilities: bytes) -> None:
    """They are judged, recorded and shown."""
    card = ServerCard("2025-11-25", capabilities=capabilities)
    async with stage(IDLE, card=card) as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert caught.value.code == "protocol_violation"


async def test_a_refresh_that_fails_keeps_the_old_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, played: Stage
) -> None:
    """A server's bad moment would empty every client's list."""
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    played.worker.rules[List] = lists("one")
    before = await played.endpoint.list_tools()
    played.worker.rules[List] = lambda worker, request, _: worker.fail(request, EXITED)
    played.worker.says(ListChanged())
    await played.until(lambda: "does not list them" in caplog.text)
    assert await played.endpoint.list_tools() is before


@pytest.mark.parametrize("phase", [IDLE, CONNECTING, CLOSING, CLOSED, FAULTED])
async def test_changes_told_at_a_wrong_time_start_nothing(phase: EndpointPhase) -> None:
    """A timer would outlive its endpoint."""
    async with stage(phase) as played:
        played.endpoint.on_list_changed("tools")
        assert played.endpoint._lists._tools._refresh is None


async def test_a_refresh_that_is_due_after_the_loss_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, played: Stage
) -> None:
    """A dead server would be asked."""
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    played.endpoint.on_list_changed("tools")
    played.worker.dies()
    await turns()
    assert "refresh tools" not in played.endpoint._tasks


@pytest.mark.parametrize(("level", "shown"), [("error", logging.WARNING), ("info", logging.DEBUG)])
async def test_a_servers_log_lines_are_ours_at_a_lower_voice(
    level: str, shown: int, caplog: pytest.LogCaptureFixture, played: Stage
) -> None:
    """A chatty server would fill the user's terminal, or its errors would be silent."""
    caplog.set_level(logging.DEBUG)
    played.worker.says(Log(level, "db"), b'"hm"')
    await turns()
    [record] = [record for record in caplog.records if "fs says: hm" in record.getMessage()]
    assert record.levelno == shown


async def test_a_refresh_that_a_close_ends_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each end of `quarterdeck tools` could print a warning about a server that did nothing wrong."""
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    asked: list[List] = []
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: asked.append(request)
        played.worker.says(ListChanged())
        await played.until(lambda: bool(asked))
        played.endpoint.phase = EndpointPhase.CLOSING
        played.worker.fail(asked[0], EXITED)
        await played.until(lambda: "refresh tools" not in played.endpoint._tasks)
        played.endpoint.phase = EndpointPhase.READY
    assert "does not list them" not in caplog.text
