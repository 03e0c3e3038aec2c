"""One state directory, one ledger, one `serve` that writes it; everybody else is told whom to join, or looks on."""

import json
import os
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.commands import DEADLINE_S, command, quarterdeck, quarterdeck_json, row, serving, write_config
from support.leftovers import eventually, no_leftovers
from support.line_child import LineChild
from support.raw_client import RawStdioClient

from quarterdeck.ledger.lease import Holder, read_holder, take_lease

pytestmark = pytest.mark.usefixtures("state")

EMPTY: Final = b""
ANOTHERS: Final = b"%PDF-1.7 of somebody else"
TORN: Final = b"SQLite format 3\x00" + b"\xff" * 8192


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory that no other test has used; nothing runs at the end."""
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as name, no_leftovers(DEADLINE_S):
        root = Path(name)
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(root / "state"))
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root / "run"))
        yield root / "state"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "mcp.json", one=row("echo"))


def ready(client: RawStdioClient, *tools: str) -> None:
    """Greet it, and wait until it lists these."""
    client.initialize()
    wanted = set(tools or ("one__echo",))
    eventually(lambda: wanted <= {tool["name"] for tool in client.list_tools()}, DEADLINE_S, f"{wanted} are listed")


def events(state: Path) -> list[tuple[int, str]]:
    """What the ledger holds, read past everything of ours."""
    with sqlite3.connect(f"file:{state / 'ledger' / 'ledger.db'}?mode=ro", uri=True) as database:
        rows: list[tuple[int, str]] = database.execute("SELECT seq, hash FROM events ORDER BY seq").fetchall()
    database.close()
    return rows


def test_a_second_serve_of_the_same_configuration_is_told_whom_to_join(config: Path, state: Path) -> None:
    """Two would write one ledger; or a user would not know who has it."""
    with serving(config) as client:
        ready(client)
        second = quarterdeck("serve", "-c", str(config))
        assert (second.returncode, second.stdout) == (2, "")
        said, remedy = second.stderr.splitlines()
        assert f"process {client.process.pid} (since " in said
        assert "serves this configuration already, to the client that started it" in said
        assert "quarterdeck serve --http" in remedy
        assert f"--state-dir {state}-" in remedy
        assert client.call("one__echo", text="still here")["content"][0]["text"] == "still here"


def test_a_second_serve_is_told_the_url_of_one_that_many_can_join(config: Path) -> None:
    """A user would start a third instead of pointing the client there."""
    with LineChild(command("serve", "-c", str(config), "--http", "127.0.0.1:0", "--json"), deadline_s=DEADLINE_S) as it:
        url = json.loads(it.read_line())["url"]
        second = quarterdeck("serve", "-c", str(config))
        assert second.returncode == 2
        assert f"process {it.process.pid}" in second.stderr
        assert f"join it: point your client at {url}" in second.stderr


def test_another_configuration_is_told_which_state_directory_to_use_and_runs_there(
    config: Path, state: Path, tmp_path: Path
) -> None:
    """Two configurations would share homes and history, or the second could not run at all."""
    other = write_config(tmp_path / "other.json", two=row("echo"))
    with serving(config) as client:
        ready(client)
        before = events(state)
        refused = quarterdeck("serve", "-c", str(other))
        assert refused.returncode == 2
        assert f"process {client.process.pid}" in refused.stderr
        assert str(config) in refused.stderr
        [advised] = [word for word in refused.stderr.split() if word.startswith(f"{state}-")]
        with serving(other, "--state-dir", advised) as beside:
            ready(beside, "two__echo")
            assert read_holder(Path(advised) / "ledger") is not None
            logged = quarterdeck_json("ledger", "show", "--state-dir", advised)
            assert [server["server"] for server in logged["servers"]] == ["two"]
        assert events(state) == before
        assert {server["server"] for server in quarterdeck_json("ledger", "show")["servers"]} == {"one"}


def test_a_serve_waits_for_a_command_that_writes_the_ledger(config: Path, state: Path) -> None:
    """A client that starts while a user approves something would be refused."""
    directory = state / "ledger"
    argv = command("serve", "--config", str(config))
    lease = take_lease(directory, Holder(pid=os.getpid(), digest="", command="trust"))
    with lease, RawStdioClient(argv, deadline_s=DEADLINE_S) as client:
        eventually(lambda: has_open(client.process.pid, directory / "lock"), DEADLINE_S, "it wants the lease")
        lease.release()
        ready(client)
        holder = read_holder(directory)
        assert holder is not None
        assert (holder.pid, holder.command) == (client.process.pid, "serve")


def has_open(pid: int, path: Path) -> bool:
    """Whether this process has the file open."""
    try:
        return any(os.path.samefile(f"/proc/{pid}/fd/{fd}", path) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def test_commands_beside_a_serve_answer_and_write_nothing(config: Path, state: Path) -> None:
    """Looking would change the record, or be impossible while a client works."""
    with serving(config) as client:
        ready(client)
        before = events(state)
        assert [tool["name"] for tool in quarterdeck_json("tools", "-c", str(config))["tools"]]
        assert quarterdeck("call", "one__echo", '{"text": "hi"}', "-c", str(config)).stdout == "hi\n"
        [own] = quarterdeck_json("ps", "--own", "-c", str(config))["servers"]
        [its] = quarterdeck_json("ps", "-c", str(config))["servers"]
        assert (own["phase"], its["phase"]) == ("ready", "ready")
        assert own["pid"] != its["pid"]
        assert quarterdeck("tools", "--own", "-c", str(config)).returncode == 0
        for looking in (["log"], ["show"], ["verify"]):
            assert quarterdeck("ledger", *looking).returncode == 0
        assert quarterdeck("trust", "list", "-c", str(config)).returncode == 0
        assert events(state) == before
        compacted = quarterdeck("ledger", "compact")
        assert compacted.returncode == 2
        assert f"process {client.process.pid}" in compacted.stderr


def test_a_killed_serve_lets_go_of_the_ledger_at_once(config: Path, state: Path) -> None:
    """After a crash a user would have to find and delete a lock file."""
    with serving(config) as client:
        ready(client)
        client.process.send_signal(signal.SIGKILL)
        client.process.wait(DEADLINE_S)
        assert read_holder(state / "ledger") is None
        with take_lease(state / "ledger", Holder(pid=os.getpid(), digest="")):
            pass
    with serving(config) as client:
        ready(client)
    assert quarterdeck_json("ledger", "verify")["intact"] is True


def test_a_decision_goes_through_the_serve_that_writes(tmp_path: Path) -> None:
    """A user would have to stop their client to approve a tool."""
    config = write_config(tmp_path / "mcp.json", one=row("echo", trust="strict"))
    assert quarterdeck("trust", "approve", "one", "--all", "-c", str(config)).returncode == 0
    with serving(config) as client:
        client.initialize()
        eventually(lambda: held(config) > 0, DEADLINE_S, "its tools are held")
        assert client.list_tools() == []
        refused = client.call("one__echo", text="hi")
        assert refused["isError"] is True
        assert "quarterdeck trust approve one echo" in refused["content"][0]["text"]
        one = quarterdeck("trust", "approve", "one", "echo", "-c", str(config))
        assert "its instructions are held, and all its tools with them" in one.stderr
        assert client.list_tools() == []
        assert quarterdeck("trust", "approve", "one", "--all", "-c", str(config)).returncode == 0
        client.notification("notifications/tools/list_changed")
        assert "one__add" in {tool["name"] for tool in client.list_tools()}
        assert client.call("one__echo", text="hi")["content"][0]["text"] == "hi"
        assert quarterdeck("trust", "block", "one", "--all", "-c", str(config)).returncode == 0
        eventually(lambda: not client.list_tools(), DEADLINE_S, "the blocked server is gone")
        [stopped] = quarterdeck_json("ps", "-c", str(config))["servers"]
        assert (stopped["phase"], stopped["pid"]) == ("faulted", None)


def held(config: Path) -> int:
    """How many of the first server's tools wait for a person."""
    return int(quarterdeck_json("ps", "-c", str(config))["servers"][0]["held"])


