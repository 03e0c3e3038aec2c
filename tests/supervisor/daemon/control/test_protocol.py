"""Lines of the control socket."""

import msgspec
import pytest

from quarterdeck.daemon.control.protocol import (
    Answer,
    BadLineError,
    Call,
    Decide,
    Decided,
    Fault,
    FaultView,
    Inspect,
    Inspection,
    LimitView,
    ListingList,
    Listings,
    ListingView,
    LogFile,
    LogPath,
    PropertyView,
    Ps,
    ReceiptView,
    Record,
    Refused,
    Request,
    Restart,
    Restarted,
    Result,
    SandboxView,
    ServerList,
    ServerView,
    Sleep,
    ToolList,
    Tools,
    ToolView,
    Wake,
    WriteCalls,
    Written,
    decode_answer,
    decode_request,
    encode,
)
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.faults import Dossier

FAULT = FaultView("tool_error", "exited", "it ended", "see its logs", "unknown", Dossier(signal=9, hints=("oom",)))
SERVER = ServerView(
    "fs", "faulted", "stdio", 2, 10, 11, 4096, 1.5, 3, "2025-11-25", FAULT, SandboxView("landlock", "full", ("gap",))
)

REQUESTS: list[Request] = [Ps(), Tools(), Call("fs__read", msgspec.Raw(b'{"a":1}')), Restart("fs"), LogPath("fs")]
REQUESTS += [Inspect("fs"), Listings(), WriteCalls(), Wake("fs"), Sleep("fs"), Tools(refresh=True)]
DECISION = Decision("/deck.json", "fs", ItemKey(Subject.TOOL, "read"), "ab12", b"{}")
REQUESTS += [Decide(msgspec.Raw(msgspec.json.encode([DECISION]))), Record(b'{"calls":[]}')]
ANSWERS: list[Answer] = [
    ServerList((SERVER,)),
    ToolList((ToolView("fs__read", "fs", "Reads.", msgspec.Raw(b'{"name":"read"}')),), (SERVER,)),
    ToolList((ToolView("a__b", "a", "", msgspec.Raw(b"{}"), "a__short"),), (), ("a: 1 tool is held",)),
    ListingList(
        (
            ListingView("fs", is_ready=True, instructions="Hi.", definitions=(msgspec.Raw(b'{"name":"read"}'),)),
            ListingView("git", is_ready=False, instructions="", definitions=()),
        )
    ),
    Decided(),
    Written(),
    Result(msgspec.Raw(b'{"content":[]}'), is_error=True),
    Fault(FAULT),
    Restarted(SERVER),
    LogFile("/a/b"),
    Inspection(
        SERVER,
        ("npx", "x"),
        msgspec.Raw(b'{"preset":"strict"}'),
        ReceiptView(
            "landlock",
            "none",
            7,
            "/n",
            "/w",
            (PropertyView("memory", "full", "cgroup"),),
            ("s",),
            ("g",),
            "bubblewrap 1",
        ),
        (LimitView("memory_bytes", 2.0, 1.0, None, "the kernel"),),
        FAULT,
        "",
    ),
    Refused("no_such_tool", "no"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_arrives_as_it_was_made(request_: Request) -> None:
    """A command would ask for something else than its user typed."""
    line = encode(request_)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_request(line) == request_


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_arrives_as_it_was_made(answer: Answer) -> None:
    """A command would show something else than the serve said."""
    line = encode(answer)
    assert line.count(b"\n") == 1
    assert decode_answer(line) == answer


MEMBERS = {
    "server": "id phase transport tools pid worker_pid memory_bytes uptime_s restarts era fault sandbox held blocked "
    "of_sessions awake seal changed",
    "fault": "kind code message remedy delivery dossier",
    "dossier": "exit_status signal limit stderr_tail peak_rss_bytes cpu_s uptime_s hints peak_is_sampled",
    "sandbox": "tier network gaps caught hint",
    "tools": "name server description definition alias own cannot_write",
    "listings": "server is_ready instructions definitions others capabilities home",
    "receipt": "tier network uid program cwd properties shown gaps bubblewrap",
    "properties": "name strength mechanism",
    "limits": "name most present peak kept_by",
    "decisions": "scope server key hash body unordered",
}
"""What programs read in `--json`, and other versions on the socket."""


def test_every_value_keeps_its_members() -> None:
    """A script that reads `ps --json` would find a member gone."""
    found: dict[str, set[str]] = {}

    def collect(value: object, name: str) -> None:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                found[name] = found.get(name, set()) | each.keys()
                for key, member in each.items():
                    collect(member, {"last_death": "fault"}.get(key, key))

    for message in (*REQUESTS, *ANSWERS):
        collect(msgspec.json.decode(encode(message)), "message")
    assert {name: found[name] for name in MEMBERS if name != "fault"} == {
        name: set(members.split()) for name, members in MEMBERS.items() if name != "fault"
    }
    assert found["fault"] - {"type", "fault"} == set(MEMBERS["fault"].split())


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"null\n",
        b"{}\n",
        b'{"type":"stop"}\n',
        b'{"type":"call"}\n',
        b'{"type":"ps"}{}\n',
        b"\xff\n",
        b"[" * 9999,
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    """A client of another version, or no client of ours, would crash the handler."""
    with pytest.raises(BadLineError):
        decode_request(line)
    with pytest.raises(BadLineError):
        decode_answer(line)
