"""An order as bytes: what no kernel takes is refused.  What arrives at the gate is tried with the gate."""

from typing import Any

import pytest
from support.sandbox.gates import order

from quarterdeck_sandbox.gate.order import MAX_BYTES


@pytest.mark.parametrize(
    "changes",
    [
        {"cwd": "a\0b"},
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
        order("/bin/true", **changes)
