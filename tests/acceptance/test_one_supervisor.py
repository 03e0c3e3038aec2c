"""One state directory, one ledger, one `serve` that writes it; everybody else is told whom to join, or looks on."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, use_places, write_config
from support.processes.commands import (
    DEADLINE_S,
    popen_forked,
    quarterdeck,
    quarterdeck_forked,
    quarterdeck_json_forked,
    serving,
)
from support.processes.kept import Reused
from support.processes.leftovers import no_leftovers
from support.waiting import eventually

from quarterdeck.ledger.store.lease import Holder, read_holder, take_lease

CHANGES: Final = {
    "its end is cut off": ("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)", "are gone"),
    "an event is rewritten": ("UPDATE events SET hash = zeroblob(32) WHERE seq = 2", "chain is broken at event 2"),
    "its head is gone": (None, "ledger verify --accept"),
}


@dataclass(frozen=True)
class Place:
    """A state directory, and a configuration file in a directory of its own."""

    state: Path
    config: str

    @property
    def ledger(self) -> Path:
        return self.state / "ledger"

    @contextmanager
    def used(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            use_places(patch, self.state.parent)
            yield


@contextmanager
def placed(**rows: object) -> Iterator[Place]:
    """A place that nothing has used; nothing that was started meanwhile runs at the end."""
    with short_folder() as folder, no_leftovers(DEADLINE_S):
        yield Place(folder / "state", str(write_config(folder / "mcp.json", **rows)))


@pytest.fixture
def place() -> Iterator[Place]:
    with placed(one=row("echo")) as made, made.used():
        yield made


@dataclass(frozen=True)
class Served:
    """A serve on stdio that several tests look at, and its place."""

    place: Place
    client: RawStdioClient


@contextmanager
def opened() -> Iterator[Served]:
    """`one` is for everybody, `two` for the test of decisions alone."""
    with placed(one=row("echo"), two=row("echo", trust="strict")) as place, place.used():
        assert quarterdeck_forked("trust", "approve", "two", "--all", "-c", place.config).returncode == 0
        with serving(Path(place.config), is_forked=True) as client:
            ready(client)
            eventually(lambda: held(place, "two") > 0, DEADLINE_S, "the tools of the other are held")
            yield Served(place, client)


@pytest.fixture(scope="module")
def kept() -> Iterator[Reused[Served]]:
    reused = Reused(opened, lambda served: "one__echo" in names(served.client))
    yield reused
    reused.close()


@pytest.fixture
def served(kept: Reused[Served]) -> Iterator[Served]:
    served = kept.get()
    with served.place.used():
        yield served


def ready(client: RawStdioClient, tool: str = "one__echo") -> None:
    """Greet it, and wait until it lists this."""
    client.initialize()
    eventually(lambda: tool in names(client), DEADLINE_S, f"{tool} is listed")


def names(client: RawStdioClient) -> set[str]:
    return {tool["name"] for tool in client.list_tools()}


def held(place: Place, server: str) -> int:
    """How many of a server's tools wait for a person."""
    shown = quarterdeck_json_forked("ps", "-c", place.config)["servers"]
    return sum(each["held"] for each in shown if each["id"] == server)


def events(ledger: Path) -> list[tuple[int, str]]:
    with sqlite3.connect(f"file:{ledger / 'ledger.db'}?mode=ro", uri=True) as database:
        rows: list[tuple[int, str]] = database.execute("SELECT seq, hash FROM events ORDER BY seq").fetchall()
    database.close()
    return rows


def test_a_second_serve_of_the_same_configuration_is_told_whom_to_join(served: Served) -> None:
    """Two would write one ledger; or a user would not know who has it."""
    second = quarterdeck_forked("serve", "-c", served.place.config)
    assert (second.returncode, second.stdout) == (2, "")
    said, remedy = second.stderr.splitlines()
    assert f"process {served.client.process.pid} (since " in said
    assert "serves this configuration already, to the client that started it" in said
    assert "quarterdeck serve --http" in remedy
    assert f"--state-dir {served.place.state}-" in remedy
    assert served.client.call("one__echo", text="still here")["content"][0]["text"] == "still here"


def test_commands_beside_a_serve_answer_and_leave_no_more_than_their_own_starts(served: Served) -> None:
    """Looking would change the record, or be impossible while a client works."""
    named = ("-c", served.place.config)
    before = events(served.place.ledger)
    assert [tool["name"] for tool in quarterdeck_json_forked("tools", *named)["tools"]]
    assert quarterdeck_forked("call", "one__echo", '{"text": "hi"}', *named).stdout == "hi\n"
    assert events(served.place.ledger) == before
    own = quarterdeck_json_forked("ps", "--own", *named)["servers"][0]
    its = quarterdeck_json_forked("ps", *named)["servers"][0]
    assert (own["id"], own["phase"], its["id"], its["phase"]) == ("one", "ready", "one", "ready")
    assert own["pid"] != its["pid"]
    assert quarterdeck_forked("tools", "--own", *named).returncode == 0
    log = map(json.loads, quarterdeck_forked("ledger", "log", "--json").stdout.splitlines())
    assert {each["event"]["kind"] for each in log if each["seq"] > before[-1][0]} <= {"began", "ended"}
    before = events(served.place.ledger)
    for looking in (["log"], ["show"], ["verify"]):
        assert quarterdeck_forked("ledger", *looking).returncode == 0
    assert quarterdeck_forked("trust", "list", *named).returncode == 0
    assert events(served.place.ledger) == before
    redacted = quarterdeck_forked("ledger", "redact")
    assert redacted.returncode == 2
    assert f"process {served.client.process.pid}" in redacted.stderr
    assert events(served.place.ledger) == before


