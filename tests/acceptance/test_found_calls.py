"""Calls by `call_tool` are the calls of the tools that they name, in all that a call can be; by real processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.era_client import Era, EraClient
from support.clients.raw_client import JsonObject, RpcError
from support.config.places import row, write_document
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_forked
from support.serves.daemons import doors_at_home, own_file
from support.waiting import eventually

OVERRIDES: Final = {"rename": {"echo": "say"}, "arguments": {"add": {"a": 40, "b": {"default": 2}}}}


@pytest.fixture
def config(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """The user's own file, with servers of both eras and some whose calls can be tasks; no daemon is left."""
    with doors_at_home(tmp_path):
        yield write(own_file(tmp_path), **OVERRIDES)


def write(config: Path, **overrides: object) -> Path:
    servers = {
        "old": row("echo", **overrides),
        "new": row("modern", **overrides),
        "told": row("tasking", "--legacy"),
        "task": row("tasking", protocol="2026-07-28"),
    }
    return write_document(config, mcpServers=servers, max_result_tokens=1000)


class Searching:
    """A client that searches, and makes each call by the tool's own name and by `call_tool`."""

    def __init__(self, client: EraClient) -> None:
        self.client = client

    def direct(self, name: str, arguments: JsonObject, **params: Any) -> JsonObject:
        return self._ask(name=name, arguments=arguments, **params)

    def wrapped(self, name: str, arguments: JsonObject, **params: Any) -> JsonObject:
        return self._ask(name="call_tool", arguments={"name": name, "arguments": arguments}, **params)

    def _ask(self, **params: Any) -> JsonObject:
        try:
            return self.client.ask("tools/call", **params)
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    def same(self, name: str, **arguments: object) -> JsonObject:
        """What both ways answer; the first time the long way, then the short one."""
        expected = self.direct(name, arguments)
        for _ in range(2):
            assert self.wrapped(name, arguments) == expected
        return expected

    def progress(self, call: Any, name: str) -> list[JsonObject]:
        self.client.heard("notifications/progress")
        call(name, {"n": 3}, _meta={"progressToken": "p"})
        return self.client.heard("notifications/progress")


def fault_of(result: JsonObject) -> str:
    code = result["_meta"]["quarterdeck/fault"]["code"]
    assert isinstance(code, str)
    return code


def test_a_call_by_call_tool_is_the_call_itself(config: Path, tmp_path: Path) -> None:
    """A model that searches would get less than one that is shown everything: no question, no progress, no end."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "note.txt").write_text("noted")
    native = ("--profile", "read-only", "--workspace", str(tmp_path / "files"))
    words = ("serve", "--config", str(config), *PATIENT, "--search", *native)
    with EraClient(words, Era.NEW, deadline_s=DEADLINE_S, cwd=tmp_path, popen=popen_forked) as client:
        calls = Searching(client)
        for server in ("old", "new", "told", "task"):
            whose = f"{server}__{'plain' if server in ('told', 'task') else 'pid'}"
            eventually(lambda whose=whose: not calls.direct(whose, {}).get("isError"), DEADLINE_S, whose)
        for server in ("old", "new"):
            assert calls.same(f"{server}__say", text="x")["content"][0]["text"] == "x"
            assert calls.same(f"{server}__add")["structuredContent"] == {"sum": 42}
            assert calls.same(f"{server}__add", b=5)["structuredContent"] == {"sum": 45}
            assert fault_of(calls.same(f"{server}__add", a=1)) == "bad_arguments"
            assert fault_of(calls.same(f"{server}__echo", text="x")) == "unknown_tool"
            assert calls.same(f"{server}__iserror", text="no")["isError"]
            assert "-32050" in str(calls.same(f"{server}__fail", code=-32050, message="mine", data={"k": 1}))
            notes = calls.progress(calls.wrapped, f"{server}__progress")
            assert [note["progress"] for note in notes] == [1, 2, 3]
            assert calls.progress(calls.direct, f"{server}__progress") == notes
            long = calls.wrapped(f"{server}__big", {"bytes": 100_000})["content"][0]["text"]
            assert "the whole is the resource quarterdeck://results/" in long
            cancelled(client, server)
            assert fault_of(calls.wrapped(f"{server}__crash", {})) == fault_of(calls.direct(f"{server}__crash", {}))
            eventually(lambda s=server: not calls.direct(f"{s}__pid", {}).get("isError"), DEADLINE_S)
        assert "noted" in str(calls.same("read", path="note.txt"))
        asked(calls)
        tasks(calls)
        write(config, hide=["echo"])
        for name in ("old__echo", "old__say"):
            eventually(lambda name=name: "unknown_tool" in str(calls.wrapped(name, {"text": "x"})), DEADLINE_S, name)
        assert quarterdeck_forked("trust", "block", "--config", str(config), "old", "pid").returncode == 0
        eventually(lambda: "tool_blocked" in str(calls.wrapped("old__pid", {})), DEADLINE_S)
        assert fault_of(calls.same("old__pid")) == "tool_blocked"


def cancelled(client: EraClient, server: str) -> None:
    before = quarterdeck_forked("logs", server).stdout.count("cancelled")
    wrapped = {"name": "call_tool", "arguments": {"name": f"{server}__hang", "arguments": {}}}
    client.cancel(client.send("tools/call", wrapped))
    eventually(lambda: quarterdeck_forked("logs", server).stdout.count("cancelled") == before + 1, DEADLINE_S)


def asked(calls: Searching) -> None:
    """A server of either era asks this client in the middle of such a call."""
    for name, arguments in (("new__input_required", {}), ("told__plain", {"way": "ask"})):
        calls.client.questions.clear()
        said = calls.wrapped(name, arguments)
        assert not said.get("isError"), said
        assert [method for method, _ in calls.client.questions] == ["elicitation/create"], name


def tasks(calls: Searching) -> None:
    client = calls.client
    wish: JsonObject = {"task": {}} if client.era is Era.OLD else {}
    own_era, other_era = ("told", "task") if client.era is Era.OLD else ("task", "told")
    answered = calls.wrapped(f"{other_era}__work", {"text": "it"}, **wish)
    assert answered["content"][0]["text"] == "did it", "across eras there is no task"
    made = calls.wrapped(f"{own_era}__work", {"text": "it"}, **wish)
    task = made["task"]["taskId"] if client.era is Era.OLD else made["taskId"]
    own = task.rpartition(":")[2]
    assert client.ask("tasks/get", taskId=task)["status"] == "working"
    assert not calls.wrapped(f"{own_era}__finish", {"task": own}).get("isError")
    eventually(lambda: client.ask("tasks/get", taskId=task)["status"] == "completed", DEADLINE_S)
