"""Tools whose names clients would refuse, behind `quarterdeck serve`: all are shown, and all can be called."""

import json
import re
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp.client.client import Client
from support.clients.http_clients import connected
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.waiting import POLL_S

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


async def test_every_tool_has_a_legal_name_of_its_own_and_answers_to_it(config: Path) -> None:
    """One long name breaks the whole session of some clients; a wrong one would call another tool."""
    words = ("serve", "--config", str(config), *PATIENT, "--http", "127.0.0.1:0", "--json", "--profile", "authoring")
    with (
        no_leftovers(DEADLINE_S),
        LineChild(words, cwd=config.parent, deadline_s=DEADLINE_S, popen=popen_forked) as child,
    ):
        url = json.loads(child.read_line())["url"]
        wrong = {}
        for mode in ("legacy", "auto"):
            with anyio.fail_after(DEADLINE_S):
                async with connected(url, mode, read_token(token_path())) as client:
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
