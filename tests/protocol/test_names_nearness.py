"""Which name a mistyped one is near to."""

import pytest

from quarterdeck_protocol.names import nearest, nearest_tool

TOOLS = ["full__save_note", "full__read_notes", "other__list", "read", "write"]


@pytest.mark.parametrize(
    ("name", "near"),
    [("raed", "read"), ("Read", "read"), ("writ", "write"), ("rad", "read"), ("delete", None), ("", None)],
)
def test_a_slip_or_two_of_typing_is_near_and_another_word_is_not(name: str, near: str | None) -> None:
    """Somebody would be sent to a tool that does something else."""
    assert nearest(name, ["read", "write"]) == near


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("full__nope", None),
        ("full__save_nte", "full__save_note"),
        ("ful__save_note", "full__save_note"),
        ("elsewhere__list", "other__list"),
        ("save_note", "full__save_note"),
        ("raed", "read"),
        ("full__", None),
        ("nobody__nothing", None),
    ],
)
def test_of_a_tools_name_either_half_may_be_wrong(name: str, near: str | None) -> None:
    """A server's id in front would make every tool of it look alike."""
    assert nearest_tool(name, TOOLS) == near


def test_a_long_name_and_many_known_ones_take_no_time_to_speak_of() -> None:
    """A caller could hold up everybody by asking for what is not there."""
    assert nearest("x" * 100_000, (f"tool{number}" for number in range(1_000_000))) is None
