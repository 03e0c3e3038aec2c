"""`quarterdeck demo` keeps every promise that it shows."""

import json
from pathlib import Path

from support.commands import DEADLINE_S, quarterdeck
from support.leftovers import eventually, no_leftovers


def folders() -> set[Path]:
    return set(Path("/tmp").glob("quarterdeck-demo-*"))


def test_every_promise_is_kept_and_nothing_is_left(own_directories: Path) -> None:
    """The first thing that a new user sees would fail."""
    before = folders()
    with no_leftovers(DEADLINE_S):
        ended = quarterdeck("demo", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
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
