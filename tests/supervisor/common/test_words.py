"""Numbers, sizes, times and untrusted text in words."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.common.words import clipped, counted, duration, flat, one_line, printable, printable_json, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nwith é 😀", "plain\ttext\nwith é 😀"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("over\rwritten", "over\\x0dwritten"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\ud800", "\\ud800"),
        ("\0", "\\x00"),
    ],
)
def test_a_server_cannot_write_to_the_terminal_itself(text: str, shown: str) -> None:
    """A hostile description could clear the screen, fake a prompt or retitle the window."""
    assert printable(text) == shown


@given(st.text())
def test_nothing_printable_is_a_control(text: str) -> None:
    """One forgotten character would be enough."""
    shown = printable(text)
    assert all(unicodedata.category(character) != "Cc" or character in "\n\t" for character in shown)
    shown.encode()
    assert printable(shown) == shown


@given(st.text())
def test_json_means_the_same_when_it_is_made_printable(text: str) -> None:
    """A script would read another value than the server sent."""
    encoded = json.dumps({"a": text}, ensure_ascii=False)
    assert json.loads(printable_json(encoded)) == {"a": text}
    assert not any("\x7f" <= character <= "\x9f" for character in printable_json(encoded))


def test_words_for_a_line_are_short_counted_and_on_it() -> None:
    """A table row would run over many lines, be forged by a tool's name, or read `1 events`."""
    assert one_line("\n  Reads a file.  \n\nIn detail: …") == "Reads a file."
    assert one_line("") == ""
    assert [counted(number, "event") for number in (0, 1, 2, 2000)] == [
        "0 events",
        "1 event",
        "2 events",
        "2,000 events",
    ]
    assert counted(2, "entry", "entries") == "2 entries"
    assert flat("a\nb\tc\x1b[2Jd\r") == "a\\nb\\tc\\x1b[2Jd\\x0d"
    assert clipped("abc", 3) == "abc"
    assert clipped("abcd", 3) == "abc…"
    assert printable_json('"a\u202eb\U000e0041"') == '"a\\u202eb\\udb40\\udc41"'


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (13_000_000, "12.4 MiB"), (2**30, "1.0 GiB"), (2**42, "4.0 TiB")],
)
def test_sizes_are_readable(count: int, shown: str) -> None:
    """People would count digits."""
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0041, "4 ms"),
        (1, "1.0 s"),
        (42.9, "42 s"),
        (192, "3 m 12 s"),
        (5 * 3600 + 4 * 60, "5 h 04 m"),
        (2 * 86_400 + 3 * 3600, "2 d 3 h"),
    ],
)
def test_times_are_readable(seconds: float, shown: str) -> None:
    """People would divide by 86,400."""
    assert duration(seconds) == shown


ORDERS = (
    "::error file=x::forged",
    "  ::set-output name=a::b",
    "\t::add-mask::x",
    "a ##vso[task.setvariable]x",
    "##[error]x",
)


@pytest.mark.parametrize("order", [*ORDERS, *(f"first\n{order}" for order in ORDERS), "##teamcity[testFailed]"])
def test_no_text_orders_continuous_integration_about(order: str) -> None:
    """A server's description would fail a job or set its variables; GitHub trims lines before it looks."""
    for shown in (printable(order), flat(order)):
        assert not re.search(r"^\s*::\w|##\w*\[", shown, re.MULTILINE), shown
    encoded = json.dumps({"a": order})
    assert json.loads(printable_json(encoded)) == {"a": order}
    assert not re.search(r"##\w*\[", printable_json(encoded))


@pytest.mark.parametrize(
    "text", ["std::vector<int>", "a :: b", "::", "## Heading\n\n[link]", "#[derive(Debug)]", "::1"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """Code, addresses and headings in a tool's answer would be spoiled."""
    assert printable(text) == text
