"""What a worker says unasked reaches whom it concerns, and no more than that."""

import logging
from typing import Any

import pytest
from support.fleet.endpoints import CLOSED, CLOSING, CONNECTING, EXITED, FAULTED, IDLE, READY, stage
from support.fleet.workers import lists
from support.waiting import turns

from quarterdeck.fleet.exchange import lists as server_lists
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.link.frames import List, ListChanged, Log


async def test_changed_tools_are_listed_again_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    async with stage() as played:
        played.worker.rules[List] = lists("one")
        before = await played.endpoint.list_tools()
        played.worker.rules[List] = lists("one", "two")
        played.worker.says(ListChanged())
        await played.until(lambda: played.endpoint.tools() is not before)
        assert [tool.ref.name for tool in await played.endpoint.list_tools()] == ["one", "two"]
        assert played.seen[-1] == (READY, 2)


async def test_a_list_that_did_not_change_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    listed: list[int] = []
    async with stage() as played:
        played.worker.rules[List] = lists("one")
        before = await played.endpoint.list_tools()
        told = len(played.seen)

        def again(worker: Any, request: List, body: bytes) -> None:
            listed.append(request.request_id)
            lists("one")(worker, request, body)

        played.worker.rules[List] = again
        played.worker.says(ListChanged())
        await played.until(lambda: bool(listed))
        await turns()
        assert played.endpoint.tools() is before
        assert len(played.seen) == told


async def test_a_storm_of_changes_costs_one_list_at_a_time() -> None:
    async with stage() as played:
        await played.endpoint.list_tools()
        listed: list[int] = []

        def again(worker: Any, request: List, body: bytes) -> None:
            listed.append(request.request_id)
            lists("one")(worker, request, body)

        played.worker.rules[List] = again
        for _ in range(50):
            played.endpoint.on_list_changed("tools")
        await played.until(lambda: bool(listed))
        for _ in range(50):
            played.endpoint.on_list_changed("tools")
        await turns()
        assert len(listed) == 1, "the first is taken at once, the next list waits for its second"
        timer = played.endpoint._lists._tools._refresh
        assert timer is not None
        await played.endpoint.close()
        assert timer.cancelled()


async def test_a_refresh_that_fails_keeps_the_old_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    async with stage() as played:
        played.worker.rules[List] = lists("one")
        before = await played.endpoint.list_tools()
        played.worker.rules[List] = lambda worker, request, _: worker.fail(request, EXITED)
        played.worker.says(ListChanged())
        await played.until(lambda: "does not list them" in caplog.text)
        assert await played.endpoint.list_tools() is before


@pytest.mark.parametrize("phase", [IDLE, CONNECTING, CLOSING, CLOSED, FAULTED])
async def test_changes_told_at_a_wrong_time_start_nothing(phase: EndpointPhase) -> None:
    async with stage(phase) as played:
        played.endpoint.on_list_changed("tools")
        assert played.endpoint._lists._tools._refresh is None


async def test_a_refresh_that_is_due_after_the_loss_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "REFRESH_S", 0.0)
    async with stage() as played:
        played.endpoint.on_list_changed("tools")
        played.worker.dies()
        await turns()
        assert "refresh tools" not in played.endpoint._tasks


@pytest.mark.parametrize(("level", "shown"), [("error", logging.WARNING), ("info", logging.DEBUG)])
async def test_a_servers_log_lines_are_ours_at_a_lower_voice(
    level: str, shown: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with stage() as played:
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
