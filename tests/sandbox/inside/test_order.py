"""An order as bytes: what goes in comes out, and what no kernel takes is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sandbox.gates import order

from quarterdeck_sandbox.inside.order import MAX_BYTES, decode, decode_closing, encode, encode_closing

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20) | st.just("\udcff")
NAMES = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1, max_size=20)
PATHS = st.lists(TEXTS, max_size=3)
WHOLE = st.integers(-(2**63), 2**63 - 1)
PAIRS = st.tuples(WHOLE, WHOLE)
LISTENERS = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))

LANDLOCK = st.fixed_dictionaries({"read": PATHS, "write": PATHS, "devices": PATHS, "deny_tcp": st.booleans()})

ORDERS = st.fixed_dictionaries(
    {
        "program": TEXTS,
        "argv": st.lists(TEXTS, min_size=1, max_size=3),
        "env": st.dictionaries(NAMES, TEXTS, max_size=3),
        "cwd": TEXTS,
        "open_files": st.integers(0, 2**62),
        "rlimits": st.lists(PAIRS, max_size=3),
        "identity": st.none() | PAIRS,
        "listen": st.lists(LISTENERS, max_size=3),
        "confine": st.none()
        | st.fixed_dictionaries(
            {
                "landlock": st.none() | LANDLOCK,
                "seccomp": st.integers(0, 3).flatmap(lambda count: st.binary(min_size=8 * count, max_size=8 * count)),
                "own": PATHS,
            }
        ),
        "set_apart": st.booleans(),
        "oom_score": st.none() | st.integers(-1000, 1000),
        "probes": st.fixed_dictionaries(
            {"owner": WHOLE, "secrets": PATHS, "fixed": PATHS, "rlimits": st.lists(WHOLE, max_size=3)}
        ),
    }
)


@given(ORDERS)
def test_what_is_ordered_is_what_arrives(ordered: dict[str, Any]) -> None:
    """A server would be started with other limits, paths or words than its policy has."""
    assert decode(encode(ordered)) == ordered


CLOSINGS = st.fixed_dictionaries(
    {
        "argv": st.lists(TEXTS, min_size=1, max_size=3),
        "open": st.none() | PATHS,
        "steps": st.lists(st.tuples(TEXTS, st.booleans()), max_size=5),
        "oom_score": st.none() | st.integers(-1000, 1000),
    }
)


@given(CLOSINGS)
def test_what_is_to_be_closed_is_closed_in_its_order(closing: dict[str, Any]) -> None:
    """A part would stay open, or be closed before the folder that it lies in."""
    assert decode_closing(encode_closing(closing)) == closing


@given(st.binary(max_size=60))
def test_bytes_that_are_no_order_are_a_value_error_and_nothing_else(data: bytes) -> None:
    """A gate would end with a traceback on a server's stderr."""
    for read in (decode, decode_closing):
        with pytest.raises(ValueError, match=r"^no "):
            read(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ["a\0b"]},
        {"env": {"A=B": "1"}},
        {"env": {"": "1"}},
        {"env": {"A": "\0"}},
        {"cwd": "/\ud800"},
        {"env": {"A": "x" * MAX_BYTES}},
        {"listen": [("127.0.0.1", 1)] * 1025},
    ],
    ids=["zero byte", "name with =", "no name", "zero byte in a value", "no characters", "too large", "too many ports"],
)
def test_what_cannot_be_said_to_the_kernel_is_refused(changes: dict[str, Any]) -> None:
    """A word would be cut off, or a variable would be another one."""
    with pytest.raises(ValueError):
        encode(order("/bin/true", **changes))
