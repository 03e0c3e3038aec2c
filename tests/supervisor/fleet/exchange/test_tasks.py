"""Calls that become tasks at one server, and requests about them: each is its client's, whatever the server says."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleet.answers import CAPABLE, ME, OTHER, Answering, Waiter
from support.fleet.endpoints import READY, REMOTE, STDIO, Stage, stage
from support.waiting import turns

from quarterdeck.fleet.exchange.tasks import MAX_AGE_S, MAX_EACH, MAX_TOGETHER, ServerTasks, TaskOwners
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.link.frames import AskAnswer, Asked, Call, Forward, Note, ServerCard
from quarterdeck_protocol.mcp.tasks import EXTENSION, RELATED
from quarterdeck_protocol.offers import News, RawRequest, ServerNote
from quarterdeck_protocol.tools import CallEnd, Client, RawCall, WireResult

OLD, NEW = "2025-11-25", "2026-07-28"
TAKES = b'{"extensions":{"%b":{}}}' % EXTENSION.encode()
CALL = b'{"name":"work","arguments":{},"task":{}}'


@asynccontextmanager
async def ready(era: str = OLD) -> AsyncIterator[Stage]:
    async with stage(READY, card=ServerCard(era)) as played:
        yield played


async def asked(
    played: Stage, request: RawRequest, body: bytes, era: str = OLD, result_type: str = "complete"
) -> CallEnd:
    waiter = Waiter(partial(played.endpoint.forward, request))
    frame, _ = await played.worker.next(Forward)
    played.worker.answer(frame, body, era=era)
    return await waiter.ended


async def begun(played: Stage, task: object, client: Client = ME) -> CallEnd:
    """How a call ends that a server of 2025-11-25 makes a task of this id."""
    body = msgspec.json.encode({"task": {"taskId": task, "status": "working"}})
    return await asked(played, RawRequest("tools/call", CALL, client=client), body)


def about(task: str, method: str = "tasks/get", client: Client = ME, **options: Any) -> RawRequest:
    return RawRequest(method, msgspec.json.encode({"taskId": task}), client=client, **options)


async def code_of(played: Stage, request: RawRequest) -> str | None:
    end = await Waiter(partial(played.endpoint.forward, request)).ended
    assert isinstance(end, ProtocolFault)
    return end.code


async def test_a_task_is_asked_for_by_the_client_that_began_it(played: Stage) -> None:
    """Its result would never be had, or by somebody else."""
    assert isinstance(await begun(played, "1"), WireResult)
    assert isinstance(await asked(played, about("1"), b'{"taskId":"1","status":"working"}'), WireResult)
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert await code_of(played, about("1", method, OTHER)) == "task_lost"


async def test_a_call_of_the_newer_era_becomes_a_task_where_its_client_takes_one() -> None:
    """A client would be given what it cannot read, or not be given what it takes."""
    async with ready(NEW) as played:
        answerer = Answering(TAKES, bridges=False)
        waiter = Waiter(partial(played.endpoint.begin, RawCall("work", b"{}", client=ME, answerer=answerer)))
        frame, _ = await played.worker.next(Call)
        played.worker.answer(frame, b'{"taskId":"1","status":"working"}', era=NEW, result_type="task")
        end = await waiter.ended
        assert end.result_type == "task"
        found = await asked(played, about("1", answerer=answerer), b'{"taskId":"1"}', era=NEW)
        assert isinstance(found, WireResult)


@pytest.mark.parametrize("answerer", [None, Answering(CAPABLE, bridges=False)])
@pytest.mark.parametrize("era", [OLD, NEW])
async def test_a_task_that_nobody_takes_is_a_fault(answerer: Any, era: str) -> None:
    """A client would wait for the result of what it takes for one."""
    async with ready(era) as played:
        waiter = Waiter(partial(played.endpoint.begin, RawCall("work", b"{}", client=ME, answerer=answerer)))
        frame, _ = await played.worker.next(Call)
        played.worker.answer(frame, b'{"taskId":"1"}', era=era, result_type="task")
        end = await waiter.ended
        assert (end.code, "takes none" in end.message) == ("bad_result", True)


@pytest.mark.parametrize("task", ["", "x" * 100_000, "a\nb", "a\x1b[31m", 7, None])
async def test_an_id_that_cannot_be_used_is_said_and_not_kept(task: object, played: Stage) -> None:
    """A server's id would fill logs and memory, or write on a terminal."""
    end = await begun(played, task)
    assert end.code == "bad_result"
    assert len(end.message) < 500
    assert end.message.isprintable()
    assert isinstance(await begun(played, "2"), WireResult), "the next one is none the worse for it"


