"""A failed test's report on its servers: fault and remedy, receipt, stderr, the last messages.

The sections belong to the report's text, so that the terminal, JUnit's XML and xdist's controller all have them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from quarterdeck_protocol.faults import Dossier, FaultRecord

    from .client.server import McpServer, Story

EXPLAIN_S: Final = 30.0  # seconds that the supervisor may take to answer
MAX_SERVERS: Final = 4  # further servers of a test have no section
STDERR_LINES: Final = 100  # of its end
LONGER: Final = "raise timeout= of the marker mcp, or --mcp-timeout"
ANSWERS: Final = "mcp_client.answer(elicitation=…, sampling=…, roots=…)"
MISSING_CAPABILITY: Final = -32021  # a server of 2026-07-28 asked what the client declared no capability for

IN_TESTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "access_denied": "have its row name in headers the token of one who has the permission",
        "auth_needed": "get a token from the server, and have its row name it in headers",
        "bad_output": "look at the end of its stderr; to see it without pytest: quarterdeck check -- COMMAND",
        "call_timeout": f"{LONGER}, or ask for less",
        "closed": "ask mcp_server for it again",
        "crash_loop": "look at how it died; --mcp-keep keeps its whole log",
        "exited": "look at the end of its stderr; --mcp-keep keeps its whole log",
        "exited_at_handshake": "look at the end of its stderr; if it lacks a file: its row names that by its whole "
        'path, or has a "cwd", and policy= of the marker mcp, or the row\'s sandbox, has it read: {"read": ["FOLDER"]}',
        "handshake_failed": "look at the end of its stderr; quarterdeck check -- COMMAND says what is wrong with it",
        "handshake_timeout": f"is it an MCP server, with the arguments that it needs? If it is slow: {LONGER}",
        "input_required": ANSWERS,
        "keyring_unusable": "unlock the keyring, or have its row name a token in headers",
        "limit_hit": 'raise that limit by policy= of the marker mcp: {"limits": {…}}',
        "list_timeout": LONGER,
        "login_failed": "have its row name a token in headers, which needs no login",
        "missing_client_secret": "store the secret that its row names: tests run with the owner's",
        "not_connected": "see how it is below; after a crash assert_recovers_within waits for it",
        "reply_error": "correct the arguments as the server's message says: list_tools has the tool's schema",
        "sandbox_refused": "change policy= of the marker mcp, or what the machine gives: quarterdeck doctor says what "
        'that is; "trusted" runs it unconfined',
        "scope_needed": "have its row name in headers a token with that scope",
        "spawn_failed": "run the command by hand",
        "unknown_tool": "list_tools has the names of its tools",
    }
)
"""Remedies for a server of a test, by the fault's code, instead of those for a user's server."""


def add_sections(report: Any, servers: "Sequence[McpServer]", error: BaseException | None) -> None:
    """Add a section for each server that the test used, and one for the fault that it ended with."""
    sections = []
    used = servers[:MAX_SERVERS]
    stories = [_story_of(server) for server in used]
    if error is not None and type(error).__name__ == "ProtocolFault":
        is_told = any(server.id == getattr(error, "server", None) for server in used)
        unanswered = [kind for story in stories if not isinstance(story, str) for kind in story.unanswered]
        sections.append(("MCP fault", _text(_fault_lines(error, unanswered, with_stderr=not is_told))))
    for server, story in zip(used, stories, strict=True):
        sections.append((f"MCP server {server.id}", story if isinstance(story, str) else render(story, error)))
    for name, text in sections:
        if hasattr(report.longrepr, "addsection"):
            report.longrepr.addsection(name, text)
        else:
            report.sections.append((name, text))


def _story_of(server: "McpServer") -> "Story | str":
    """Return the facts, or why there are none."""
    try:
        return server.explain(EXPLAIN_S)
    except Exception as error:
        return _text([f"nothing is known of it: {error}"])


def render(story: "Story", told: BaseException | None = None) -> str:
    """Return the facts about a server, as text, without a fault that was `told` already."""
    return _text(_lines(story, told))


def _text(lines: Iterable[str]) -> str:
    """Join the lines. A server's text cannot begin a line of its own."""
    from quarterdeck.common.words import printable

    return "\n".join(printable(line).replace("\n", "\\n") for line in lines)


def _lines(story: "Story", told: BaseException | None) -> Iterator[str]:
    from quarterdeck.common.words import counted

    found, view = story.found, story.found.server
    process = f", process {view.pid}" if view.pid is not None else ""
    restarts = f", restarted {counted(view.restarts, 'time')}" if view.restarts else ""
    yield f"it is {view.phase}{process}{restarts}" + (f", and speaks {view.era}" if view.era else "")
    for kind in story.unanswered:
        yield f"it asked for {kind}, and the test gave no answer: it was told an error"
        yield f"remedy: {_answer_with(kind)}"
    fault = view.fault or found.last_fault
    if fault is not None and (fault.code, fault.message) != (getattr(told, "code", None), str(told)):
        yield from _record_lines(fault, view.remedy)
    if view.policy:
        yield f"policy: {view.policy.decode()}"
    if view.tier:
        yield f"confined by: {view.tier}; network: {view.network}"
        yield from (f"  weaker than wanted: {gap}" for gap in view.gaps)
    yield from _stderr_lines(found.stderr)
    if found.texts:
        more = f" ({story.left_out} earlier ones are left out)" if story.left_out else ""
        yield f"the last messages of this test{more}:"
        yield from (f"  {text}" for text in found.texts)


def _record_lines(fault: "FaultRecord", remedy: str) -> Iterator[str]:
    yield f"fault: {fault.kind}, {fault.code or 'without a code'}: {fault.message}"
    yield from _remedy_lines(fault.code, remedy)
    if fault.dossier is not None:
        yield from _dossier_lines(fault.dossier)


def _fault_lines(fault: Any, unanswered: Sequence[str], *, with_stderr: bool) -> Iterator[str]:
    yield f"{fault.kind}, {fault.code or 'without a code'} ({fault.delivery}): {fault.message}"
    if unanswered and fault.code in {"input_required", "reply_error"}:
        yield f"remedy: {'; '.join(map(_answer_with, unanswered))}"
    elif fault.reply is not None and fault.reply.code == MISSING_CAPABILITY:
        yield f"remedy: {ANSWERS}"
    else:
        yield from _remedy_lines(fault.code, fault.remedy)
    if fault.dossier is not None:
        yield from _dossier_lines(fault.dossier)
        if with_stderr:
            yield from _stderr_lines(fault.dossier.stderr_tail)


def _remedy_lines(code: str | None, usual: str | None) -> Iterator[str]:
    if remedy := IN_TESTS.get(code or "", usual):
        yield f"remedy: {remedy}"


def _answer_with(kind: str) -> str:
    no = ', or "decline" to test a no' if kind == "elicitation" else ""
    return f"mcp_client.answer({kind}=…){no}"


def _stderr_lines(text: str) -> Iterator[str]:
    if lines := text.strip().splitlines()[-STDERR_LINES:]:
        yield "stderr, its end:"
        for _, found in groupby(lines, lambda line: line.partition("\t")[2] or line):  # without its time
            first, *more = found
            yield f"  {first}"
            if more:
                yield f"  ... and {len(more)} more such lines"


def _dossier_lines(dossier: "Dossier") -> Iterator[str]:
    from quarterdeck.common.words import how_it_ended

    if known := how_it_ended(dossier):
        yield f"dossier: {known}"
    yield from (f"  {hint}" for hint in dossier.hints)
