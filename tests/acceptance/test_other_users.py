"""Two users of one machine: neither is served by the other's daemon, whatever places they name."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.raw_client import CLIENT_INFO
from support.config.places import row, short_folder, write_config
from support.processes.commands import DEADLINE_S, forks
from support.processes.identities import USER_UID, Identity, quarterdeck_for_others

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or bool(Identity.USER.missing), reason="it takes root, and packages that users can read"
)

OTHER_UID: Final = USER_UID + 1

GREETING: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}

INITIALIZE: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING}) + "\n"


@pytest.fixture
def homes() -> Iterator[dict[int, Path]]:
    """A home of each user, which the other one can walk through."""
    with short_folder(mode=0o711) as folder:
        found = {}
        for uid in (USER_UID, OTHER_UID):
            home = found[uid] = folder / str(uid)
            home.mkdir(mode=0o711)
            write_config(home / "mcp.json", s=row("echo"))
            os.chown(home, uid, uid)
        yield found


def run(uid: int, home: Path, *words: str, given: str = "", **places: Path) -> "subprocess.CompletedProcess[str]":
    """A command of this user's, with these places in place of those in its home."""
    tool = quarterdeck_for_others()
    named = {"QUARTERDECK_STATE_DIR": home / "state", "QUARTERDECK_RUNTIME_DIR": home / "run", **places}
    environ = {**tool.env, "PATH": os.environ["PATH"], "HOME": str(home), **{k: str(v) for k, v in named.items()}}
    if uid == USER_UID:
        ended = forks().run(Identity.USER, words, environ, given=given.encode())
        return subprocess.CompletedProcess(words, ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    return subprocess.run(
        [*tool.argv, *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd="/",
        env=environ,
        user=uid,
        group=uid,
        extra_groups=[],
    )


def greet(uid: int, home: Path, **places: Path) -> "subprocess.CompletedProcess[str]":
    """What a client of this user's hears of its door, which it closes at once."""
    return run(uid, home, "serve", "-c", str(home / "mcp.json"), given=INITIALIZE, **places)


def answer_in(told: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The first line that a client heard."""
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[0])
    return found


@pytest.mark.nightly
def test_a_door_of_another_user_is_told_so_and_hands_over_nothing(homes: dict[int, Path]) -> None:
    """It would be served with the other's rights, and read the other's files; or give away its own environment."""
    mine, theirs = homes[USER_UID], homes[OTHER_UID]
    try:
        assert "result" in answer_in(greet(USER_UID, mine))
        places_of_mine = (mine / "run", *(mine / "run").glob("daemon-*"))
        run_of_mine = {"QUARTERDECK_RUNTIME_DIR": mine / "run"}
        state_of_mine = {"QUARTERDECK_STATE_DIR": mine / "state"}
        # However open the directories are; the last of them are as they have to be, for the commands that follow.
        for mode, all_places in (
            (0o777, (run_of_mine, run_of_mine | state_of_mine, state_of_mine)),
            (0o700, (run_of_mine,)),
        ):
            for folder in places_of_mine:
                folder.chmod(mode)
            for places in all_places:
                refused = greet(OTHER_UID, theirs, **places)
                assert refused.returncode in (2, 6), (oct(mode), places, refused.stderr)
                assert "error" in answer_in(refused), (oct(mode), places, refused)
                assert "Traceback" not in refused.stderr
        shown = json.loads(run(USER_UID, mine, "status", "--json").stdout)
        assert shown["daemon"]["refused_doors"] == 0
        assert "result" in answer_in(greet(OTHER_UID, theirs))
    finally:
        for uid, home in homes.items():
            assert run(uid, home, "down").returncode == 0
