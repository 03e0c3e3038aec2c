"""`ps` and `restart`: the table of servers, faults and deaths."""

import json

import msgspec
import pytest

from quarterdeck.cli import servers
from quarterdeck.cli.program import run
from quarterdeck.cli.servers import describe_dossier, print_fault, signal_name
from quarterdeck.control.protocol import Answer, DossierView, FaultView, Restarted, SandboxView, ServerList, ServerView

READY = ServerView(
    "fs", "ready", "stdio", 12, 4711, 4710, 13_000_000, 192.0, 1, "2025-11-25", None, SandboxView("bubblewrap", "none")
)
DEATH = DossierView(exit_status=3, uptime_s=42, peak_rss_bytes=13_000_000, cpu_s=0.5, stderr_tail="\n".join("abcdefg"))
FAULT = FaultView("transport", "exited", "it exited\x07", "see its logs", "unknown", DEATH)
DEAD = ServerView("git", "faulted", "stdio", 0, None, None, None, None, 5, None, FAULT)


def answering(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr(servers, "ask", lambda *args, **kwargs: answer)
    monkeypatch.setenv("QUARTERDECK_CONFIG", "mcp.json")


def test_ps_shows_each_server_and_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would see that something is down, but neither why nor what to do."""
    answering(monkeypatch, ServerList((READY, DEAD)))
    assert run(["ps"]) == 0
    out = capsys.readouterr().out
    table, fault = out.split("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["SERVER", "PHASE", "TOOLS", "PID", "MEMORY", "UPTIME", "RESTARTS", "ERA", "SANDBOX"],
        ["fs", "ready", "12", "4711", "12.4", "MiB", "3", "m", "12", "s", "1", "2025-11-25", "bubblewrap"],
        ["git", "faulted", "0", "-", "-", "-", "5", "-", "-"],
    ]
    assert fault.splitlines() == [
        "git: it exited\\x07 (transport, exited)",
        "  see its logs",
        "  exit status 3, up 42 s, peak memory 12.4 MiB, 0.50 s of CPU",
        *(f"  stderr: {letter}" for letter in "cdefg"),
    ]


def test_ps_for_programs_has_every_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A monitor would have to parse a table."""
    answering(monkeypatch, ServerList((READY, DEAD)))
    assert run(["ps", "--json"]) == 0
    fs, git = json.loads(capsys.readouterr().out)["servers"]
    assert (fs["memory_bytes"], fs["uptime_s"], fs["fault"]) == (13_000_000, 192.0, None)
    assert git["fault"]["dossier"]["exit_status"] == 3


def test_ps_says_in_a_word_whether_a_sandbox_is_weaker_and_in_a_line_what_is_reachable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that can reach the cloud's metadata would look like any other."""
    reach = "network: full; metadata, host loopback and abstract sockets: REACHABLE"
    boxes = {"a": ("landlock", "none", ("memory: looks",)), "b": ("limits", "full", (reach,))}
    listed = [msgspec.structs.replace(READY, id=name, sandbox=SandboxView(*box)) for name, box in boxes.items()]
    answering(monkeypatch, ServerList((*listed, READY)))
    assert run(["ps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("2025-11-25")[1].strip() for line in lines[1:4]] == [
        "landlock, weaker",
        "limits, REACHABLE",
        "bubblewrap",
    ]
    assert lines[5:] == ["metadata, host loopback and abstract sockets: REACHABLE from b"]


@pytest.mark.parametrize(("server", "code"), [(READY, 0), (DEAD, 4)])
def test_a_restart_succeeds_only_when_the_server_is_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: ServerView, code: int
) -> None:
    """A script would go on with a server that is down."""
    answering(monkeypatch, Restarted(server))
    assert run(["restart", server.id]) == code
    assert server.id in capsys.readouterr().out
    assert run(["restart", server.id, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["server"]["phase"] == server.phase


def test_a_death_is_told_with_all_that_is_known() -> None:
    """The reason of a death would be in the dossier, and nobody would see it."""
    dossier = DossierView(signal=9, limit="memory", hints=("it asked for more than it may have",))
    assert describe_dossier(dossier) == ["killed by SIGKILL, limit hit: memory", "it asked for more than it may have"]


def test_a_signal_without_a_name_keeps_its_number() -> None:
    """A real-time signal would be an error of ours."""
    assert signal_name(9) == "SIGKILL"
    assert signal_name(999) == "signal 999"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("it died", "fs: it died (transport)"),
        ("fs is not started: it was blocked", "fs is not started: it was blocked (transport)"),
        ("fs2 died", "fs: fs2 died (transport)"),
    ],
)
def test_a_faults_owner_is_named_once(capsys: pytest.CaptureFixture[str], message: str, said: str) -> None:
    """A line would stutter, or nobody would know whose it is."""
    print_fault(FaultView("transport", None, message, None, "not_sent"), of="fs")
    assert capsys.readouterr().out == f"{said}\n"