async def test_a_server_cannot_hand_a_client_anothers_task(played: Stage) -> None:
    """It would show one client's work to another, who could end it."""
    await begun(played, "1")
    stolen = await begun(played, "1", OTHER)
    assert (stolen.code, "another client's" in stolen.message) == ("bad_result", True)
    assert await code_of(played, about("1", client=OTHER)) == "task_lost"
    assert isinstance(await asked(played, about("1"), b'{"taskId":"1"}'), WireResult)


@pytest.mark.parametrize("body", [b'{"taskId":"2"}', b"{}", b'{"taskId":7}'])
async def test_the_state_of_another_task_than_was_asked_for_is_not_passed_on(body: bytes, played: Stage) -> None:
    """A client would be told what another one's task came to."""
    await begun(played, "1")
    end = await asked(played, about("1"), body)
    assert end.code == "bad_result"


async def test_a_result_names_the_task_that_was_asked_for(played: Stage) -> None:
    """A client that trusts the name would book it with another task."""
    await begun(played, "1")
    body = b'{"content":[1.0],"_meta":{"k":1,"%b":{"taskId":"%b"}}}'
    end = await asked(played, about("1", "tasks/result"), body % (RELATED.encode(), b"2"))
    assert end.body == body % (RELATED.encode(), b"1")


@pytest.mark.parametrize(
    ("era", "method"), [(OLD, "tasks/update"), (OLD, "tasks/of-tomorrow"), (NEW, "tasks/result"), (NEW, "tasks/list")]
)
async def test_what_an_era_does_not_have_is_not_asked_of_its_servers(era: str, method: str) -> None:
    """A server would be asked for all its clients' tasks, or for what it does not know."""
    async with ready(era) as played:
        assert await code_of(played, about("1", method)) == "not_offered"


async def test_news_of_a_task_is_for_its_own_client(played: Stage) -> None:
    """Everybody would be told what one client's task came to."""
    news: list[News] = []
    played.endpoint.tell_news = news.append
    await begun(played, "1")
    for body in (b'{"taskId":"1"}', b'{"taskId":"2"}', b'{"taskId":7}', b""):
        played.worker.says(Note("notifications/tasks/status"), body)
    await turns()
    told = ServerNote("fs", "notifications/tasks/status", b'{"taskId":"1"}', frozenset({ME.key}))
    assert news == [told]


async def test_a_question_of_a_task_reaches_whoever_waits_for_it(played: Stage) -> None:
    """Another client's user would be asked, or nobody."""
    await begun(played, "1")
    await begun(played, "2", OTHER)
    mine, theirs, callers = Answering(), Answering(), Answering()
    for request in (about("1", "tasks/result", answerer=mine), about("2", "tasks/result", OTHER, answerer=theirs)):
        Waiter(partial(played.endpoint.forward, request))
        await played.worker.next(Forward)
    Waiter(partial(played.endpoint.begin, RawCall("t", b"{}", client=ME, answerer=callers)))
    await played.worker.next(Call)
    related = b'{"message":"?","_meta":{"%b":{"taskId":"%b"}}}'
    played.worker.says(Asked(1, "elicitation/create"), related % (RELATED.encode(), b"2"))
    played.worker.says(Asked(2, "elicitation/create"), b"{}")
    await turns()
    assert (len(mine.asked), len(theirs.asked), len(callers.asked)) == (0, 1, 1)
    played.worker.says(Asked(3, "elicitation/create"), related % (RELATED.encode(), b"3"))
    told, _ = await played.worker.next_told()
    assert isinstance(told, AskAnswer)
    assert told.code == -32601, "of nobody's task"


async def test_the_tasks_of_a_server_that_ends_are_lost_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A client would wait for ever for what nobody works on, or be given what the next process calls so."""
    caplog.set_level(logging.WARNING)
    async with ready() as played, ready() as again:
        await begun(played, "1")
        played.worker.dies()
        await turns()
        assert "fs has ended: 1 tasks of its clients are lost" in caplog.text
        again.endpoint.follow(played.endpoint)
        assert await code_of(again, about("1")) == "task_lost"
        assert isinstance(await begun(again, "1", OTHER), WireResult), "the id is free"


def test_the_tasks_of_a_remote_server_outlive_its_connection() -> None:
    """A lost connection would cost what a server works on elsewhere."""
    for config, is_kept in ((REMOTE, True), (STDIO, False)):
        before, after = ServerTasks(config), ServerTasks(config)
        ends: list[CallEnd] = []
        take = before.watched(RawRequest("tools/call", CALL, client=ME), ends.append, is_modern=False)
        take(WireResult(b'{"task":{"taskId":"1"}}', OLD))
        before.stop()
        after.follow(before)
        found = after.begin(about("1"), ends.append, is_modern=False)
        assert isinstance(found, ProtocolFault) is not is_kept


def test_that_tasks_are_forgotten_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A client could not tell why its first tasks are gone; or the log would be full of it."""
    tasks, ends = ServerTasks(STDIO), list[CallEnd]()
    take = tasks.watched(RawRequest("tools/call", CALL, client=ME), ends.append, is_modern=False)
    for number in range(MAX_EACH + 3):
        take(WireResult(b'{"task":{"taskId":"%d"}}' % number, OLD))
    assert caplog.text.count("too many tasks") == 1
    assert all(isinstance(each, WireResult) for each in ends)


