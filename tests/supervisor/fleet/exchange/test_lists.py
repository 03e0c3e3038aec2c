"""The lists of one server: when each is asked for, what comes of one that fails, and who is told."""

import asyncio
import json
import logging
from collections.abc import Coroutine
from math import inf
from typing import Any

import pytest
from support.fleet.workers import PlayedWorker
from support.waiting import turns, until

from quarterdeck.fleet.exchange import lists as module
from quarterdeck.fleet.exchange.lists import ServerLists
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault, ReplyError
from quarterdeck_protocol.link.frames import List
from quarterdeck_protocol.offers import Listing

CONFIG = StdioServerConfig(id="fs", command="x")
ALL = b'{"tools":{},"prompts":{},"resources":{}}'
REFUSED = FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", reply=ReplyError(-32601, "Method not found"))
BROKEN = FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", reply=ReplyError(-32603, "it broke"))


class Listener:
    """The owner of a handle, which hears nothing here."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


class Bench:
    """The lists of a played server; `answers` are what it lists, by listing, a fault or the very items."""

    def __init__(self, capabilities: bytes = ALL) -> None:
        self.worker = PlayedWorker()
        self.handle = self.worker.hired("fs", Listener())
        self.changes = 0
        self.is_wanted = True
        self.same: list[Listing] = []
        self.lists = ServerLists(
            CONFIG, is_wanted=lambda: self.is_wanted, on_change=self._changed, on_same=self.same.append
        )
        self.lists.promise(capabilities)
        self.answers: dict[str, Any] = {"tools": [tool("a")], "prompts": [], "resources": [], "resourceTemplates": []}
        self.asked: list[str] = []
        self.held: list[List] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.worker.rules[List] = self._answer

    def _changed(self) -> None:
        self.changes += 1

    def _answer(self, worker: PlayedWorker, frame: List, _: bytes) -> None:
        self.asked.append(frame.kind)
        answer = self.answers[frame.kind]
        if isinstance(answer, FaultRecord):
            worker.fail(frame, answer)
        elif answer is None:
            self.held.append(frame)
        else:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            worker.answer(frame, body)

    def start(self, name: str, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))
        return self.tasks[-1]

    async def take(self) -> None:
        await self.lists.take(self.handle, self.start)

    @property
    def names(self) -> list[str]:
        return [each.ref.name for each in self.lists.tools]

    async def close(self) -> None:
        self.lists.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.worker.leaves()


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


async def met(capabilities: bytes = ALL) -> Bench:
    bench = Bench(capabilities)
    await bench.handle.greeted
    return bench


@pytest.fixture
async def bench() -> Any:
    made = await met()
    yield made
    await made.close()


async def test_each_list_is_asked_for_once_whoever_wants_it(bench: Bench) -> None:
    """A server would be listed anew for every client."""
    bench.answers["prompts"] = [{"name": "p"}]
    assert not bench.lists.has_settled
    await bench.take()
    await bench.take()
    assert sorted(bench.asked) == ["prompts", "resourceTemplates", "resources", "tools"]
    assert (bench.names, bench.lists.has_settled) == (["a"], True)
    assert [each.key for each in bench.lists.offers(Listing.PROMPTS)] == ["p"]
    assert all(map(bench.lists.has_come, Listing))


async def test_a_server_is_asked_for_what_it_says_it_has_and_for_tools() -> None:
    """Most servers have tools alone; what they do not have has come."""
    bench = await met(b'{"tools":{}}')
    await bench.take()
    assert bench.asked == ["tools"]
    assert all(map(bench.lists.has_come, Listing))
    assert bench.lists.offers(Listing.PROMPTS) == ()
    await bench.close()


async def test_lists_that_do_not_come_hold_up_no_tools(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that forgets to answer one of them would offer nothing at all."""
    monkeypatch.setattr(module, "OTHER_LISTS_S", 0.01)
    bench.answers["prompts"] = None
    await bench.take()
    assert (bench.names, bench.lists.has_settled) == (["a"], True)
    assert (bench.lists.has_come(Listing.TOOLS), bench.lists.has_come(Listing.PROMPTS)) == (True, False)
    told = bench.changes
    bench.worker.answer(bench.held[0], b"[]")
    await until(lambda: bench.changes > told)
    assert all(map(bench.lists.has_come, Listing))


