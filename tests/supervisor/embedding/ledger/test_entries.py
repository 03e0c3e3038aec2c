"""What is live, as the fold of what happened."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.embedding.ledger.capability import BridgeCapability
from quarterdeck.embedding.ledger.entries import BridgeEntry, BridgeLedger, BridgeOp, EnrollRequest, reduce_ledger
from quarterdeck.ledger.events.keys import BridgeKey, bridge_content_key
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome

AT = "2026-01-02T03:04:05.678Z"


class Nobody:
    """A runner that is never asked."""

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run nothing."""
        raise AssertionError(call)


NOBODY = Nobody()


def tool(name: str, **parameters: object) -> BridgeCapability:
    return BridgeCapability(ToolDescriptor(name, "", parameters), NOBODY)


def request(server: str, name: str, **parameters: object) -> EnrollRequest:
    return EnrollRequest(tool(f"{server}__{name}", **parameters), server)


def names(ledger: BridgeLedger) -> list[str]:
    return [capability.name for capability in ledger.live_capabilities()]


def test_nothing_has_happened_at_first() -> None:
    """The first event of a session would be lost."""
    empty = BridgeLedger.empty()
    assert (empty.log, empty.next_seq, empty.snapshot.high_water, names(empty)) == ((), 1, 0, [])


def test_an_enrolment_is_an_event_and_changes_no_earlier_ledger() -> None:
    """Who holds yesterday's ledger would see today's tools."""
    empty = BridgeLedger.empty()
    ledger = empty.enroll(request("fs", "read"), AT)
    [entry] = ledger.log
    assert (entry.op, entry.server, entry.seq, entry.at) == (BridgeOp.ENROLL, "fs", 1, AT)
    assert entry.key == bridge_content_key("fs", "read", {})
    assert (names(empty), names(ledger), ledger.next_seq) == ([], ["fs__read"], 2)
    assert dict(ledger.snapshot.by_server) == {"fs": 1}


def test_the_same_tool_again_keeps_its_place() -> None:
    """A deck would be reshuffled at every reconnect."""
    ledger = BridgeLedger.empty().enroll_all([request("fs", "a"), request("fs", "b"), request("fs", "a")], AT)
    assert names(ledger) == ["fs__a", "fs__b"]
    assert len(ledger.log) == 3


def test_a_changed_tool_is_another_one() -> None:
    """A new schema would slip in under an old key."""
    ledger = BridgeLedger.empty().enroll_all([request("fs", "a"), request("fs", "a", type="object")], AT)
    assert names(ledger) == ["fs__a", "fs__a"]


def test_what_is_retired_and_enrolled_again_goes_to_the_end() -> None:
    """The order would depend on what nobody can see any more."""
    ledger = BridgeLedger.empty().enroll_all([request("fs", "a"), request("fs", "b")], AT)
    ledger = ledger.retire(bridge_content_key("fs", "a", {}), "fs", AT).enroll(request("fs", "a"), AT)
    assert names(ledger) == ["fs__b", "fs__a"]


def test_retiring_what_is_not_there_is_kept_and_harmless() -> None:
    """An audit would miss that somebody tried."""
    ledger = BridgeLedger.empty().retire(BridgeKey("bk_none"), "fs", AT)
    assert (len(ledger.log), names(ledger), ledger.next_seq) == (1, [], 2)


def test_a_server_is_withdrawn_whole_and_alone() -> None:
    """A server that left would go on offering tools, or take its neighbour's along."""
    ledger = BridgeLedger.empty().enroll_all([request("fs", "a"), request("git", "a"), request("fs", "b")], AT)
    left = ledger.withdraw_server("fs", AT)
    assert names(left) == ["git__a"]
    assert [entry.op for entry in left.log[3:]] == [BridgeOp.RETIRE] * 2
    assert left.live_capabilities_for_server("fs") == []
    assert [each.name for each in left.live_capabilities_for_server("git")] == ["git__a"]
    assert left.withdraw_server("fs", AT) is left


def test_who_owns_a_tool_is_what_its_last_event_says() -> None:
    """Tools would stay behind when their server leaves."""
    key = BridgeKey("bk_mine")
    ledger = BridgeLedger.empty().enroll(EnrollRequest(tool("a__x"), "a", key), AT)
    ledger = ledger.enroll(EnrollRequest(tool("a__x"), "b", key), AT)
    assert dict(ledger.snapshot.by_server) == {"b": 1}
    assert names(ledger.withdraw_server("a", AT)) == ["a__x"]
    assert names(ledger.withdraw_server("b", AT)) == []


def test_a_kept_log_goes_on_where_it_ended() -> None:
    """Events after a restart would be numbered like earlier ones."""
    ledger = BridgeLedger.empty().enroll_all([request("fs", "a"), request("fs", "b")], AT)
    again = BridgeLedger.from_log(reversed(ledger.log))
    assert (names(again), again.next_seq) == (["fs__a", "fs__b"], 3)


def test_of_two_events_with_one_number_the_later_in_the_log_wins() -> None:
    """A damaged log would fold differently at each start."""
    entry = BridgeLedger.empty().enroll(request("fs", "a"), AT).log[0]
    retire = replace(entry, op=BridgeOp.RETIRE, capability=None)
    assert not reduce_ledger([entry, retire]).live
    assert reduce_ledger([retire, entry]).live


def test_an_enrolment_of_nothing_counts_as_an_event_only() -> None:
    """One damaged event would end every fold."""
    entry = replace(BridgeLedger.empty().enroll(request("fs", "a"), AT).log[0], capability=None, seq=9)
    snapshot = reduce_ledger([entry])
    assert (dict(snapshot.live), snapshot.high_water) == ({}, 9)


EVENTS = st.lists(st.tuples(st.sampled_from(BridgeOp), st.sampled_from("abc"), st.sampled_from("xyz")), max_size=30)


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_fold_is_that_of_a_naive_model_in_any_order(
    events: list[tuple[BridgeOp, str, str]], shuffler: random.Random
) -> None:
    """What is live would depend on how a log was read."""
    log: list[BridgeEntry] = []
    model: list[tuple[str, str]] = []
    for seq, (op, server, name) in enumerate(events, 1):
        key = BridgeKey(f"bk_{name}")
        place = next((index for index, (known, _) in enumerate(model) if known == key), None)
        if op is BridgeOp.ENROLL:
            log.append(BridgeEntry(op, key, server, tool(f"{server}__{name}"), seq, AT))
            if place is None:
                model.append((key, server))
            else:
                model[place] = (key, server)
        else:
            log.append(BridgeEntry(op, key, server, None, seq, AT))
            if place is not None:
                del model[place]
    shuffler.shuffle(log)
    snapshot = reduce_ledger(log)
    assert list(snapshot.owners.items()) == model
    assert list(snapshot.live) == [key for key, _ in model]
    assert sum(snapshot.by_server.values()) == len(model)
    assert snapshot.high_water == len(events)
