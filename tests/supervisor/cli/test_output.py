"""Lines, paragraphs, tables and JSON: on a terminal, and where a program reads along."""

import io
import json
from typing import Final

import msgspec
import pytest

from quarterdeck.cli.output import (
    Cell,
    Column,
    is_confirmed,
    print_json,
    print_line,
    print_paragraph,
    print_table,
    show,
    waiting_for,
)

HOSTILE: Final = "[bold red]a[/] [link=http://x]b[/link] :smile: \x1b]0;t\x07\x1b[2J\x9b1m\r\x08 日本 e\u0301 \u202ec"
"""Rich's markup, a link and an emoji's name; orders to a terminal; wide, combining and turning characters."""

_ESCAPED: Final = r"[bold red]a[/] [link=http://x]b[/link] :smile: \x1b]0;t\x07\x1b[2J\x9b1m\x0d\x08 日本 {} \u202ec"

SAFE: Final = _ESCAPED.replace("{}", "e\u0301")
"""The same as it may be shown."""


NAME: Final = "\x1b[1mNAME\x1b[0m"
WHAT: Final = "\x1b[1mWHAT\x1b[0m"
"""The headers of `table`, in bold."""


class Terminal(io.StringIO):
    """Keeps what a terminal would be sent."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Terminal:
    """A terminal of 40 columns and 16 colours as stdout and stderr, unless the variables say otherwise."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm", "COLUMNS": "40"} | variables).items():
        monkeypatch.setenv(name, value)
    made = Terminal()
    monkeypatch.setattr("sys.stdout", made)
    monkeypatch.setattr("sys.stderr", made)
    return made


def table(*rows: tuple[str, ...], is_cut: bool = False) -> None:
    print_table(["NAME", "WHAT"], [[Cell(text) for text in row] for row in rows], is_cut=is_cut)


ROWS = [
    {"name": "a", "count": 3, "where": ["x", "y"], "is_on": True, "extra": 1},
    {"name": "b", "count": None, "where": [], "is_on": False, "extra": None},
]
COLUMNS = (
    Column("NAME", lambda row: Cell(row["name"] * 2)),
    Column("COUNT", "count", empty="none", form="{:02}".format),
    Column("WHERE", "where"),
    Column("ON", "is_on"),
)


def test_rows_are_columns_for_people_and_whole_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """A program would get what fits a screen, or a person what only a program needs."""
    show(ROWS, COLUMNS)
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [[word.strip() for word in line if word.strip()] for line in lines] == [
        ["aa", "03", "x, y", "yes"],
        ["bb", "none", "-", "-"],
    ]
    show(ROWS, COLUMNS, json=True)
    assert json.loads(capsys.readouterr().out) == ROWS
    show([], COLUMNS, json=True, document={"rows": []}, none="there are none")
    show([], COLUMNS, none="there are none")
    assert capsys.readouterr() == ('{"rows":[]}\n', "there are none\n")


def test_columns_are_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """Wide and combining characters would push the next column aside."""
    table(("a", "x"), ("日本", "y"), ("e\u0301", "z"))
    assert capsys.readouterr().out.splitlines() == ["NAME  WHAT", "a     x", "日本  y", "e\u0301     z"]


def test_a_table_is_plain_and_whole_where_a_program_reads_along(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`quarterdeck ps | grep` would meet escape sequences, blanks at each end, and cut or broken lines."""
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["NAME", "WHAT"], [[Cell("a", "red"), Cell("b " * 300 + "b")], [Cell(""), Cell("c")]], indent="  ")
    assert capsys.readouterr().out == "  NAME  WHAT\n  a     " + "b " * 300 + "b\n        c\n"


def test_what_is_too_wide_for_the_terminal_is_wrapped_or_cut_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal would break rows into noise, or one description push all others off the screen."""
    terminal = terminal_for(monkeypatch)
    table(("a-name", "some words " * 5))
    lines = terminal.getvalue().splitlines()
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 40 for line in lines)
    assert [line[:8] for line in lines[1:]] == ["a-name  ", "        "]
    assert " ".join(" ".join(lines[1:]).split()) == "a-name " + "some words " * 4 + "some words"
    terminal = terminal_for(monkeypatch)
    table(("a", "word " * 20), ("b", "short"), is_cut=True)
    assert terminal.getvalue().splitlines()[1:] == ["a     word word word word word word wor…", "b     short"]


