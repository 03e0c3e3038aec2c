"""Parts of a text that others take the place of."""

import pytest

from quarterdeck.tools.editing.encoded_text import UnifiedText
from quarterdeck.tools.editing.replacements import Replacement, replace_parts


@pytest.mark.parametrize(
    ("raw", "replacement", "after"),
    [
        ("a\nb\nc", Replacement(2, 3, "x\ny"), "a\nx\ny\nc"),
        ("a\r\nb\r\nc", Replacement(2, 3, "x\ny"), "a\r\nx\r\ny\r\nc"),
        ("a\rb\rc", Replacement(2, 3, "x\ny"), "a\rx\ry\rc"),
        ("a\nb\r\nc", Replacement(0, 1, "x\ny"), "x\ny\nb\r\nc"),
        ("a\nb\r\nc", Replacement(2, 3, "x\ny"), "a\nx\r\ny\r\nc"),
        ("a\r\nb", Replacement(1, 2, ""), "ab"),
        ("ab", Replacement(1, 1, "x\ny"), "ax\nyb"),
    ],
)
def test_what_is_new_takes_the_line_ends_of_its_place(raw: str, replacement: Replacement, after: str) -> None:
    """An edit would leave a file with mixed line ends."""
    assert replace_parts(UnifiedText(raw), [replacement]) == after


def test_what_is_between_the_parts_stays_as_it_is() -> None:
    """An edit would change lines that it was not asked to."""
    unified = UnifiedText("a\r\nb\nc\rd\r\n")
    assert replace_parts(unified, [Replacement(0, 1, "A"), Replacement(6, 7, "D")]) == "A\r\nb\nc\rD\r\n"
    assert replace_parts(unified, []) == unified.raw
