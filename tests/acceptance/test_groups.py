"""Groups: doors that see one group of it, and tools as the user has clients see them, by real processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from support.clients.http_clients import connected
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_document
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked
from support.serves.daemons import door, doors_at_home, own_file
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path

SECRET: Final = "hunter2-forty-two"

GROUPS: Final = {"talk": {"tools": ["a__say", "a__sum"]}, "sums": {"servers": ["b"], "hide": ["b__hang"]}}

OVERRIDES: Final = {
    "rename": {"echo": "say", "add": "sum"},
    "describe": {"echo": {"title": "Say", "description": "Says our word."}},
    "hide": ["die", "env*"],
    "arguments": {"echo": {"text": "${OUR_WORD}"}, "add": {"b": {"default": 40}}},
}


@pytest.fixture
def config(own_directories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's own file, with two servers alike; no daemon is left at the end."""
    monkeypatch.setenv("OUR_WORD", SECRET)
    with doors_at_home(tmp_path):
        yield write(own_file(tmp_path), GROUPS)


def write(config: Path, groups: object, **overrides: object) -> Path:
    servers = {"a": row("echo", **(overrides or OVERRIDES)), "b": row("echo")}
    return write_document(config, mcpServers=servers, groups=groups)


def names(client: RawStdioClient) -> set[str]:
    return {tool["name"] for tool in client.list_tools()}


def fault_of(result: dict[str, Any]) -> str:
    code = result["_meta"]["quarterdeck/fault"]["code"]
    assert isinstance(code, str)
    return code


def test_a_door_of_a_group_sees_and_calls_what_is_in_it_alone_while_it_changes(config: Path) -> None:
    """A model would be shown everything all the same, or call what it was not shown; or not hear of a change."""
    with door(config, "--group", "talk") as client:
        greeted = client.initialize()
        assert "[b]" not in greeted.get("instructions", "")
        eventually(lambda: names(client) == {"a__say", "a__sum"}, DEADLINE_S, "the tools of the group")
        assert client.call("a__say")["content"][0]["text"] == SECRET
        assert fault_of(client.call("b__echo", text="x")) == "not_granted"
        client.notifications.clear()
        write(config, {"talk": GROUPS["sums"]})
        client.notification("notifications/tools/list_changed")
        assert "b__hang" not in (found := names(client))
        assert {name.partition("__")[0] for name in found} == {"b"}
        assert fault_of(client.call("a__say")) == "not_granted"
    with door(config, "--group", "tlak") as client, pytest.raises(Exception, match="there is no group 'tlak'"):
        client.initialize()


def test_clients_see_the_users_words_and_servers_get_the_users_arguments(config: Path) -> None:
    """A model could choose what the user fixed, or read what the user replaced; or a secret be shown to it."""
    with door(config) as client:
        client.initialize()
        eventually(lambda: {"a__say", "b__echo"} <= names(client), DEADLINE_S, "both servers")
        tools = {tool["name"]: tool for tool in client.list_tools()}
        assert not {"a__echo", "a__add", "a__die", "a__env"} & tools.keys()
        said = tools["a__say"]
        assert (said["title"], said["description"], said["inputSchema"]["properties"]) == ("Say", "Says our word.", {})
        assert SECRET not in json.dumps(list(tools.values()))
        assert client.call("a__sum", a=2)["content"][0]["text"] == "42"
        assert client.call("a__sum", a=2, b=3)["content"][0]["text"] == "5"
        assert fault_of(client.call("a__say", text="mine")) == "bad_arguments"
        for gone in ("a__echo", "a__die"):
            assert fault_of(client.call(gone, text="x")) == "unknown_tool"

        shown = {tool["name"]: tool for tool in quarterdeck_json_forked("tools")["tools"]}
        assert (shown["a__say"]["own"], shown["b__echo"]["own"]) == ("echo", "")
        assert {tool["name"] for tool in quarterdeck_json_forked("tools", "--group", "talk")["tools"]} == {
            "a__say",
            "a__sum",
        }
        cost = quarterdeck_json_forked("tools", "--tokens")
        assert {each["name"]: each["tools"] for each in cost["groups"]}["talk"] == 2
        assert cost["total"]["tokens"] == sum(each["tokens"] for each in cost["servers"])
        approved = quarterdeck_forked("trust", "list", "--all").stdout
        assert ("echo" in approved, "say" in approved) == (True, False), approved
        for words in (("config", "show", "--all"), ("ledger", "calls"), ("ledger", "show")):
            assert SECRET not in quarterdeck_forked(*words).stdout

        slip = {"servers": ["aa"], "tools": ["a__sya"], "hide": ["a__big"]}
        write(config, GROUPS | {"slip": slip}, **OVERRIDES | {"hide": ["sloww", "big"]})
        slips = [
            "a: 'hide' has 'sloww', which fits nothing that it offers: did you mean 'slow'?",
            "the group 'slip' has 'aa' in its 'servers', which is no server: did you mean 'a'?",
            "the group 'slip' has 'a__sya' in its 'tools', which fits nothing that is offered: did you mean 'a__say'?",
        ]
        eventually(lambda: quarterdeck_json_forked("tools")["notes"] == slips, DEADLINE_S, "what fits nothing")
        for words in (("config", "check"), ("doctor",)):  # without asking any server
            assert json.loads(quarterdeck_forked(*words, "--json", "-c", str(config)).stdout)["unmet_names"] == slips
        unknown = write_document(config.with_name("other.json"), mcpServers={"x": row("echo", hide=["y"])})
        [said] = json.loads(quarterdeck_forked("config", "check", "--json", "-c", str(unknown)).stdout)["unmet_names"]
        assert said == "x has not listed anything yet: what is named of it is not compared"

        pid = {each["id"]: each["pid"] for each in quarterdeck_json_forked("ps")["servers"]}["a"]
        client.notifications.clear()
        write(config, GROUPS, **OVERRIDES | {"hide": ["say"], "rename": {"echo": "tell"}})
        client.notification("notifications/tools/list_changed")
        eventually(lambda: "a__tell" in names(client), DEADLINE_S, "the new name")
        found = {each["id"]: each for each in quarterdeck_json_forked("ps")["servers"]}["a"]
        assert found["pid"] == pid, found


@pytest.mark.nightly
async def test_a_group_is_reached_by_path_and_by_token_over_http(config: Path) -> None:
    """Every model on HTTP would see everything, or need a daemon of its own."""
    url = quarterdeck_json_forked("up", "--http", "127.0.0.1:0", "--json")["http"]["url"]
    owner, bound = (
        read_token(token_path()),
        quarterdeck_json_forked("token", "create", "ci", "--group", "talk")["token"],
    )
    talk = {"a__say", "a__sum"}
    eventually(lambda: talk <= {tool["name"] for tool in quarterdeck_json_forked("tools")["tools"]}, DEADLINE_S)
    for where, shown, wanted in (
        (f"{url}/talk", owner, talk),
        (url, bound, talk),
        (url.replace("/mcp", "/decks/user/mcp/talk"), owner, talk),
        (f"{url}/sums", bound, set[str]()),
    ):
        async with connected(where, "auto", shown) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == wanted
            assert bool((await client.call_tool("a__say", {})).is_error) is not bool(wanted)
            assert (await client.call_tool("b__echo", {"text": "x"})).is_error
    headers = {"Authorization": f"Bearer {owner}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http:
        missing = await http.post(f"{url}/nobody", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (missing.status_code, missing.json()["error"]) == (404, "there is no group 'nobody' here")
