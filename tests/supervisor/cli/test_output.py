"""Tables and JSON."""

import json

import msgspec
import pytest

from quarterdeck.cli.output import Cell, lay_out, print_json, print_line, print_table


def lines(*rows: tuple[str, ...], width: int | None = None) -> list[str]:
    table = lay_out(["NAME", "WHAT"], [[Cell(text) for text in row] for row in rows], width=width)
    return ["".join(cell.text for cell in line) for line in table]


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    """Wide characters would push the next column aside."""
    assert lines(("a", "x"), ("日本", "y")) == ["NAME  WHAT", "a     x", "日本  y"]


def test_the_last_column_is_cut_at_the_edge_only_on_a_terminal() -> None:
    """A terminal would wrap a table into noise; a pipe would lose text."""
    long = "word " * 10
    assert lines(("a", long), width=20)[1] == "a     word word wor…"
    assert lines(("a", long))[1] == "a     " + long


def test_a_narrow_terminal_still_shows_something() -> None:
    """A width below the other columns' would be no width at all."""
    assert lines(("a" * 30, "something longer"), width=10)[1] == "a" * 30 + "  " + "somethi…"


def test_a_table_is_plain_where_a_program_reads_along(capsys: pytest.CaptureFixture[str]) -> None:
    """`quarterdeck ps | grep` would meet escape sequences and cut lines."""
    print_table(["NAME", "WHAT"], [[Cell("a", "red"), Cell("b" * 300)]], indent="  ")
    assert capsys.readouterr().out == "  NAME  WHAT\n  a     " + "b" * 300 + "\n"


def test_markup_in_a_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A server's text in brackets would vanish or restyle the line."""
    print_line("[red]hello[/] :smile: " + "word " * 40)
    assert capsys.readouterr().out == "[red]hello[/] :smile: " + "word " * 40 + "\n"


def test_json_is_one_line_and_raw_parts_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts would have to guess where a document ends."""
    print_json({"result": msgspec.Raw(b'{"a": 1.0}'), "text": "é\x7f"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert '{"a": 1.0}' in out
    assert json.loads(out) == {"result": {"a": 1.0}, "text": "é\x7f"}