async def test_a_list_that_the_server_does_not_know_is_empty_and_one_that_fails_stays(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without templates would be waited for; one that fails once would lose what it has."""
    bench.answers["resourceTemplates"] = REFUSED
    bench.answers["prompts"] = BROKEN
    with caplog.at_level(logging.WARNING):
        await bench.take()
    assert bench.lists.has_come(Listing.TEMPLATES)
    assert not bench.lists.has_come(Listing.PROMPTS)
    assert "does not list its prompts" in caplog.text
    assert "templates of resources" not in caplog.text


async def test_tools_that_fail_are_said_to_whoever_asked(bench: Bench) -> None:
    """A server would be ready, and offer nothing, and nobody be told why."""
    bench.answers["tools"] = BROKEN
    with pytest.raises(ProtocolFault) as caught:
        await bench.take()
    assert caught.value.kind is FaultKind.PROTOCOL
    assert not bench.lists.has_settled
    bench.answers["tools"] = b'{"tools":7}'
    with pytest.raises(ProtocolFault) as caught:
        await bench.take()
    assert (caught.value.kind, caught.value.code) == (FaultKind.PROTOCOL, "bad_output")
    bench.answers["tools"] = [tool("a")]
    await bench.take()
    assert bench.names == ["a"]


async def test_a_server_that_says_it_has_no_tools_may_refuse_to_list_them() -> None:
    """A server of prompts alone would never be ready; and one that lied would seem to have none."""
    bench = await met(b'{"prompts":{}}')
    bench.answers["tools"] = REFUSED
    await bench.take()
    assert (bench.names, bench.lists.has_settled) == ([], True)
    await bench.close()
    bench = await met()
    bench.answers["tools"] = REFUSED
    with pytest.raises(ProtocolFault):
        await bench.take()
    await bench.close()


async def test_whoever_watches_is_told_of_other_items_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client would list anew whatever a server says for ever."""
    monkeypatch.setattr(module, "REFRESH_S", 0.0)
    await bench.take()
    tools, count, version = bench.lists.tools, bench.changes, bench.lists.version
    bench.lists.on_changed("tools", bench.handle, bench.start)
    await until(lambda: bench.asked.count("tools") == 2)
    await turns()
    assert (bench.lists.tools is tools, bench.changes, bench.lists.version) == (True, count, version)
    bench.answers["tools"] = [tool("b")]
    bench.lists.on_changed("tools", bench.handle, bench.start)
    await until(lambda: bench.changes > count)
    assert (bench.names, bench.lists.version) == (["b"], version + 1)


async def test_a_change_that_was_announced_and_changed_nothing_is_told_as_that(bench: Bench) -> None:
    """A client that listens to what a server announces would hear nothing where it added a tool and took it away."""
    await bench.take()
    for kind in ("tools", "prompts", "resources"):
        bench.lists.on_changed(kind, bench.handle, bench.start)
    await until(lambda: len(bench.same) == 3)
    assert set(bench.same) == {Listing.TOOLS, Listing.PROMPTS, Listing.RESOURCES}
    bench.answers["prompts"] = [{"name": "p"}]
    before = bench.changes
    bench.lists._others[Listing.PROMPTS]._refreshed_at = -inf
    bench.lists.on_changed("prompts", bench.handle, bench.start)
    await until(lambda: bench.changes > before)
    assert len(bench.same) == 3


async def test_a_storm_of_changes_is_one_list(bench: Bench) -> None:
    """A server would have us list it without end."""
    await bench.take()
    for _ in range(1_000):
        bench.lists.on_changed("resources", bench.handle, bench.start)
        bench.lists.on_changed("prompts", bench.handle, bench.start)
    await until(lambda: len(bench.asked) >= 7)
    await turns()
    assert sorted(bench.asked[4:]) == ["prompts", "resourceTemplates", "resources"]
    bench.lists.on_changed("prompts", bench.handle, bench.start)
    await turns()
    assert len(bench.asked) == 7, "the next one waits for its time"


async def test_a_change_of_what_a_server_has_not_is_nothing() -> None:
    """A server would be asked for what it said it has not."""
    bench = await met(b'{"tools":{}}')
    await bench.take()
    bench.lists.on_changed("prompts", bench.handle, bench.start)
    await turns()
    assert bench.asked == ["tools"]
    await bench.close()


async def test_a_server_that_is_gone_is_listed_no_more(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Its log would be full of what nobody can do anything about."""
    await bench.take()
    bench.lists.on_changed("tools", bench.handle, bench.start)
    bench.is_wanted = False
    await turns()
    assert bench.asked.count("tools") == 1
    bench.lists.on_changed("tools", bench.handle, bench.start)
    bench.lists.stop()
    await turns()
    assert (bench.asked.count("tools"), caplog.text) == (1, "")


async def test_the_next_generation_reads_the_same_bytes_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart would cost the parsing of thousands of tools that are known."""
    bench.answers["prompts"] = [{"name": "p"}]
    await bench.take()
    later = await met()
    later.answers = bench.answers
    later.lists = ServerLists(CONFIG, is_wanted=lambda: True, on_change=lambda: None)
    later.lists.follow(bench.lists)
    later.lists.promise(ALL)
    monkeypatch.setattr(module, "parse_tools", None)
    monkeypatch.setattr(module, "parse_offers", None)
    assert later.lists.tools == ()
    await later.take()
    assert later.lists.tools is bench.lists.tools
    assert later.lists.offers(Listing.PROMPTS) is bench.lists.offers(Listing.PROMPTS)
    await later.close()