async def test_a_client_that_leaves_takes_its_tasks_with_it(played: Stage) -> None:
    """Its ids would be taken for ever."""
    await begun(played, "1")
    played.endpoint.leave(ME)
    assert await code_of(played, about("1")) == "task_lost"


async def test_what_cannot_be_read_is_not_sent(played: Stage) -> None:
    """A server would be asked for a task that nobody has looked at."""
    assert await code_of(played, RawRequest("tasks/get", b'{"taskId":7}', client=ME)) == "bad_arguments"
    assert await code_of(played, RawRequest("tasks/get", b"", client=ME)) == "task_lost"


# Whose a task is


def test_a_server_cannot_give_a_client_anothers_task() -> None:
    """A server would hand one client's work to another, by an id that it has given already."""
    owners = TaskOwners()
    owners.note("1", "ada", 0.0)
    assert not owners.note("1", "bob", 1.0)
    assert owners.note("1", "ada", 1.0), "its own it may"
    assert owners.owner_of("1") == "ada"
    owners.leave("ada")
    assert owners.note("1", "bob", 2.0), "nobody has it any more"


def test_of_too_many_tasks_the_client_that_has_them_loses_the_oldest() -> None:
    """One client's tasks would take all memory, or push out a neighbour's."""
    owners = TaskOwners()
    owners.note("neighbour's", "bob", 0.0)
    for number in range(MAX_EACH + 10):
        owners.note(str(number), "ada", 1.0)
    assert (len(owners), owners.forgotten) == (MAX_EACH + 1, 10)
    assert owners.owner_of("9") is None
    assert owners.owner_of("10") == "ada"
    assert owners.use("neighbour's", "bob", 2.0)


def test_together_there_are_no_more_than_a_bound() -> None:
    """Many clients would take all memory with a few tasks each."""
    owners = TaskOwners()
    for client in range(MAX_TOGETHER // MAX_EACH):
        for number in range(MAX_EACH):
            owners.note(f"{client}-{number}", str(client), 0.0)
    assert (len(owners), owners.forgotten) == (MAX_TOGETHER, 0)
    owners.note("b", "bob", 0.0)
    assert (len(owners), owners.forgotten) == (MAX_TOGETHER, 1)
    assert owners.use("b", "bob", 0.0), "who has most loses one"


def test_a_task_that_nobody_asked_for_in_a_day_is_forgotten() -> None:
    """What clients left would be kept for ever."""
    owners = TaskOwners()
    owners.note("old", "ada", 0.0)
    owners.note("used", "ada", 0.0)
    assert owners.use("used", "ada", MAX_AGE_S / 2)
    assert owners.note("new", "bob", MAX_AGE_S + 1)
    assert owners.owner_of("old") is None
    assert owners.owner_of("used") == "ada"
    assert not owners.use("new", "bob", 3 * MAX_AGE_S), "too old, though nobody came meanwhile"
    assert owners.owner_of("new") is None


@given(st.lists(st.tuples(st.sampled_from("nul"), st.sampled_from("12"), st.sampled_from("ab"), st.floats(0, 1e5))))
def test_a_task_has_one_owner_whatever_happens(steps: list[tuple[str, str, str, float]]) -> None:
    """Two clients would have one task, or a task nobody could forget."""
    owners, now = TaskOwners(), 0.0
    for kind, task, client, after_s in steps:
        now += after_s
        match kind:
            case "n":
                assert owners.note(task, client, now) == (owners.owner_of(task) == client)
            case "u":
                assert not owners.use(task, client, now) or owners.owner_of(task) == client
            case _:
                owners.leave(client)
                assert client not in {owners.owner_of(each) for each in "12"}
    assert len(owners) == sum(owners.owner_of(each) is not None for each in "12")
