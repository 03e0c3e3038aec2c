"""Log lines: rendered for people or programs, without secrets."""

import json
import logging

import pytest

from quarterdeck.cli.log_setup import LineFormatter, LogFormat, LogLevel, set_up_logging


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "quarterdeck.test", "levelno": logging.INFO, "levelname": "INFO"})
    made.msg, made.args = message, args
    made.__dict__.update(extra)
    return made


def test_a_line_is_one_json_object_for_programs_and_plain_for_people() -> None:
    """A log collector could not read it, or a file hold escape sequences."""
    line = json.loads(LineFormatter(is_json=True).format(record("%s is ready", "fs", pid=7)))
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "fs is ready", "level": "info", "logger": "quarterdeck.test", "pid": 7}
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