def test_neither_an_id_nor_a_word_of_a_table_is_broken_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could be neither read nor copied."""
    terminal = terminal_for(monkeypatch)
    table(("an-id-of-25-letters-------", "/a/path/" * 9))
    table(("an-id-of-30-letters-----------", "words " * 9))
    table(("an-id-of-30-letters-----------", "words " * 9), is_cut=True)
    assert terminal.getvalue().splitlines()[1:] == [
        *("an-id-of-25-letters-------  /a/path//a/", *(f"{' ' * 28}{each}" for each in (*("path//a/",) * 7, "path/"))),
        *(f"{NAME}{' ' * 26}  {WHAT}", "an-id-of-30-letters-----------  " + ("words " * 9).rstrip()),
        *(f"{NAME}{' ' * 26}  {WHAT}", "an-id-of-30-letters-----------  words wor…"),
    ]
    terminal = terminal_for(monkeypatch, COLUMNS="44")
    long = "interoperability of characterisation"
    print_table(["A", "B", "C"], [[Cell("some words here"), Cell(long), Cell("/a/path/that-is/long/")]])
    lines = [line.split() for line in terminal.getvalue().splitlines()[1:]]
    shown = [word for line in lines for word in line]
    assert {"some", "words", "here", "interoperability", "of", "characterisation"} <= set(shown)
    assert "".join(word for word in shown if "/" in word) == "/a/path/that-is/long/"
    assert all(word.endswith("/") for word in shown if "/" in word)


def test_a_line_is_broken_at_blanks_alone_and_a_command_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word broken in its middle cannot be read, and half of a path or a command cannot be copied."""
    terminal = terminal_for(monkeypatch)
    path = "/home/me/" + "folder/" * 6
    print_line(f"error[x]: it names {path} which is hidden, and more words follow")
    print_line(f"  fix: quarterdeck allow fs --read {path}")
    print_line("write one of them (`quarterdeck config path` lists them) or name one")
    print_line("日本語 " * 8)
    print_line("short `and whole`")
    print_line("what another program wrote is sent as it is, whole", wraps=False)
    assert [line.rstrip() for line in terminal.getvalue().splitlines()] == [
        *("error[x]: it names", f"  {path}", "  which is hidden, and more words follow"),
        *("  fix:", f"    quarterdeck allow fs --read {path}"),
        *("write one of them", "  (`quarterdeck config path` lists them)", "  or name one"),
        *("日本語 日本語 日本語 日本語 日本語", "  日本語 日本語 日本語"),
        "short `and whole`",
        "what another program wrote is sent as it is, whole",
    ]


def test_nothing_that_a_server_says_is_markup_or_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """A server could restyle our words, hide its own, retitle the window, or write over the line above."""
    print_line(HOSTILE)
    print_line(HOSTILE, "red", stderr=True)
    print_paragraph(HOSTILE, lead=Cell(HOSTILE))
    print_table([HOSTILE], [[Cell(HOSTILE, "red")]])
    told = capsys.readouterr()
    assert told.out.splitlines() == [SAFE, SAFE + SAFE, SAFE, SAFE]
    assert told.err == SAFE + "\n"


