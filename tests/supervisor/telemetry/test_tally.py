"""What is counted of events, and that it stays bounded."""

from typing import Any

from quarterdeck.common.events import CallEnded, ServerChanged, SessionEnded
from quarterdeck.telemetry import tally as module
from quarterdeck.telemetry.tally import (
    CALLS,
    CLIENT_OPERATION,
    DENIALS,
    FAULT_TIME,
    MAX_LABEL_CHARS,
    MAX_SETS,
    MAX_TOOLS,
    OTHER,
    QUEUE_WAIT,
    SERVER_OPERATION,
    SERVER_SESSION,
    STARTS,
    WAKE,
    Tally,
)


def call(tool: str = "read", outcome: str = "ok", delivery: str = "answered", **more: Any) -> CallEnded:
    """The end of a call of `fs`."""
    told = {"deck": "d", "server": "fs", "method": "tools/call", **more}
    return CallEnded(tool=tool, outcome=outcome, delivery=delivery, **told)


def counted(tally: Tally) -> dict[str, dict[tuple[str, ...], Any]]:
    """Counters, and how many values histograms have with their sum."""
    sums = {
        family.name: {labels: (sum(each.counts), each.total) for labels, each in rows.items() if any(each.counts)}
        for family, rows in tally.histograms.items()
    }
    counts = {
        family.name: {labels: each.value for labels, each in rows.items()} for family, rows in tally.counters.items()
    }
    return {name: rows for name, rows in {**counts, **sums}.items() if rows}


def test_each_part_of_a_calls_time_is_counted_where_it_was_spent() -> None:
    """A slow start would look like a slow tool, or a busy server like a broken one."""
    tally = Tally()
    tally.take([call(queued_s=1.0, woke_s=2.0, took_s=4.0), call(outcome="error", took_s=0.5)])
    read = ("d", "fs", "tools/call", "read")
    assert counted(tally) == {
        CALLS.name: {("d", "fs", "ok", "answered"): 1, ("d", "fs", "error", "answered"): 1},
        SERVER_OPERATION.name: {(*read, "", "pipe"): (1, 7.0), (*read, "tool_error", "pipe"): (1, 0.5)},
        CLIENT_OPERATION.name: {(*read, ""): (1, 4.0), (*read, "tool_error"): (1, 0.5)},
        QUEUE_WAIT.name: {("d", "fs"): (2, 1.0)},
        WAKE.name: {("d", "fs"): (1, 2.0)},
    }


def test_a_refusal_a_denial_and_a_call_of_ours_are_counted_as_what_they_are() -> None:
    """Time to a fault would be missing; or a server be blamed for what it was never asked."""
    tally = Tally()
    tally.take(
        [
            call(outcome="fault", code="busy", delivery="not_sent", queued_s=3.0),
            call(outcome="error", took_s=0.5, denied="read /home/x"),
            call("bash", server="", outcome="cancelled", delivery="unknown", took_s=0.25, transport="tcp"),
            call("resources/read file:///a", method="resources/read", took_s=0.125),
        ]
    )
    found = counted(tally)
    assert found[FAULT_TIME.name] == {("d", "fs"): (1, 3.0)}
    assert found[DENIALS.name] == {("d", "fs", "read"): 1}
    assert {labels[3:] for labels in found[CLIENT_OPERATION.name]} == {("read", "tool_error"), ("", "")}
    assert ("d", "", "tools/call", "bash", "cancelled", "tcp") in found[SERVER_OPERATION.name]
    assert not [labels for labels in found[QUEUE_WAIT.name] if not labels[1]], "a native tool has no queue"


def test_a_value_is_in_the_first_bucket_that_it_fits() -> None:
    """Quantiles would be off by a bucket."""
    tally = Tally()
    tally.take([call(took_s=at) for at in (0.01, 0.011, 300.0, 1000.0)])
    [row] = tally.histograms[SERVER_OPERATION].values()
    assert (row.counts[0], row.counts[1], row.counts[-2], row.counts[-1]) == (1, 1, 1, 1)


def test_starts_are_counted_once_however_often_their_phase_is_told() -> None:
    """Each change of a list while a server starts would look like a restart."""
    tally = Tally()
    phases = ("connecting", "connecting", "ready", "ready", "faulted", "connecting", "ready")
    tally.take([ServerChanged("d", "fs", phase, 0) for phase in phases])
    tally.take([SessionEnded("d", "tcp", 60.0)])
    assert counted(tally) == {STARTS.name: {("d", "fs"): 2}, SERVER_SESSION.name: {("d", "tcp"): (1, 60.0)}}


def test_names_that_clients_make_up_have_no_figures_of_their_own() -> None:
    """A client could fill the memory, or have the names of real tools cut."""
    tally = Tally()
    invented = (call(f"no_{number}", "fault", "not_sent", code="unknown_tool") for number in range(MAX_TOOLS + 1))
    tally.take([*invented, call("", "error", server=""), call("real")])
    assert {labels[3] for labels in tally.histograms[SERVER_OPERATION]} == {OTHER, "real"}
    assert tally.cut == 0


def test_what_a_server_makes_up_is_cut_and_said() -> None:
    """A server with tools without end, or names without end, would fill the memory; or figures be wrong in silence."""
    tally = Tally()
    tally.take([call(f"t{number}") for number in range(MAX_TOOLS + 5)])
    tools = [labels[3] for labels in tally.histograms[SERVER_OPERATION]]
    assert (len(tools), OTHER in tools, tally.cut) == (MAX_TOOLS + 1, True, 5)
    tally = Tally()
    tally.take([call("x" * 10_000), call("\ud800")])
    assert [labels[3] for labels in tally.histograms[SERVER_OPERATION]] == ["x" * MAX_LABEL_CHARS, "?"]
    tally.take(call(code=f"c{number}", outcome="fault", took_s=1.0) for number in range(MAX_SETS + 3))
    rows = tally.histograms[SERVER_OPERATION]
    assert (len(rows), tally.cut > 0) == (MAX_SETS + 1, True)
    assert sum(rows[(OTHER,) * 6].counts) == 5


def test_figures_go_with_their_deck() -> None:
    """Each command line of `run` is a deck: after some thousands, all figures would be cut."""
    tally = Tally()
    tally.take([call(), call(deck="gone"), ServerChanged("gone", "fs", "connecting", 0)])
    tally.keep({"d"})
    assert {labels[0] for rows in tally.histograms.values() for labels in rows} == {"d"}
    assert {labels[0] for rows in tally.counters.values() for labels in rows} == {"d"}


def test_every_family_has_a_name_of_its_own_and_words() -> None:
    """Prometheus refuses a whole scrape for a name that is there twice."""
    families = [value for value in vars(module).values() if isinstance(value, module.Family)]
    assert len({family.name for family in families}) == len(families) > 8
    assert all(family.help.endswith(".") for family in families)