def test_a_decision_goes_through_the_serve_that_writes(served: Served) -> None:
    """A user would have to stop their client to approve a tool."""
    client, named = served.client, ("-c", served.place.config)
    assert [name for name in names(client) if name.startswith("two__")] == []
    refused = client.call("two__echo", text="hi")
    assert refused["isError"] is True
    assert "quarterdeck trust approve two echo" in refused["content"][0]["text"]
    one = quarterdeck_forked("trust", "approve", "two", "echo", *named)
    assert "its instructions are held, and all that it lists with them" in one.stderr
    assert [name for name in names(client) if name.startswith("two__")] == []
    client.notifications.clear()  # those of the start
    assert quarterdeck("trust", "approve", "two", "--all", *named).returncode == 0
    client.notification("notifications/tools/list_changed")
    assert "two__add" in names(client)
    assert client.call("two__echo", text="hi")["content"][0]["text"] == "hi"
    assert quarterdeck_forked("trust", "block", "two", "--all", *named).returncode == 0
    eventually(lambda: "two__add" not in names(client), DEADLINE_S, "the blocked server is gone")
    assert [name for name in names(client) if name.startswith("two__")] == []
    [stopped] = [each for each in quarterdeck_json_forked("ps", *named)["servers"] if each["id"] == "two"]
    assert (stopped["phase"], stopped["pid"]) == ("faulted", None)


def test_a_killed_serve_lets_go_of_the_ledger_at_once_and_the_next_waits_for_a_command_that_writes(
    place: Place,
) -> None:
    """After a crash a user would have to delete a lock file; a client that starts during `approve` would be refused."""
    with serving(Path(place.config), is_forked=True) as client:
        ready(client)
        client.process.send_signal(signal.SIGKILL)
        client.process.wait(DEADLINE_S)
        assert read_holder(place.ledger) is None
        lease = take_lease(place.ledger, Holder(pid=os.getpid(), digest="", command="trust"))
    words = ("serve", "-c", place.config)
    with lease, RawStdioClient(words, deadline_s=DEADLINE_S, popen=popen_forked) as client:
        eventually(lambda: has_open(client.process.pid, place.ledger / "lock"), DEADLINE_S, "it wants the lease")
        lease.release()
        ready(client)
        holder = read_holder(place.ledger)
        assert holder is not None
        assert (holder.pid, holder.command) == (client.process.pid, "serve")
    assert quarterdeck_json_forked("ledger", "verify")["intact"] is True


def has_open(pid: int, path: Path) -> bool:
    """Whether this process has the file open."""
    try:
        return any(os.path.samefile(f"/proc/{pid}/fd/{fd}", path) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def test_a_serve_refuses_a_ledger_that_somebody_changed(place: Place) -> None:
    """What a person approved could be rewritten behind their back."""
    assert quarterdeck_forked("tools", "-c", place.config).returncode == 0
    wrong = {}
    for case, (statement, said) in CHANGES.items():
        state = Path(shutil.copytree(place.state, place.state.with_name(case)))
        if statement is not None:
            change(state / "ledger", statement)
        else:
            (state / "ledger" / "head").unlink()
        before = events(state / "ledger")
        wrong |= not_refused(case, place, state, 8, said)
        if events(state / "ledger") != before:
            wrong[case, "the events"] = "they have changed"
        verified = quarterdeck_forked("ledger", "verify", "--state-dir", str(state))
        if verified.returncode != 8:
            wrong[case, "verify"] = str(verified)
    assert wrong == {}


def not_refused(case: str, place: Place, state: Path, code: int, said: str) -> dict[tuple[str, str], str]:
    """What `serve`, and a command that would start servers, do but refuse with this exit code and these words."""
    wrong = {}
    for name in ("serve", "tools"):
        ended = quarterdeck_forked(name, "-c", place.config, "--state-dir", str(state))
        is_said = said in ended.stderr and "Traceback" not in ended.stderr
        if (ended.returncode, ended.stdout, is_said) != (code, "", True):
            wrong[case, name] = str(ended)
    return wrong


def change(directory: Path, statement: str) -> None:
    """Write to the database as nobody should."""
    database = sqlite3.connect(directory / "ledger.db")
    try:
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        assert database.execute(statement).rowcount == 1
        database.commit()
    finally:
        database.close()
