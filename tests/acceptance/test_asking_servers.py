"""A legacy server that asks its clients: which process answers whom, and that nobody waits for another's call."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.era_client import Era, EraClient
from support.clients.raw_client import RawStdioClient
from support.config.places import row
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_json_forked
from support.serves.daemons import doors_at_home
from support.waiting import eventually


@pytest.fixture
def folder(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """A home whose one server speaks the legacy era and may ask; no daemon is left at the end."""
    with doors_at_home(tmp_path, s=row("tasking", "--legacy")):
        yield tmp_path


def window(folder: Path) -> EraClient:
    client = EraClient(("serve", *PATIENT), Era.OLD, deadline_s=DEADLINE_S, cwd=folder, popen=popen_forked)
    eventually(lambda: client.pages("tools/list", "tools"), DEADLINE_S)
    return client


def plain(client: RawStdioClient, **arguments: object) -> str:
    return str(client.call("s__plain", **arguments)["content"][0]["text"])


def own_servers(folder: Path) -> int:
    [server] = quarterdeck_json_forked("ps", cwd=folder)["servers"]
    return len(server["of_sessions"])


def test_a_call_beside_one_that_waits_for_its_person_is_answered(folder: Path) -> None:
    """One person who went to lunch would hold up every other window for fifteen minutes."""
    with window(folder) as one, window(folder) as two:
        assert plain(two, text="before") == "did before"
        asked = one.send("tools/call", {"name": "s__plain", "arguments": {"way": "ask"}})
        question = one.server_request("elicitation/create")
        assert own_servers(folder) == 0
        assert plain(two, text="meanwhile") == "did meanwhile"
        assert own_servers(folder) == 1
        one.answer(question, one.answer_to(question))
        assert one.reply(asked)["result"]["content"][0]["text"] == "did it for Ada"
        assert plain(one, text="after") == "did after"
        assert own_servers(folder) == 1, "who was asked keeps the process that it used"
