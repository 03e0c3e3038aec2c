"""`quarterdeck demo` keeps every promise that it shows."""

import json
from pathlib import Path

import pytest
from support.processes import lacking
from support.processes.commands import DEADLINE_S, command, quarterdeck_forked
from support.processes.leftovers import no_leftovers
from support.processes.running import run
from support.sandbox.machine_facts import LINUX_ONLY
from support.waiting import eventually


def folders() -> set[Path]:
    return set(Path("/tmp").glob("quarterdeck-demo-*"))


@pytest.mark.parametrize(
    "lacks",
    [
        "nothing",
        pytest.param("landlock,seccomp", marks=[LINUX_ONLY, pytest.mark.nightly]),
    ],
)
def test_every_promise_is_kept_and_nothing_is_left(lacks: str, own_directories: Path) -> None:
    """The first thing that a new user sees would fail, on a kernel that confines nothing too."""
    before = folders()
    with no_leftovers(DEADLINE_S):
        if lacks == "nothing":  # as the README's first command has it, which `.ci/run` runs as it stands
            ended = quarterdeck_forked("demo", "--json")
        else:
            ended = run(*lacking.COMMAND, lacks, *command("demo", "--json"))
    assert ended.returncode == 0, ended.stderr
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    promises = [event for event in events if event["event"] == "promise"]
    assert len(promises) >= 10
    assert all(promise["is_kept"] for promise in promises)
    deaths = [event["dossier"] for event in events if event["event"] == "death"]
    assert [death.get("exit_status") for death in deaths] == [70, None]
    assert [death.get("signal") for death in deaths] == [None, 9]
    assert events[-1]["kept"] == len(promises)
    # Another test's may come and go meanwhile.
    eventually(lambda: folders() <= before, DEADLINE_S, "the end of the temporary folder")
    assert not (own_directories / "state").exists()
