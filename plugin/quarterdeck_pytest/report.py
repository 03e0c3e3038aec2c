"""What a failed test's report says of the servers that it used: fault and remedy, receipt, stderr, the last messages.

The sections belong to the report's text, so that the terminal, JUnit's XML and xdist's controller all have them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from quarterdeck_protocol.faults import Dossier, FaultRecord

    from .client.server import McpServer
    from .messages import Explanation

EXPLAIN_S: Final = 30.0
"""How long the supervisor may take to say what it knows."""

MAX_SERVERS: Final = 4
"""A test of more says so much of the first."""


def add_sections(report: Any, servers: "Sequence[McpServer]", error: BaseException | None) -> None:
    """Add a section for each server that the test used, and one for the fault that it ended with."""
    sections = []
    if error is not None and type(error).__name__ == "ProtocolFault":
        sections.append(("MCP fault", "\n".join(_fault_lines(error))))
    used = dict.fromkeys(servers[:MAX_SERVERS])
    sections += [(f"MCP server {server.id}", _of_server(server)) for server in used]
    for name, text in sections:
        if hasattr(report.longrepr, "addsection"):
            report.longrepr.addsection(name, text)
        else:
            report.sections.append((name, text))


def _of_server(server: "McpServer") -> str:
    try:
        found = server.explain(server.transcript.lines, EXPLAIN_S)
    except Exception as error:
        return f"nothing is known of it: {error}"
    return render(found, server.transcript.left_out)


def render(found: "Explanation", left_out: int = 0) -> str:
    """What is known of a server, as text."""
    return "\n".join(_lines(found, left_out))


def _lines(found: "Explanation", left_out: int) -> Iterator[str]:
    view = found.server
    process = f", process {view.pid}" if view.pid is not None else ""
    restarts = f", restarted {view.restarts} times" if view.restarts else ""
    yield f"it is {view.phase}{process}{restarts}" + (f", and speaks {view.era}" if view.era else "")
    fault = view.fault or found.last_fault
    if fault is not None:
        yield from _record_lines(fault, view.remedy)
    if view.policy:
        yield f"policy: {view.policy.decode()}"
    if view.tier:
        yield f"confined by: {view.tier}; network: {view.network}"
        yield from (f"  weaker than wanted: {gap}" for gap in view.gaps)
    if found.stderr.strip():
        yield "stderr, its end:"
        yield from (f"  {line}" for line in found.stderr.strip().splitlines())
    if found.texts:
        yield "the last messages of this test" + (f" ({left_out} earlier ones are left out):" if left_out else ":")
        yield from (f"  {text}" for text in found.texts)


def _record_lines(fault: "FaultRecord", remedy: str) -> Iterator[str]:
    yield f"fault: {fault.kind}, {fault.code or 'without a code'}: {fault.message}"
    if remedy:
        yield f"remedy: {remedy}"
    if fault.dossier is not None:
        yield from _dossier_lines(fault.dossier)


def _fault_lines(fault: Any) -> Iterator[str]:
    yield f"{fault.kind}, {fault.code or 'without a code'} ({fault.delivery}): {fault.message}"
    if fault.remedy:
        yield f"remedy: {fault.remedy}"
    if fault.dossier is not None:
        yield from _dossier_lines(fault.dossier)


def _dossier_lines(dossier: "Dossier") -> Iterator[str]:
    facts = {
        "exit status": dossier.exit_status,
        "signal": dossier.signal,
        "limit": dossier.limit,
        "peak memory, bytes": dossier.peak_rss_bytes,
        "processor seconds": dossier.cpu_s,
        "uptime, seconds": dossier.uptime_s,
    }
    known = [
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in facts.items()
        if value is not None
    ]
    if known:
        yield f"dossier: {', '.join(known)}"
    yield from (f"  {hint}" for hint in dossier.hints)
