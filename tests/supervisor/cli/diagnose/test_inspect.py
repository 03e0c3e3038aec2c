"""`inspect`: one server whole, for people and for programs."""

import json

import msgspec
import pytest

from quarterdeck.cli.diagnose import inspect as inspect_module
from quarterdeck.cli.diagnose.inspect import describe_policy
from quarterdeck.cli.program import run
from quarterdeck.control.protocol import (
    FaultView,
    Inspect,
    Inspection,
    LimitView,
    PropertyView,
    ReceiptView,
    SandboxView,
    ServerView,
)
from quarterdeck_protocol.faults import Dossier

SANDBOX = SandboxView("landlock", "full", ("network: full",))
SERVER = ServerView("fs", "ready", "stdio", 2, 4711, 4710, 4096, 60.0, 0, "2025-11-25", None, SANDBOX)
DEATH = FaultView("transport", "limit_hit", "it hit a limit", "raise it", "unknown", Dossier(signal=9))
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
    ),
    (LimitView("memory_bytes", 2 << 30, 12 << 20, 13 << 20, "a look"), LimitView("processes", 512, 3, None, "a look")),
    DEATH,
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


def test_a_confined_server_is_shown_whole(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """A user could not tell what the server can reach and use."""
    assert run(["inspect", "fs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "fs is ready",
        "command  npx -y 'a b'",
        "program  /usr/bin/node",
        "cwd      /w\\x07",
        "pid      4711",
        "policy   preset standard; read /a",
        "sandbox  landlock as user 61184",
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


def test_a_server_without_a_process_says_so(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing would look like nothing enforced."""
    assert run(["inspect", "web"]) == 0
    assert capsys.readouterr().out.splitlines() == ["web is ready", "sandbox  a remote server"]


def test_programs_get_all_of_it(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """A program would have to parse a table."""
    assert run(["inspect", "fs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["policy"]["limits"] == {"cpu_s": 1}
    assert told["receipt"]["properties"] == [{"name": "memory", "strength": "partial", "mechanism": "looks"}]
    assert told["limits"][0]["most"] == 2 << 30
    assert told["last_death"]["dossier"]["signal"] == 9


def test_only_the_server_in_question_is_started(asked: list[tuple[object, ...]]) -> None:
    """All the others would be started to look at one."""
    assert run(["inspect", "web", "--own", "--allow-unsandboxed"]) == 0
    ((whom, request, only),) = asked
    assert (request, only) == (Inspect("web"), "web")
    assert (whom.own, whom.allow_unsandboxed) == (True, True)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (b"null", None),
        (b'{"preset":"strict","network":["a:1","b:2"],"require":[]}', "preset strict; network a:1, b:2"),
    ],
)
def test_a_policy_is_told_without_what_is_empty(policy: bytes, text: str | None) -> None:
    """What a user wrote would drown in defaults."""
    assert describe_policy(policy) == text
