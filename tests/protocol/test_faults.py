"""Faults as exceptions here, as values on the link, and the promise that each has a remedy."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.faults import (
    MAX_CAUSE_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_STDERR_TAIL_CHARS,
    NOTHING_TO_ADD,
    REMEDIES,
    Delivery,
    Dossier,
    FaultKind,
    FaultRecord,
    ProtocolFault,
    RemoteCause,
    find_remedy,
    is_protocol_fault,
    protocol_fault,
    sayable,
)
from quarterdeck_protocol.link.frame_bytes import MAX_HEADER_BYTES, WireLimits, decode, encode
from quarterdeck_protocol.link.frames import Failed

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("protocol", "sandbox", "worker", "supervisor")
NAMES_CODES = re.compile(r"\bcode(=|,| = )|, code\b|\bFaultRecord\(|\bnot_sent\(")
"""Only modules with such a text are worth parsing."""

ANY_TEXT = st.text(st.characters(), max_size=50)
"""Any code points, lone surrogates included."""


def test_the_six_kinds_are_the_seeds_own_strings() -> None:
    """User code compares `fault.kind` with these strings."""
    expected = {"transport", "protocol", "timeout", "tool_error", "not_connected", "spawn_failed"}
    assert set(FaultKind) == expected
    assert ProtocolFault("spawn_failed", "x").kind == "spawn_failed"


def test_str_is_the_message_alone() -> None:
    """Logs and results show the text without a prefix."""
    assert str(ProtocolFault(FaultKind.TIMEOUT, "too late", code="call_timeout")) == "too late"


def test_an_exception_as_cause_stands_on_the_native_chain() -> None:
    """A traceback shows what really happened."""
    cause = OSError("no")
    fault = protocol_fault("transport", "lost", cause)
    assert fault.cause is cause
    assert fault.__cause__ is cause


@pytest.mark.parametrize("cause", [None, "text", RemoteCause("OSError", "no")])
def test_any_other_cause_is_kept_but_not_chained(cause: object) -> None:
    """Only exceptions of this process can be chained."""
    fault = protocol_fault("transport", "lost", cause)
    assert fault.cause == cause
    assert fault.__cause__ is None


def test_a_kind_that_is_none_of_the_six_is_refused() -> None:
    """A typo in a kind must not become a fault that nobody handles."""
    with pytest.raises(ValueError, match="tool-error"):
        protocol_fault("tool-error", "x")


def test_is_protocol_fault_knows_its_own_only() -> None:
    """The type guard decides what user code may branch on."""
    assert is_protocol_fault(ProtocolFault("protocol", "x"))
    assert not is_protocol_fault(ValueError("x"))
    assert not is_protocol_fault(FaultRecord(FaultKind.PROTOCOL, "x"))


def test_faults_compare_by_identity() -> None:
    """Callers that joined one attempt to connect can see that they got the same fault."""
    fault = ProtocolFault("timeout", "x")
    assert fault == fault
    assert fault != ProtocolFault("timeout", "x")


def test_nothing_is_claimed_of_a_calls_effect_by_default() -> None:
    """Who forgets to say how far a call got must not invite a repetition."""
    assert ProtocolFault("tool_error", "x").delivery is Delivery.UNKNOWN
    assert FaultRecord(FaultKind.TOOL_ERROR, "x").delivery is Delivery.UNKNOWN


def test_a_fault_crosses_the_link_whole() -> None:
    """Kind, message, code, delivery, cause and dossier of a worker's fault reach the caller."""
    dossier = Dossier(None, 9, "memory", "Killed\n", 1 << 30, 1.5, 60.0, ("out of memory",))
    record = FaultRecord(
        FaultKind.TRANSPORT, "gone", "exited", Delivery.NOT_SENT, RemoteCause.of(KeyError("k")), dossier
    )
    frame, _ = decode(encode(Failed(7, record)), WireLimits())
    assert isinstance(frame, Failed)
    back = ProtocolFault.from_record(frame.fault)
    assert (back.kind, back.message, back.code, back.delivery) == ("transport", "gone", "exited", "not_sent")
    assert back.cause == RemoteCause("KeyError", "'k'")
    assert back.dossier == dossier


@given(text=ANY_TEXT, most=st.integers(0, 20))
def test_sayable_text_is_short_clean_and_stays_as_it_is(text: str, most: int) -> None:
    """A server's error text, whatever it holds, must fit into a frame."""
    said = sayable(text, most)
    assert len(said) <= most
    said.encode()
    assert sayable(said, most) == said
    if len(text) <= most and not any("\ud800" <= char <= "\udfff" for char in text):
        assert said == text


@given(text=ANY_TEXT)
def test_every_record_can_be_sent(text: str) -> None:
    """An undecodable file name in a message must not keep the fault from its caller."""
    record = FaultRecord(FaultKind.TRANSPORT, text, cause=RemoteCause(text, text), dossier=Dossier(stderr_tail=text))
    frame, _ = decode(encode(Failed(1, record)), WireLimits())
    assert frame == Failed(1, record)


def test_the_largest_record_fits_into_a_header() -> None:
    """A server that writes a megabyte of error text gets a fault, not a dead worker."""
    vast = "\U0001f4a5" * 2_000_000
    record = FaultRecord(FaultKind.TRANSPORT, vast, cause=RemoteCause(vast, vast), dossier=Dossier(stderr_tail=vast))
    assert record.cause is not None
    assert record.dossier is not None
    assert len(record.message) == MAX_MESSAGE_CHARS
    assert len(record.cause.message) == MAX_CAUSE_CHARS
    assert len(record.dossier.stderr_tail) == MAX_STDERR_TAIL_CHARS
    assert len(msgspec.msgpack.encode(Failed(1, record))) < MAX_HEADER_BYTES


