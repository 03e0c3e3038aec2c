"""The relay alone before the pretend servers: raw JSON through it is the raw JSON of a direct connection."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.direct_client import without_envelope
from support.clients.raw_client import JsonObject, RawStdioClient
from support.clients.relayed_client import RelayedClient
from support.processes.leftovers import no_leftovers
from support.processes.programs import server_argv

from quarterdeck_protocol.mcp.client import FIRST_ID, events

SERVERS = {
    "echo": ["echo", "--page-size", "4"],
    "named": ["named", "a", "b"],
    "one_hand": ["one_hand"],
    "modern": ["modern"],
}

CALLS: list[tuple[str, JsonObject]] = [
    ("echo", {"text": 'ä \u2028 \x00 \\ " \U0001f600'}),
    ("add", {"a": 1, "b": 2.5}),
    ("progress", {"n": 3}),
    ("log", {"text": "x", "level": "error"}),
    ("big", {"bytes": 3_000_000}),
    ("fail", {"code": -7, "message": "no", "data": {"a": [None, 1.0]}}),
    ("fail", {"code": 1, "message": ""}),
    ("iserror", {"text": "x"}),
    ("blocks", {}),
    ("flood", {"n": 50}),
    ("nonsense", {}),
    ("add", {"a": "x"}),
    ("input_required", {}),
]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    with no_leftovers():
        yield


def said(end: events.Event) -> tuple[object, ...]:
    """What came of a call, the era's envelope apart."""
    match end:
        case events.Answered(result=result):
            return result.result_type, json.loads(result.body)
        case events.Refused(code=code, message=message, data=data):
            return code, message, json.loads(data) if data else None
        case _:
            raise AssertionError(end)


def direct(client: RawStdioClient, tool: str, arguments: JsonObject) -> tuple[object, ...]:
    """The same through a client that hides nothing."""
    reply = client.reply(client.send("tools/call", {"name": tool, "arguments": arguments}))
    if error := reply.get("error"):
        return error["code"], error["message"], error.get("data")
    return reply["result"].get("resultType", "complete"), without_envelope(reply["result"])


@pytest.mark.parametrize("server", SERVERS)
def test_lists_and_results_are_those_of_a_direct_connection(server: str) -> None:
    """A tool that works directly, but not through us, or that looks different, is a tool that we broke."""
    argv = server_argv(*SERVERS[server])
    with RawStdioClient(argv) as raw, RelayedClient(argv) as relayed:
        raw.discover() if server == "modern" else raw.initialize()
        listed = relayed.list_all("tools/list")
        assert isinstance(listed, events.Listed)
        assert json.loads(listed.items) == raw.list_tools()
        for tool, arguments in CALLS:
            end = relayed.call(tool, json.dumps(arguments).encode(), progress=tool == "progress")
            assert said(end) == direct(raw, tool, arguments), tool
        steps = [event.progress for event in relayed.told if isinstance(event, events.Progressed)]
        assert steps == [1.0, 2.0, 3.0]
        lines = [event for event in relayed.told if isinstance(event, events.Logged)]
        assert [(line.level, json.loads(line.data)) for line in lines] == [("error", "x")]
        assert sum(isinstance(event, events.Junk) for event in relayed.told) == 50


@pytest.mark.parametrize("options", [(), ("--modern",)], ids=["older", "modern"])
def test_a_change_is_told_and_the_next_list_is_the_new_one(options: tuple[str, ...], tmp_path: Path) -> None:
    """What a server offers today would be what it offered when it was started."""

    def offer(*names: str) -> list[JsonObject]:
        tools = [{"name": name, "inputSchema": {"type": "object", "n": None}} for name in names]
        (tmp_path / "new.json").write_text(json.dumps({"tools": tools, "instructions": "i"}))
        (tmp_path / "new.json").rename(tmp_path / "mind.json")
        return tools

    offer("a")
    with RelayedClient(server_argv("turncoat", str(tmp_path / "mind.json"), *options)) as relayed:
        if options:
            relayed.relay.listen(("tools",))
            relayed.until(lambda event: isinstance(event, events.Listening))
        tools = offer("b", "c")
        assert relayed.until(lambda event: isinstance(event, events.Changed)) == events.Changed(("tools",))
        listed = relayed.list_all("tools/list")
        assert isinstance(listed, events.Listed)
        assert json.loads(listed.items) == tools


def test_a_server_that_is_told_to_stop_is_told_which_of_its_calls() -> None:
    """It would work on for nobody, or stop another's call."""
    with RelayedClient(server_argv("echo")) as relayed:
        relayed.relay.call(77, "hang")
        relayed.relay.cancel(77)
        relayed.call("echo", b'{"text":"after"}')
        assert relayed.stderr_text() == f"cancelled {FIRST_ID + 77}\n"


HOSTILE: dict[str, type[events.Event]] = {
    "notification_flood": events.Answered,
    "ping_flood": events.Answered,
    "forged_ids": events.Answered,
    "answers_twice": events.Answered,
    "sampling_request": events.Answered,
    "deep_json": events.Spoiled,
    "invalid_utf8": events.Spoiled,
    "smuggle": events.Spoiled,
    "smuggle_whitespace": events.Spoiled,
    "smuggle_behind": events.Spoiled,
    "pages_forever": events.ListingFailed,
    "same_cursor": events.ListingFailed,
    "huge_tools": events.ListingFailed,
    "bad_tools": events.Listed,
    "wrong_version": events.GreetingFailed,
}
"""A mode of `hostile.py`, and how what it spoils ends."""


@pytest.mark.parametrize("mode", HOSTILE)
def test_what_a_hostile_server_spoils_ends_at_once_and_nothing_else_does(mode: str) -> None:
    """Whoever asked would wait for a deadline; a neighbour's call would end with it."""
    with RelayedClient(
        server_argv("hostile", mode, *(["--at", "tools/call"] if mode == "garbage_first" else []))
    ) as peer:
        if HOSTILE[mode] is events.GreetingFailed:
            assert peer.relay.server is None
            return
        is_list = HOSTILE[mode] in (events.Listed, events.ListingFailed)
        end = peer.list_all("tools/list") if is_list else peer.call("echo", b'{"text":"hi"}')
        assert isinstance(end, HOSTILE[mode])
        after = peer.call("add", b'{"a":1,"b":2}')
        assert isinstance(after, events.Answered)
        assert json.loads(after.result.body)["structuredContent"] == {"sum": 3}
        assert peer.relay.in_flight() == []
