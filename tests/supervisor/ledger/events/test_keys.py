"""What makes two enrolments the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from quarterdeck.ledger.events import keys
from quarterdeck.ledger.events.keys import bridge_content_key, bridge_ulid_key, qualify_bridge_name, server_of_qualified

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


def test_a_name_is_qualified_by_two_underscores() -> None:
    """The deck and the bridge would speak of different tools."""
    assert qualify_bridge_name("fs", "read") == "fs__read"


def test_every_event_can_have_a_key_of_its_own() -> None:
    """Two enrolments within a millisecond would be one."""
    minted = [bridge_ulid_key() for _ in range(1000)]
    assert minted == sorted(set(minted))
    assert all(len(key) == 29 for key in minted)


def test_keys_rise_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events would sort before those that they follow."""
    before = bridge_ulid_key()
    monkeypatch.setattr(keys, "_now", lambda: ULID.from_int(1))
    assert bridge_ulid_key() > before