def test_a_dossier_keeps_the_end_of_stderr() -> None:
    """The last lines before a death say why; the first ones do not."""
    assert Dossier(stderr_tail="x" * MAX_STDERR_TAIL_CHARS + "the reason").stderr_tail.endswith("the reason")


def test_remedies_are_one_clear_line_each() -> None:
    """They are printed under the message, in tables too."""
    for code, remedy in REMEDIES.items():
        assert code.replace("_", "").islower(), code
        assert code.isidentifier(), code
        assert remedy, code
        assert "\n" not in remedy, code
        assert not remedy.endswith("."), code
    assert list(REMEDIES) == sorted(REMEDIES)


@pytest.mark.parametrize("code", [None, "no_such_code"])
def test_an_unknown_code_has_no_remedy(code: str | None) -> None:
    """A code made up by a hostile worker must not raise where faults are shown."""
    assert ProtocolFault("transport", "x", code=code).remedy is None


@pytest.mark.parametrize("code", sorted(REMEDIES))
def test_a_remedy_names_the_server_that_the_fault_is_of(code: str) -> None:
    """A person or a model would be told to run a command on a server called SERVER."""
    fault = ProtocolFault("spawn_failed", "x", code=code)
    assert fault.remedy == REMEDIES[code]
    fault.server = "time -c mcp.json"
    assert fault.remedy == fault.remedy_for("time -c mcp.json")
    words = re.findall(r"quarterdeck (?:logs|restart|allow) (\S+ \S+ [\w.]+)", fault.remedy)
    assert set(words) <= {"time -c mcp.json"}
    assert "SERVER" not in fault.remedy.replace("SERVER TOOL", "")
    assert fault.remedy_for("git") == fault.remedy.replace("time -c mcp.json", "git")


def test_every_code_that_is_raised_has_a_remedy() -> None:
    """A fault with an undocumented code would leave its reader helpless."""
    used = {code: where for where, code in _codes_in_sources()}
    assert used.keys() <= REMEDIES.keys(), {code: used[code] for code in used.keys() - REMEDIES.keys()}


def _codes_in_sources() -> list[tuple[str, str]]:
    found = []
    for root in SOURCE_ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if NAMES_CODES.search(text) else ():
                for value in _code_values(node):
                    found += [
                        (f"{path.relative_to(ROOT)}:{leaf.lineno}", leaf.value)
                        for leaf in ast.walk(value)
                        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
                    ]
    return found


def _code_values(node: ast.AST) -> list[ast.expr]:
    called = node.func if isinstance(node, ast.Call) else None
    if getattr(called, "id", "") == "FaultRecord" or getattr(called, "attr", "") == "not_sent":
        assert isinstance(node, ast.Call)
        return node.args[2:3]
    if isinstance(node, ast.keyword) and node.arg == "code":
        return [node.value] if isinstance(node.value, ast.Constant | ast.IfExp) else []
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        # Code and message are often chosen together.
        return [
            value
            for target in node.targets
            if isinstance(target, ast.Tuple) and len(target.elts) == len(node.value.elts)
            for name, value in zip(target.elts, node.value.elts, strict=True)
            if isinstance(name, ast.Name) and name.id == "code"
        ]
    return []


def test_a_request_of_a_server_that_failed_has_the_fix_of_that_failure() -> None:
    """A client would be told to restart what a restart cannot mend."""
    message = '/home/u/notes is hidden: add "read": ["/home/u/notes"] or "write": ["/home/u/notes"] to its sandbox'
    cause = ProtocolFault("spawn_failed", message, code="sandbox_refused")
    fault = ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, "fs is faulted", "not_connected", cause)
    fault.server = "fs -c mcp.json"
    assert fault.remedy == cause.remedy_for("fs -c mcp.json")
    assert fault.remedy == "quarterdeck allow fs -c mcp.json gives it what its row names; or change the row's sandbox"
    alone = ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, "fs is closed", "not_connected")
    assert alone.remedy == REMEDIES["not_connected"]


@pytest.mark.parametrize(
    "message",
    [
        f"/home/u is hidden, and {NOTHING_TO_ADD}: it is a folder of many things: name a folder in it",
        '/k/.ssh/id is hidden: add "read": ["/k/.ssh/id"] to its sandbox; or take it out; add "grants": ["ssh-agent"]',
        '/k/.aws/x is hidden: add "grants": ["aws"], or "read": ["/k/.aws/x"] to its sandbox',
        'the network "internet" cannot be had here: install slirp4netns',
    ],
)
def test_allow_is_named_only_where_it_gives_something(message: str) -> None:
    """A user would follow the fix, and be refused."""
    remedy = find_remedy("sandbox_refused", message)
    assert remedy == REMEDIES["sandbox_refused"]
    assert "allow" not in remedy


def test_a_server_that_ended_at_its_start_is_given_a_path_only_where_a_hint_says_which() -> None:
    """A user would be sent to `allow`, which finds nothing that it may give."""
    plain = ProtocolFault("spawn_failed", "it exited", code="exited_at_handshake", dossier=Dossier(hints=("a limit",)))
    assert plain.remedy == REMEDIES["exited_at_handshake"]
    hinted = Dossier(hints=('DB names /d/x.db, which is not there, and its folder is hidden; add "write": ["/d"]',))
    fault = ProtocolFault("spawn_failed", "it exited", code="exited_at_handshake", dossier=hinted)
    assert (fault.remedy_for("db") or "").startswith(
        "quarterdeck allow db gives it what its row names, and with --read"
    )
