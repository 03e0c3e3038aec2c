"""`quarterdeck logs`: what a server wrote on its standard error.

The file is read in place; no `serve` is needed, and nothing is started.  Each line begins with the time at which it was
written, except in files of older versions.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO, Final, NamedTuple

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import NotFoundError, UsageError
from quarterdeck.cli.output import print_json, print_line, print_text
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import Source, check_server, load, only_serving, serving_own_files
from quarterdeck.config.places.paths import command_digest, server_paths
from quarterdeck.config.places.runtime_directory import find_serving
from quarterdeck.daemon.start import log_path as daemon_log
from quarterdeck_sandbox import split_time

POLL_S: Final = 0.2
"""Between two looks at a followed file: no delay for a person, no load for a laptop."""

CHUNK_BYTES: Final = 64 * 1024

MAX_LINE_BYTES: Final = 1024 * 1024
"""A longer line is shown in pieces."""


class LogLine(NamedTuple):
    """A line that a server wrote, and its time: ISO 8601 in UTC, empty if unknown."""

    at: str
    text: bytes


def logs(
    server: Annotated[str | None, Argument(metavar="SERVER", help="Its id, as ps shows it.")] = None,
    config: options.Config = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on with what it writes from now on.")] = False,
    lines: Annotated[int, Option("--lines", "-n", min=0, metavar="N", help="How many lines of the past.")] = 100,
    daemon: Annotated[bool, Option(help="The log of the daemon that all clients share.")] = False,
    client: options.OneClient = None,
    json: options.Json = False,
) -> None:
    """Show what a server wrote on its standard error, and when, by local time (kept between runs, size-capped)."""
    if (server is None) is not daemon:
        raise UsageError("logs shows either a server's or the daemon's", "give SERVER, or --daemon")
    path = (
        daemon_log() if server is None else _log_path(Source(tuple(config or ())), server, options.client_name(client))
    )
    if not path.exists() and not follow:
        print_line(f"{server or 'the daemon'} has written nothing yet", stderr=True)
        return
    for written in read_lines(path, lines, follow=follow):
        line = written if server is not None else _said_by_daemon(written)
        text = line.text.decode("utf-8", "replace")
        if json:
            print_json({"server": server, "at": line.at or None, "line": text})
        else:
            print_text(_local(line.at) + text)


def _said_by_daemon(line: LogLine) -> LogLine:
    try:
        said = msgspec.json.decode(line.text, type=_DaemonLine)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return line
    exception = f"\n{said.exception}" if said.exception else ""
    return LogLine(said.timestamp, f"{said.level:8}{said.event}{exception}".encode())


class _DaemonLine(msgspec.Struct):
    event: str
    level: str
    timestamp: str
    exception: str = ""


def _local(at: str) -> str:
    try:
        return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M:%S}  " if at else ""
    except (ValueError, OverflowError):
        return f"{at}  "  # an older file, in which a server wrote something alike


def _log_path(source: Source, server: str, client: str) -> Path:
    from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, ask
    from quarterdeck.daemon.control.protocol import LogFile, LogPath, Refused

    of_run = server_paths(command_digest(server), server).log
    if not source.config and of_run.exists():
        return of_run
    directory = find_serving(source.digest) or serving_own_files(source)
    if directory is None and not source.config and server not in load(source, may_be_empty=True).ids:
        directory = only_serving()
    if directory is not None:
        try:
            answer = ask(directory, LogPath(server, client))
        except (NotServingError, NoAnswerError):
            answer = None
        # It may have another state directory than we have.
        if isinstance(answer, LogFile):
            return Path(answer.path)
        if isinstance(answer, Refused):
            raise NotFoundError(answer.message, "quarterdeck ps lists its servers")
    settings = load(source)
    check_server(settings, server)
    return settings.paths_of(server, client).log


def read_lines(path: Path, count: int, *, follow: bool = False) -> Iterator[LogLine]:
    """Yield the last `count` lines of a log, its older half included; with `follow` also new ones, forever.

    A file that is replaced meanwhile is read to its end first.
    """
    file = _open(path)
    try:
        with _open(path.with_name(path.name + ".1")) as older:
            past = deque(chain(_lines(older), _lines(file)), maxlen=count)
        yield from past
        while follow:
            yield from _lines(file)
            if _is_replaced(path, file):
                yield from _lines(file)
                file.close()
                file = _open(path)
            else:
                time.sleep(POLL_S)
    finally:
        file.close()


def _lines(file: BinaryIO) -> Iterator[LogLine]:
    """Yield the complete lines from here to the end; an unfinished one is left for the next call."""
    is_begin, at = _is_at_begin(file), ""
    while line := file.readline(MAX_LINE_BYTES):
        is_whole = line.endswith(b"\n")
        if not is_whole and len(line) < MAX_LINE_BYTES:
            file.seek(-len(line), os.SEEK_CUR)
            return
        at, text = split_time(line) if is_begin else (at, line)
        yield LogLine(at, text.rstrip(b"\r\n"))
        is_begin = is_whole


def _is_at_begin(file: BinaryIO) -> bool:
    if not file.tell():
        return True
    file.seek(-1, os.SEEK_CUR)
    return file.read(1) == b"\n"


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=CHUNK_BYTES)
    except FileNotFoundError:
        return open(os.devnull, "rb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "make it a file of your own that can be read") from error


def _is_replaced(path: Path, file: BinaryIO) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False
