"""Tasks of real servers, behind one daemon: each is its client's own, whatever ids and eras there are, however long."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.era_client import Era, EraClient
from support.clients.raw_client import JsonObject
from support.config.places import row
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_forked
from support.serves.daemons import doors_at_home

FAULT: Final = "quarterdeck/fault"

WAITING: Final = 80
"""Requests for results at once: more than a server is given calls."""


@pytest.fixture
def window(own_directories: Path, tmp_path: Path) -> Iterator[Callable[..., EraClient]]:
    """Makes clients of a home with servers of both eras whose calls can be tasks; no daemon is left at the end."""
    clients: list[EraClient] = []

    def make(era: Era = Era.OLD) -> EraClient:
        words = ("serve", *PATIENT)
        client = EraClient(words, era, deadline_s=DEADLINE_S, cwd=tmp_path, popen=popen_forked)
        clients.append(client)
        assert len(client.pages("tools/list", "tools")) == 15
        return client

    servers = {
        "s": row("tasking", "--legacy", start="at_once"),
        "n": row("tasking", "--legacy", start="at_once"),
        "m": row("tasking", protocol="2026-07-28", start="at_once"),
    }
    with doors_at_home(tmp_path, **servers):
        yield make
        for client in clients:
            client.close()


def begun(client: EraClient, server: str = "s", **arguments: str) -> str:
    wish: JsonObject = {"task": {}} if client.era is Era.OLD else {}
    made = client.ask("tools/call", name=f"{server}__work", arguments=arguments, **wish)
    return str(made["task"]["taskId"] if client.era is Era.OLD else made["taskId"])


def fault_of(error: JsonObject) -> object:
    return error["data"][FAULT]["code"]


def refused(client: EraClient, method: str, **params: Any) -> object:
    return fault_of(client.error(method, **params))


def test_a_task_is_its_own_clients_whatever_ids_the_servers_give(window: Callable[..., EraClient]) -> None:
    """A client would read, list or end what another one began, or confuse what two servers call the same."""
    ada, bob = window(), window()
    assert [begun(ada), begun(ada, "n")] == ["task-1", "n:task-1"]
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert refused(bob, method, taskId="task-1") == "unknown_task"
    assert bob.pages("tasks/list", "tasks") == []

    stolen = {"name": "s__work", "arguments": {"way": "same_id"}, "task": {}}
    assert refused(bob, "tools/call", **stolen) == "bad_result"
    assert refused(bob, "tasks/get", taskId="task-1") == "unknown_task"
    ada.ask("tools/call", name="n__finish", arguments={"task": "task-1"})
    found = ada.ask("tasks/result", taskId="n:task-1")
    assert found["content"][0]["text"] == "did None"
    states = {task["taskId"]: task["status"] for task in ada.pages("tasks/list", "tasks")}
    assert states == {"task-1": "working", "n:task-1": "completed"}
    told = ada.notification("notifications/tasks/status")["params"]
    assert (told["taskId"], told["status"]) == ("n:task-1", "completed")
    assert bob.heard("notifications/tasks/status") == []


@pytest.mark.parametrize(("era", "server"), [(Era.OLD, "m"), (Era.NEW, "s")])
def test_across_eras_there_is_no_task_and_every_call_is_answered(
    window: Callable[..., EraClient], era: Era, server: str
) -> None:
    """A client would get what its era does not know, or be told of tools that are for tasks and answered without."""
    ada = window(era)
    tools = {tool["name"]: tool.get("execution") for tool in ada.pages("tools/list", "tools")}
    assert all(tools[f"{server}__{tool}"] is None for tool in ("work", "asks", "only"))
    assert tools["s__only"] == ({"taskSupport": "required"} if era is Era.OLD else None)
    wish: JsonObject = {"task": {}} if era is Era.OLD else {}
    for tool in ("work", "only"):
        given = {"name": f"{server}__{tool}", "arguments": {"text": tool, "way": "soon"}, **wish}
        assert ada.ask("tools/call", **given)["content"][0]["text"] == f"did {tool}"
    ada.questions.clear()
    done = ada.ask("tools/call", name=f"{server}__asks", arguments={"way": "ask" if server == "s" else ""}, **wish)
    assert done["content"][0]["text"] == ("did it for Ada" if server == "s" else "did None")
    assert refused(ada, "tasks/get", taskId="task-1") == "unknown_task"


def test_tasks_that_never_end_keep_nobody_from_working_and_end_with_their_server(
    window: Callable[..., EraClient],
) -> None:
    """A client that waits for what never comes would keep the server from all others; or wait on when it is gone."""
    ada, bob = window(), window()
    task = begun(ada)
    waiting = [ada.send("tasks/result", {"taskId": task}) for _ in range(WAITING)]
    for client in (ada, bob):
        for text in "abc":
            told = client.ask("tools/call", name="s__plain", arguments={"text": text})
            assert told["content"][0]["text"] == f"did {text}"
    assert ada.ask("tasks/get", taskId=task)["status"] == "working"
    assert bob.ask("tools/call", name="s__finish", arguments={"how": "crash"})["isError"]
    for request_id in waiting:
        assert "error" in ada.reply(request_id)
    assert refused(ada, "tasks/get", taskId=task) == "task_lost"
    assert ada.pages("tasks/list", "tasks") == []
    assert begun(bob) == "task-1", "the id of the new process's first"
    assert refused(ada, "tasks/get", taskId=task) in ("task_lost", "unknown_task")
    assert "1 tasks of its clients are lost" in quarterdeck_forked("logs", "--daemon").stdout


def test_a_tool_that_is_blocked_is_not_called_as_a_task_either(
    window: Callable[..., EraClient], tmp_path: Path
) -> None:
    """What a person decided would hold for calls alone."""
    ada = window()
    assert quarterdeck_forked("trust", "block", "s", "work", cwd=tmp_path).returncode == 0
    plain = ada.ask("tools/call", name="s__work", arguments={})
    assert plain["_meta"][FAULT]["code"] == "tool_blocked"
    assert refused(ada, "tools/call", name="s__work", arguments={}, task={}) == "tool_blocked"
    assert quarterdeck_forked("trust", "approve", "s", "work", "--yes", cwd=tmp_path).returncode == 0
    assert begun(ada) == "task-1"
    ada.close()
    assert quarterdeck_forked("down").returncode == 0  # what was called is written then at the latest
    assert "work" in quarterdeck_forked("ledger", "calls", cwd=tmp_path).stdout


def test_progress_of_a_task_reaches_its_own_client_until_it_has_ended(window: Callable[..., EraClient]) -> None:
    """A person would see nothing of what a task does once its call is answered; or hear of it when all is over."""
    ada, bob = window(), window()
    wish = {"task": {}, "_meta": {"progressToken": "mine"}}
    task = ada.ask("tools/call", name="s__work", arguments={}, **wish)["task"]["taskId"]
    half = {"task": task, "how": "progress"}
    ada.ask("tools/call", name="s__finish", arguments=half)
    told = ada.notification("notifications/progress")["params"]
    related = {"io.modelcontextprotocol/related-task": {"taskId": task}}
    assert told == {"progressToken": "mine", "progress": 1.0, "total": 2.0, "message": "Half", "_meta": related}
    ada.ask("tools/call", name="s__finish", arguments={"task": task})
    assert ada.ask("tasks/result", taskId=task)["content"][0]["text"] == "did None"
    ada.ask("tools/call", name="s__finish", arguments=half)

    held = ada.send("tools/call", {"name": "s__only", "arguments": {}, "_meta": {"progressToken": 7}})
    ada.ask("tools/call", name="s__finish", arguments={"task": "task-2", "how": "progress"})
    told = ada.notification("notifications/progress")["params"]
    assert told == {"progressToken": 7, "progress": 1.0, "total": 2.0, "message": "Half"}
    ada.ask("tools/call", name="s__finish", arguments={"task": "task-2"})
    assert ada.reply(held)["result"]["content"][0]["text"] == "did None"
    assert bob.ask("tools/call", name="s__plain", arguments={"text": "b"})["content"][0]["text"] == "did b"
    assert ada.heard("notifications/progress") + bob.heard("notifications/progress") == []
