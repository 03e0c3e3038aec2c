"""A server that may write a repository plants what the user's next `git status`, shell or editor would run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked, serving
from support.processes.leftovers import no_leftovers
from support.processes.running import output

PLANTED = (".git/commondir", ".envrc", ".cursor/mcp.json")


@pytest.fixture
def repository(own_directories: Path) -> Iterator[Path]:
    with short_folder(0o755) as base, no_leftovers(DEADLINE_S):
        folder = base / "repository"
        folder.mkdir()
        output("git", "init", "-q", folder)
        yield folder


@pytest.fixture
def config(repository: Path) -> Path:
    sandbox = {"write": [str(repository)], "network": "none"}
    planter = row("hostile", "plants_hooks", cwd=str(repository))
    planter["sandbox"] = {**planter["sandbox"], **sandbox}  # type: ignore[dict-item]
    return write_config(repository.parent / "mcp.json", planter=planter)


def call(client: RawStdioClient) -> str:
    result = client.request("tools/call", {"name": "planter__echo", "arguments": {"text": "hi"}})
    return "\n".join(block["text"] for block in result["content"])


def test_what_a_call_planted_is_gone_when_it_is_answered_and_can_be_restored(repository: Path, config: Path) -> None:
    """The client that reads the answer runs `git status` next, and with it what the server wrote."""
    with serving(config, is_forked=True) as client:
        client.initialize()
        for _ in range(2):  # it may try again
            told = call(client)
            assert not [name for name in PLANTED if (repository / name).exists()]
            assert told.endswith("hi")
            for name in PLANTED:
                assert f"{repository}/{name} was created, which other programs run or obey" in told
        output("git", "-C", repository, "status")
        [server] = quarterdeck_json_forked("ps", "-c", str(config))["servers"]
        assert len(server["sandbox"]["caught"]) == 2 * len(PLANTED)
        assert [gap for gap in server["sandbox"]["gaps"] if f"in {repository} it could create .git/" in gap]
        assert "warning: planter: " in quarterdeck_forked("ps", "-c", str(config)).stdout
        restored_stays(repository, client)


def restored_stays(repository: Path, client: RawStdioClient) -> None:
    listed = quarterdeck_json_forked("quarantine", "list")
    kept = [each for each in listed if each["path"].startswith(f"{repository}/")]
    assert {each["owner"] for each in kept} == {"planter"}
    assert sorted(each["path"] for each in kept) == sorted(2 * [f"{repository}/{name}" for name in PLANTED])
    envrc = next(each for each in kept if each["path"].endswith(".envrc"))
    assert Path(envrc["kept"]).read_text() == "evil"
    assert quarterdeck_forked("quarantine", "restore", envrc["id"]).returncode == 0
    assert (repository / ".envrc").read_text() == "evil"
    told = call(client)
    assert (repository / ".envrc").exists()
    assert ".envrc" not in told
    gone = next(each for each in kept if each["path"].endswith("commondir"))
    assert quarterdeck_forked("quarantine", "remove", gone["id"]).returncode == 0
    assert gone["id"] not in json.dumps(quarterdeck_json_forked("quarantine", "list"))


def test_a_command_tried_by_hand_is_held_to_the_same(repository: Path, config: Path) -> None:
    """`sandbox run` would say that it is quarantined, and leave it there."""
    words: list[Any] = ["sandbox", "run", "--network", "none", "--write", str(repository), "--", "/bin/sh", "-c"]
    ended = quarterdeck_forked(*words, f"echo evil > {repository}/.envrc")
    assert ended.returncode == 0, ended.stderr
    assert not (repository / ".envrc").exists()
    assert f"{repository}/.envrc was created" in ended.stderr.replace("\n", " ")
