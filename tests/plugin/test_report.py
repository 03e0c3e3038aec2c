"""What a failed test's report says of a server."""

import re

import pytest

from quarterdeck_protocol.faults import REMEDIES, Dossier, FaultKind, FaultRecord, ProtocolFault, ReplyError
from quarterdeck_pytest.client.server import Story
from quarterdeck_pytest.messages import Explanation, ServerView
from quarterdeck_pytest.report import IN_TESTS, add_sections, render


def test_a_report_has_fault_remedy_dossier_receipt_stderr_and_messages() -> None:
    """Whoever reads a CI log would have to run the test again to learn why it failed."""
    fault = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3, hints=("a hint",)))
    view = ServerView(
        "echo", "faulted", fault=fault, remedy="restart it", era="2025-11-25", restarts=2, policy=b'{"preset":"strict"}'
    )
    confined = ServerView("echo", "ready", pid=7, tier="bubblewrap", network="none", gaps=("no cgroup",))
    text = render(Story(Explanation(view, ("-> tools/call x {}", "<- {}"), "last words\n"), left_out=3))
    for part in (
        "restarted 2 times",
        "transport, exited: it exited",
        "remedy: look at the end of its stderr",
        "exit status 3",
        "a hint",
    ):
        assert part in text
    for part in ('policy: {"preset":"strict"}', "last words", "-> tools/call x {}", "3 earlier ones"):
        assert part in text
    story = Story(Explanation(confined, (), "", last_fault=fault))
    text = render(story)
    assert "ready, process 7" in text
    assert "weaker than wanted: no cgroup" in text
    assert "it exited" in text
    assert "it exited" not in render(story, ProtocolFault(FaultKind.TOOL_ERROR, "it exited", code="exited"))


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


def test_a_server_that_did_not_start_is_shown_with_its_last_words() -> None:
    """It has no section of its own: nobody would see why it does not start."""
    report = Report()
    dossier = Dossier(exit_status=2, stderr_tail="usage: server --port N\n")
    fault = ProtocolFault(FaultKind.SPAWN_FAILED, "it exited", code="exited_at_handshake", dossier=dossier)
    add_sections(report, (), fault)
    [(_, text)] = report.sections
    assert "stderr, its end:\n  usage: server --port N" in text
    assert "remedy: look at the end of its stderr; if it lacks a file: its row names that by its whole path" in text


def test_a_call_that_ended_as_nobody_answered_is_told_how_to_answer() -> None:
    """The arguments would be searched for a mistake that is none of theirs."""
    report, reply = Report(), ReplyError(-32021, "it lacks elicitation")
    add_sections(report, (), ProtocolFault(FaultKind.TOOL_ERROR, "x", code="reply_error", reply=reply))
    assert "remedy: mcp_client.answer(elicitation=…, sampling=…, roots=…)" in report.sections[0][1]

    text = render(Story(Explanation(ServerView("asks", "ready"), (), ""), unanswered=("elicitation",)))
    assert "it asked for elicitation, and the test gave no answer: it was told an error\n" in text
    assert 'remedy: mcp_client.answer(elicitation=…), or "decline" to test a no' in text


def test_how_a_server_died_is_told_in_units_for_people() -> None:
    """Bytes and thousandths of a second are no help in a CI log."""
    dossier = Dossier(signal=9, uptime_s=0.011, peak_rss_bytes=3 * 2**20, cpu_s=1.5)
    fault = FaultRecord(FaultKind.TRANSPORT, "it was killed", dossier=dossier)
    text = render(Story(Explanation(ServerView("echo", "faulted", fault=fault), (), "")))
    assert "dossier: killed by SIGKILL, up 11 ms, peak memory 3.0 MiB, 1.50 s of CPU\n" in f"{text}\n"


def test_a_line_that_is_written_again_and_again_is_shown_once() -> None:
    """What a server said before it wrote the same a hundred times would be out of sight."""
    words = "".join(f"2026-11-23T20:06:{number:02}Z\tagain\n" for number in range(30))
    story = Story(Explanation(ServerView("echo", "ready"), (), f"2026-11-23T20:05:00Z\tfirst\n{words}last\n"))
    assert render(story).splitlines()[-4:] == [
        "  2026-11-23T20:05:00Z\tfirst",
        "  2026-11-23T20:06:00Z\tagain",
        "  ... and 29 more such lines",
        "  last",
    ]


def test_no_server_writes_to_the_terminal_by_a_report() -> None:
    """It would retitle the window, hide what failed, or turn a line around."""
    report = Report()
    add_sections(report, (), ProtocolFault(FaultKind.TOOL_ERROR, "\x1b]0;owned\x07", code="reply_error"))
    text = render(Story(Explanation(ServerView("echo", "ready"), ("<- \u202egnorw",), "\x1b[2Jstderr\n")))
    assert [each for each in report.sections[0][1] + text if not each.isprintable()] == ["\n"] * 5
    assert "\\x1b[2Jstderr" in text
    assert "<- \\u202egnorw" in text


def test_no_server_begins_a_line_of_a_report() -> None:
    """A message would forge a remedy, or give orders to the CI in whose log the report is."""
    report = Report()
    add_sections(report, (), ProtocolFault(FaultKind.TOOL_ERROR, "no\n::error::x\nremedy: rm", code="reply_error"))
    text = render(Story(Explanation(ServerView("echo", "ready"), ("<- \n::error::x",), "::error::x\n##[error]x\n")))
    lines = (report.sections[0][1] + "\n" + text).splitlines()
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert len([line for line in lines if line.startswith("remedy: ")]) == 1


def test_no_remedy_names_a_command_that_means_nothing_in_a_run_of_pytest() -> None:
    """Whoever types it is told of other servers, or of none."""
    # It has no approvals, no seals and no tokens.
    never = {"not_granted", "program_changed", "seal_changed", "seal_failed"}
    possible = {code for code in REMEDIES if not code.endswith(("_held", "_blocked"))} - never
    said = {code: IN_TESTS.get(code, REMEDIES[code]) for code in possible}
    anywhere = re.compile(r"quarterdeck (doctor|check -- COMMAND)")
    assert {code for code, text in said.items() if "quarterdeck " in anywhere.sub("", text)} == set()
    assert IN_TESTS.keys() <= REMEDIES.keys()


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_a_failure_without_servers_is_left_as_it_is(error: BaseException | None) -> None:
    """Every failure of every test would grow."""
    report = Report()
    add_sections(report, (), error)
    assert report.sections == []
