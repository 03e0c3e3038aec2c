"""The ledger of values: its fold in any order, its keys, and server tools as cards."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools.contexts import inert_context
from ulid import ULID

from quarterdeck.ledger import values
from quarterdeck.ledger.events.events import BridgeKey
from quarterdeck.ledger.values import (
    BridgeCapability,
    BridgeEntry,
    BridgeLedger,
    BridgeOp,
    EnrollRequest,
    bridge_box_to_capabilities,
    bridge_content_key,
    bridge_ulid_key,
    reduce_ledger,
    server_of_qualified,
)
from quarterdeck.tools.results import TextContentBlock
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome, WireResult

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


def test_an_enrolment_is_an_event_and_changes_no_earlier_ledger() -> None:
    """Who holds yesterday's ledger would see today's tools."""
    empty = BridgeLedger.empty()
    ledger = empty.enroll(request("fs", "read"), AT)
    [entry] = ledger.log
    assert (entry.op, entry.server, entry.seq, entry.at) == (BridgeOp.ENROLL, "fs", 1, AT)
    assert entry.key == bridge_content_key("fs", "read", {})
    assert (names(empty), names(ledger), ledger.next_seq) == ([], ["fs__read"], 2)
    assert dict(ledger.snapshot.by_server) == {"fs": 1}


def test_a_tool_that_is_enrolled_again_keeps_its_place_unless_it_was_retired() -> None:
    ledger = BridgeLedger.empty().enroll_all([request("fs", "a"), request("fs", "b"), request("fs", "a")], AT)
    assert (names(ledger), len(ledger.log)) == (["fs__a", "fs__b"], 3)
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def reversed_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: reversed_keys(child) for key, child in reversed(value.items())}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_order_of_keys_makes_no_other_tool(schema: dict[str, object]) -> None:
    """A server that lists its parameters in another order would offer a new tool at every start."""
    again = reversed_keys(schema)
    assert isinstance(again, dict)
    assert bridge_content_key("fs", "read", schema) == bridge_content_key("fs", "read", again)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("fs", "read", {}), ("fs", "read", None)),
        (("fs", "read", {}), ("fs", "write", {})),
        (("fs", "read", {}), ("fs2", "read", {})),
        (("fs", "read", {"enum": [1, 2]}), ("fs", "read", {"enum": [2, 1]})),
        (("fs", "read", {"default": None}), ("fs", "read", {})),
    ],
)
def test_what_is_another_tool_has_another_key(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    """A changed tool would pass for the one that was enrolled."""
    assert bridge_content_key(*one) != bridge_content_key(*other)  # type: ignore[arg-type]


def test_a_key_is_the_same_on_every_machine() -> None:
    """A kept ledger would enrol everything anew after an update."""
    assert bridge_content_key("fs", "read", {}) == "bk_c0efc688c39f5f055c8fadc3d0fae2e0"


@pytest.mark.parametrize("text", ["\ud800", "é", "\x00"])
def test_any_text_has_a_key(text: str) -> None:
    """One strange schema would sink its server."""
    assert len(bridge_content_key("fs", "read", {"title": text})) == 35


def test_a_deep_schema_has_a_key() -> None:
    """A server could end us by nesting."""
    deep: dict[str, object] = {}
    for _ in range(10_000):
        deep = {"items": deep}
    assert bridge_content_key("fs", "read", deep).startswith("bk_")


@pytest.mark.parametrize(
    ("name", "server"), [("fs__read", "fs"), ("fs__a__b", "fs"), ("read", ""), ("__read", ""), ("", "")]
)
def test_the_server_is_what_stands_before_the_first_qualifier(name: str, server: str) -> None:
    """A tool would be withdrawn with another server's."""
    assert server_of_qualified(name) == server


def test_every_event_can_have_a_key_of_its_own() -> None:
    """Two enrolments within a millisecond would be one."""
    minted = [bridge_ulid_key() for _ in range(1000)]
    assert minted == sorted(set(minted))
    assert all(len(key) == 29 for key in minted)


def test_keys_rise_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events would sort before those that they follow."""
    before = bridge_ulid_key()
    monkeypatch.setattr(values, "_now", lambda: ULID.from_int(1))
    assert bridge_ulid_key() > before


DESCRIPTOR = ToolDescriptor("fs__read", "Reads.", {"type": "object"}, b'{"name": "read"}')


class Box:
    """One tool, which answers what it is told to."""

    def __init__(self, output: object = None, *, is_error: bool = False, wire: WireResult | None = None) -> None:
        self.outcome = ToolOutcome("1", output, is_error, wire)
        self.calls: list[tuple[ToolCall, CancelToken]] = []

    def descriptors(self) -> tuple[ToolDescriptor, ...]:
        """The one."""
        return (DESCRIPTOR,)

    @property
    def runner(self) -> "Box":
        """The box itself."""
        return self

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Answer."""
        self.calls.append((call, cancel))
        return self.outcome


def capability(box: Box) -> BridgeCapability:
    [only] = bridge_box_to_capabilities(box)
    return only


def test_a_grafted_tool_looks_like_any_card() -> None:
    """A deck could not hold native and grafted tools side by side."""
    card = capability(Box())
    assert (card.name, card.label, card.description) == ("fs__read", "fs__read", "Reads.")
    assert (card.parameters, card.read_only, card.hints) == ({"type": "object"}, False, None)
    assert card.definition == DESCRIPTOR.definition


async def test_a_call_goes_to_its_box_under_the_qualified_name_with_all_that_belongs_to_it() -> None:
    """A call would reach no server, could not be stopped, or would be silent on its way."""
    box, context = Box("hello"), inert_context()
    token, notes = CancelToken(), []
    call = ToolCall("9", "fs__read", {"path": "x"}, notes.append)
    await capability(box).run({"path": "x"}, context.with_cancel(token, call.report))
    [(made, cancel)] = box.calls
    assert (made.name, made.input, made.report, cancel) == ("fs__read", {"path": "x"}, notes.append, token)


@pytest.mark.parametrize(
    ("output", "text"),
    [("as it is", "as it is"), (None, ""), ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}'), ("", ""), ("é", "é"), (5, "5")],
)
async def test_an_answer_is_one_text(output: object, text: str) -> None:
    """A model would be shown a Python repr, or nothing."""
    result = await capability(Box(output)).run({}, inert_context())
    assert result.content == (TextContentBlock(text),)


async def test_a_structure_goes_along_under_its_schema() -> None:
    """A native tool of another box would promise what its results lack, or the other way round."""
    box, schema = Box(), {"type": "object", "properties": {"n": {"type": "integer"}}}
    box.outcome = ToolOutcome("1", "a", structured={"n": 1})
    descriptor = replace(DESCRIPTOR, definition=None, output_schema=schema)
    card = BridgeCapability(descriptor, box.runner)
    assert card.output_schema == schema
    assert (await card.run({}, inert_context())).structured == {"n": 1}


async def test_an_error_stays_one_and_the_servers_own_form_goes_along() -> None:
    """A failure would look like a success, and an image like text."""
    wire = WireResult(b"{}", "2025-11-25", is_error=True)
    result = await capability(Box("no", is_error=True, wire=wire)).run({}, inert_context())
    assert result.is_error
    assert result.wire is wire