def test_nothing_is_markup_on_a_terminal_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markup is read where styles are shown, so there it would be."""
    terminal = terminal_for(monkeypatch, COLUMNS="200")
    print_line(HOSTILE, "red")
    print_paragraph(HOSTILE, "red")
    print_table([HOSTILE], [[Cell(HOSTILE, "red")]])
    red = f"\x1b[31m{SAFE}\x1b[0m"
    assert terminal.getvalue().splitlines() == [red, red, f"\x1b[1m{SAFE}\x1b[0m", red]


def test_a_paragraph_is_wrapped_beside_its_lead_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings would run into each other on a terminal; `grep` would find half of one in a pipe."""
    terminal = terminal_for(monkeypatch)
    print_paragraph("word " * 9 + "word", lead=Cell("- "))
    assert [line.rstrip() for line in terminal.getvalue().splitlines()] == [
        "- word word word word word word word",
        "  word word word",
    ]
    plain = io.StringIO()
    monkeypatch.setattr("sys.stdout", plain)
    print_paragraph("word " * 40, lead=Cell("- ", "red"))
    assert plain.getvalue() == "- " + "word " * 40 + "\n"


@pytest.mark.parametrize(
    ("variables", "shown"),
    [({}, "\x1b[1;31mx\x1b[0m\n"), ({"NO_COLOR": "1"}, "\x1b[1mx\x1b[0m\n"), ({"TERM": "dumb"}, "x\n")],
)
def test_a_terminal_is_sent_the_styles_that_its_user_wants(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], shown: str
) -> None:
    """Colours that cannot be seen against a background could not be turned off."""
    terminal = terminal_for(monkeypatch, **variables)
    print_line("x", "bold red")
    assert terminal.getvalue() == shown


def test_a_program_can_ask_for_colours_and_has_its_text_whole_with_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log of a CI run would be grey, or its tables cut at a width that nothing has."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["NAME"], [[Cell("b" * 300, "red")], [Cell("c")]])
    print_paragraph("word " * 40, "red")
    assert capsys.readouterr().out == (
        "\x1b[1mNAME\x1b[0m\n\x1b[31m" + "b" * 300 + "\x1b[0m\nc\n\x1b[31m" + "word " * 40 + "\x1b[0m\n"
    )


def test_what_is_waited_for_is_seen_on_a_terminal_alone_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of a minute would look as if it hung, a pipe lose its output, or a log fill with it."""
    terminal = terminal_for(monkeypatch)
    with waiting_for("the first") as show:
        show("[bold]the \x1b[2Jsecond[/] " + "word " * 9)
    shown = terminal.getvalue()
    assert r"[bold]the \x1b[2Jsecond[/] word word …" in shown
    assert shown.endswith("\x1b[0m\n\r\x1b[1A\x1b[2K")
    assert "\x1b[?25l" not in shown
    terminal, pipe = terminal_for(monkeypatch), io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    with waiting_for("it"):
        print_line("said")
    assert pipe.getvalue() == "said\n"
    assert "said" not in terminal.getvalue()
    terminal = terminal_for(monkeypatch, TERM="dumb")
    with waiting_for("it") as show:
        show("more of it")
    assert terminal.getvalue() == ""


def test_what_ends_is_said_above_the_rows_of_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of several packages would be written over what became of one, or over itself."""
    terminal = terminal_for(monkeypatch)
    with waiting_for("sealing") as show:
        show("sealing", "a  fetching", "b  waiting")
        print_line("a is sealed", "dim", stderr=True)
    before, after = terminal.getvalue().split("\x1b[2ma is sealed\x1b[0m\n")
    assert before.endswith("\x1b[2K")  # what was there is gone
    assert "sealing\x1b[0m\n\x1b[2ma  fetching\x1b[0m\n\x1b[2mb  waiting\x1b[0m" in after


def test_json_is_one_line_and_raw_parts_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts would have to guess where a document ends."""
    print_json({"result": msgspec.Raw(b'{"a": 1.0}'), "text": "é\x7f"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert '{"a": 1.0}' in out
    assert json.loads(out) == {"result": {"a": 1.0}, "text": "é\x7f"}


def test_a_question_cannot_write_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a server's name in it could show another question than the one that is answered."""
    terminal, typed = terminal_for(monkeypatch), Terminal("y\n")
    monkeypatch.setattr("sys.stdin", typed)
    assert is_confirmed(f"take {HOSTILE} out of it?")
    assert f"take {SAFE} out of it?" in terminal.getvalue()
