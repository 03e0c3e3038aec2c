"""Tables and JSON, and log lines: rendered for people or programs, without secrets."""

import json
import logging

import msgspec
import pytest

from quarterdeck.cli.output import (
    Cell,
    LineFormatter,
    LogFormat,
    LogLevel,
    lay_out,
    print_json,
    print_line,
    print_table,
    set_up_logging,
)


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


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "quarterdeck.test", "levelno": logging.INFO, "levelname": "INFO"})
    made.msg, made.args = message, args
    made.__dict__.update(extra)
    return made


def test_a_line_for_programs_is_one_json_object() -> None:
    """A log collector could not read it."""
    line = json.loads(LineFormatter(is_json=True).format(record("%s is ready", "fs", pid=7)))
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "fs is ready", "level": "info", "logger": "quarterdeck.test", "pid": 7}


def test_a_line_for_people_is_plain_without_a_terminal() -> None:
    """A log file would hold escape sequences."""
    line = LineFormatter(is_json=False).format(record("fs is ready"))
    assert "fs is ready" in line
    assert "\x1b" not in line
    assert "\n" not in line


@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.parametrize("secret", ["hunter2-hunter2", 'quo"ted\\secret', "sécret-ünicode"])
def test_configured_secrets_are_in_no_line(is_json: bool, secret: str) -> None:
    """A token in a server's error message would end up in a log that is sent around."""
    formatter = LineFormatter(is_json=is_json, secrets=[secret])
    line = formatter.format(record("the server says: %s!", f"bad token {secret}", detail=secret))
    assert secret not in line
    assert json.dumps(secret)[1:-1] not in line
    assert "[redacted]" in line


@pytest.mark.parametrize("is_json", [True, False])
def test_a_server_cannot_forge_lines_or_write_to_the_terminal(is_json: bool) -> None:
    """A line that quotes a server would become two, or clear the screen."""
    line = LineFormatter(is_json=is_json).format(record("it says: %s", "\x1b[2J\x07\r"))
    assert "\x1b" not in line
    assert "\x07" not in line
    assert "\r" not in line


def test_an_exception_is_told_with_its_traceback() -> None:
    """`--log-level debug` would be of no use for a report."""
    try:
        raise LookupError("lost")
    except LookupError as error:
        made = record("failed")
        made.exc_info = (type(error), error, error.__traceback__)
    for is_json in (True, False):
        line = LineFormatter(is_json=is_json).format(made)
        assert "LookupError: lost" in line
        assert "Traceback" in line


def test_libraries_are_quiet_unless_everything_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    """The SDK says a line for each request; ours would drown."""
    set_up_logging(LogLevel.INFO, LogFormat.JSON)
    logging.getLogger("mcp.server").info("noise")
    logging.getLogger("quarterdeck.fleet").info("news")
    set_up_logging(LogLevel.ERROR, LogFormat.JSON)
    logging.getLogger("mcp.server").warning("noise")
    logging.getLogger("quarterdeck.fleet").warning("noise")
    set_up_logging(LogLevel.DEBUG, LogFormat.JSON)
    logging.getLogger("mcp.server").debug("all")
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["event"] for line in err.splitlines()] == ["news", "all"]


def test_the_format_follows_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A client's log file would hold what is meant for people."""
    set_up_logging(LogLevel.INFO, LogFormat.AUTO)
    logging.getLogger("quarterdeck").info("auto")
    set_up_logging(LogLevel.INFO, LogFormat.CONSOLE)
    logging.getLogger("quarterdeck").info("console")
    auto, console = capsys.readouterr().err.splitlines()
    assert json.loads(auto)["event"] == "auto"
    assert console.startswith("20")
