"""Tools whose names clients would refuse, behind `quarterdeck serve`: all are shown, and all can be called."""

import json
import re
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_forked, serving
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.waiting import POLL_S, eventually

from quarterdeck.cli.configure.secret import read_token, token_path

PREFIX: Final = "mcp__quarterdeck__"
"""What Claude Code puts before our names."""

EVERYBODYS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

SHARED: Final = "the_first_sixty_characters_of_two_names_are_the_same_".ljust(60, "x")

OURS: Final = re.compile(r"__(nnn|a[._]d|the|sho)")
"""What is left of them behind the longest id."""

NAMES: Final = ("n" * 128, "a.dotted.name", "a_dotted_name", f"{SHARED}one", f"{SHARED}two", "short")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Two servers with the same names, and one whose own id is as long as can be and begins with a digit."""
    servers = ("left", "right", "7".ljust(32, "x"))
    return write_config(tmp_path / "mcp.json", **{server: row("named", *NAMES) for server in servers})


def has_all(shown: list[str]) -> bool:
    """Whether every server is ready: on a busy machine that takes longer than the first list waits."""
    return len(list(filter(OURS.search, shown))) == 3 * len(NAMES)


def listed(client: RawStdioClient) -> list[str]:
    """The names, once every server is ready."""

    def shown() -> list[str]:
        names = [tool["name"] for tool in client.list_tools()]
        return names if has_all(names) else []

    return eventually(shown, DEADLINE_S, "the tools of all three servers")


@pytest.mark.anyio
@pytest.mark.parametrize("native", [(), ("--profile", "authoring")], ids=["alone", "beside native tools"])
async def test_every_tool_has_a_legal_name_of_its_own_and_answers_to_it(config: Path, native: tuple[str, ...]) -> None:
    """One long name breaks the whole session of some clients; a wrong one would call another tool."""
    words = ("serve", "--config", str(config), *PATIENT, "--http", "127.0.0.1:0", "--json", *native)
    with (
        no_leftovers(DEADLINE_S),
        LineChild(words, cwd=config.parent, deadline_s=DEADLINE_S, popen=popen_forked) as child,
    ):
        url = json.loads(child.read_line())["url"]
        wrong = {}
        for mode in ("legacy", "auto"):
            with anyio.fail_after(DEADLINE_S):
                async with (
                    create_mcp_http_client(headers={"Authorization": f"Bearer {read_token(token_path())}"}) as http,
                    Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
                ):
                    wrong |= {(mode, what): how for what, how in (await wrong_names(client)).items() if how}
        child.process.terminate()
        assert wrong == {}


async def wrong_names(client: Client) -> dict[str, object]:
    """What is wrong with the names that a client is shown, and with what answers to them."""
    shown: list[str] = []
    while not has_all(shown):
        shown = [tool.name for tool in (await client.list_tools()).tools]
        await anyio.sleep(POLL_S)
    answers, strange = [], []
    for name in filter(OURS.search, shown):
        result = await client.call_tool(name, {"n": len(answers)})
        if result.structured_content["arguments"] != {"n": len(answers)}:
            strange.append(result)
        answers.append((name.partition("__")[0], result.structured_content["name"]))
    for name in NAMES:
        result = await client.call_tool(f"left__{name}", {})
        if result.structured_content["name"] != name:
            strange.append(result)
    ids = ("left", "right", "_7".ljust(32, "x"))
    expected = sorted((server, name) for server in ids for name in NAMES)
    return {
        "shown twice": sorted(name for name in set(shown) if shown.count(name) > 1),
        "illegal": [name for name in shown if not EVERYBODYS.fullmatch(PREFIX + name)],
        "another tool's answer": [] if sorted(answers) == expected else answers,
        "strange": strange,
    }


def test_names_stay_as_they_are_where_the_client_takes_them(config: Path) -> None:
    """A program of one's own, which takes any name, would have to look them up."""
    with no_leftovers(DEADLINE_S), serving(config, "--name-budget", "0", is_forked=True) as client:
        client.initialize()
        assert {f"{server}__{name}" for server in ("left", "right") for name in NAMES} <= set(listed(client))
        assert client.call("left__a.dotted.name")["structuredContent"]["name"] == "a.dotted.name"


def test_a_prefix_of_the_clients_leaves_the_rest_of_64(config: Path) -> None:
    """A client with a short entry would see names cut that it could take."""
    with no_leftovers(DEADLINE_S), serving(config, "--client-prefix", "d-", is_forked=True) as client:
        client.discover()
        names = listed(client)
        assert max(map(len, names)) == 62
        assert "left__a_dotted_name" in names
        told = [json.loads(line)["event"] for line in client.stderr_text().splitlines()]
        (line,) = [event for event in told if "left__a.dotted.name" in event]
        renamed = line.rpartition(" ")[2]
        assert renamed in names
        assert client.call(renamed)["structuredContent"]["name"] == "a.dotted.name"


def test_a_budget_that_nothing_fits_is_refused_before_anything_starts(config: Path) -> None:
    """A client would show tools that are all digests."""
    ended = quarterdeck_forked("serve", "--config", str(config), "--client-prefix", "p" * 50)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--client-prefix: of 64 characters 50 are its own" in ended.stderr
    assert "shorter name" in ended.stderr
