"""What a failed test's report says of a server."""

import pytest

from quarterdeck_protocol.faults import Dossier, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_pytest.messages import Explanation, ServerView
from quarterdeck_pytest.report import add_sections, render


def test_a_report_has_fault_remedy_dossier_receipt_stderr_and_messages() -> None:
    """Whoever reads a CI log would have to run the test again to learn why it failed."""
    fault = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3, hints=("a hint",)))
    view = ServerView(
        "echo", "faulted", fault=fault, remedy="restart it", era="2025-11-25", restarts=2, policy=b'{"preset":"strict"}'
    )
    confined = ServerView("echo", "ready", pid=7, tier="bubblewrap", network="none", gaps=("no cgroup",))
    text = render(Explanation(view, ("-> tools/call x {}", "<- {}"), "last words\n"), left_out=3)
    for part in ("restarted 2 times", "transport, exited: it exited", "remedy: restart it", "exit status 3", "a hint"):
        assert part in text
    for part in ('policy: {"preset":"strict"}', "last words", "-> tools/call x {}", "3 earlier ones"):
        assert part in text
    text = render(Explanation(confined, (), "", last_fault=fault))
    assert "ready, process 7" in text
    assert "weaker than wanted: no cgroup" in text
    assert "it exited" in text


class Report:
    """What is looked at of a report whose text is a plain one."""

    longrepr = "a text"

    def __init__(self) -> None:
        self.sections: list[tuple[str, str]] = []


def test_a_report_without_a_traceback_has_sections_of_its_own() -> None:
    """A server that does not start, before any line of the test, would be a riddle."""
    report = Report()
    fault = ProtocolFault.not_sent(FaultKind.SPAWN_FAILED, "no such command", "command_not_found")
    add_sections(report, (), fault)
    [(name, text)] = report.sections
    assert name == "MCP fault"
    assert "command_not_found" in text
    assert "remedy: install it" in text


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_a_failure_without_servers_is_left_as_it_is(error: BaseException | None) -> None:
    """Every failure of every test would grow."""
    report = Report()
    add_sections(report, (), error)
    assert report.sections == []