def test_a_serve_over_http_takes_decisions_too(tmp_path: Path) -> None:
    """A server that many clients share would have to be ended to approve a tool."""
    config = write_config(tmp_path / "mcp.json", one=row("echo", trust="strict"))
    assert quarterdeck("trust", "approve", "one", "--all", "-c", str(config)).returncode == 0
    argv = command("serve", "-c", str(config), "--http", "127.0.0.1:0", "--no-token", "--json")
    with LineChild(argv, deadline_s=DEADLINE_S) as child:
        child.read_line()
        eventually(lambda: held(config) > 0, DEADLINE_S, "its tools are held")
        assert quarterdeck("trust", "approve", "one", "--all", "-c", str(config)).returncode == 0
        assert "one__echo" in {tool["name"] for tool in quarterdeck_json("tools", "-c", str(config))["tools"]}
        child.process.terminate()
        assert child.process.wait(DEADLINE_S) == 0
    assert [event["event"]["by"] for event in log_of("approve", "echo")] == ["person"]


def log_of(kind: str, tool: str) -> list[dict[str, dict[str, str]]]:
    """The ledger's events of one kind about one tool."""
    ended = quarterdeck("ledger", "log", "--kind", kind, "--tool", tool, "--json")
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (EMPTY, 2, "no ledger: move it away"),
        (ANOTHERS, 2, "no ledger: move it away"),
        (TORN, 8, "is damaged"),
    ],
    ids=["an empty file", "another program's file", "a damaged database"],
)
def test_a_serve_refuses_a_file_that_is_no_ledger_and_leaves_it(
    config: Path, state: Path, content: bytes, code: int, said: str
) -> None:
    """A history would be thrown away, or servers run without one."""
    (state / "ledger").mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    database = state / "ledger" / "ledger.db"
    database.write_bytes(content)
    refused(config, code, said)
    assert database.read_bytes() == content


def refused(config: Path, code: int, said: str) -> None:
    """See that nothing is served, by `serve` and by a command that would start servers, and why."""
    for arguments in (["serve"], ["tools"]):
        ended = quarterdeck(*arguments, "-c", str(config))
        assert ended.returncode == code, ended.stderr
        assert ended.stdout == ""
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("damage", ["its end is cut off", "an event is rewritten", "its head is gone"])
def test_a_serve_refuses_a_ledger_that_somebody_changed(config: Path, state: Path, damage: str) -> None:
    """What a person approved could be rewritten behind their back."""
    assert quarterdeck("tools", "-c", str(config)).returncode == 0
    directory = state / "ledger"
    match damage:
        case "its end is cut off":
            said = "are gone"
            change(directory, "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
        case "an event is rewritten":
            said = "chain is broken at event 2"
            change(directory, "UPDATE events SET hash = zeroblob(32) WHERE seq = 2")
        case _:
            said = "ledger verify --accept"
            (directory / "head").unlink()
    before = events(state)
    refused(config, 8, said)
    assert events(state) == before
    assert quarterdeck("ledger", "verify").returncode == 8


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
