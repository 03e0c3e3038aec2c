"""Log to stderr: for people on a terminal, as JSON elsewhere.

All modules log through the standard library.  For people structlog renders, which costs more to import than all that a
`serve` needs beside it; for programs a line is its record as JSON, in the same words.  A configuration's secrets are
removed from every line.
"""

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from quarterdeck.common.words import flat


class LogLevel(StrEnum):
    """The least severe lines that are shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of log lines; `AUTO` is `CONSOLE` on a terminal, else `JSON`."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


OURS: Final = "quarterdeck"
"""The root of our loggers; the libraries' are shown from warnings on, unless everything is."""


def set_up_logging(level: LogLevel, form: LogFormat = LogFormat.AUTO, secrets: Iterable[str] = ()) -> None:
    """Send every log line to stderr from here on, replacing the set-up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(is_json=is_json(form), is_coloured=sys.stderr.isatty(), secrets=secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if level is LogLevel.DEBUG else max(logging.WARNING, number_of(level)))
    logging.getLogger(OURS).setLevel(number_of(level))
    logging.captureWarnings(capture=True)


class LineFormatter(logging.Formatter):
    """Formats a record as one line, without secrets; the renderer is loaded with the first record."""

    def __init__(self, *, is_json: bool, is_coloured: bool = False, secrets: Iterable[str] = ()) -> None:
        from quarterdeck_protocol.secrets import Redactor  # commands that only name a level need none

        super().__init__()
        self._is_json = is_json
        self._is_coloured = is_coloured
        self._redactor = Redactor(secrets)
        self._renderer: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        if self._is_json:
            return self._redactor.clean_text(_json_line(record))
        if self._renderer is None:
            self._renderer = self._make_renderer()
        return self._redactor.clean_text(self._renderer.format(record))

    def _make_renderer(self) -> logging.Formatter:
        import structlog

        exceptions = structlog.dev.plain_traceback
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                lambda _, __, event: {
                    key: flat(each) if isinstance(each, str) else each for key, each in event.items()
                },
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=self._is_coloured, exception_formatter=exceptions),
            ],
        )


_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}
"""The attributes of every record; others were given by whoever logged."""


def _json_line(record: logging.LogRecord) -> str:
    given = {name: value for name, value in record.__dict__.items() if name not in _USUAL}
    at = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
    event = {"event": record.getMessage(), "level": record.levelname.lower(), "logger": record.name, **given}
    event["timestamp"] = at
    said = {key: flat(value) if isinstance(value, str) else value for key, value in event.items()}
    if record.exc_info:
        said["exception"] = logging.Formatter().formatException(record.exc_info)
    return json.dumps(said, default=repr, ensure_ascii=False)


def is_json(form: LogFormat) -> bool:
    """Return whether lines on our stderr are JSON in this format."""
    return form is LogFormat.JSON or (form is LogFormat.AUTO and not sys.stderr.isatty())


def number_of(level: LogLevel) -> int:
    """Return the number of a level in `logging`."""
    return logging.getLevelNamesMapping()[level.upper()]
