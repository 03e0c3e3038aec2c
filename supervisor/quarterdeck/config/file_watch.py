"""Watch files for changes: written, made, replaced by a rename, or removed.

A notification about a directory is a hint; a look at the files themselves decides.  So neither an editor's way of
writing, other files in the directory, nor a missed hint matter.  Only the directories that hold the files are watched,
not those below; where one is missing, the nearest existing one above it.
"""

import logging
import os
import stat
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from quarterdeck.common.imports import imported

LOOK_S: Final = 5.0
"""Seconds between two looks without a hint: network file systems give none, nor does a system without watches left."""

STEP_S: Final = 0.2
"""Seconds between two collections of hints; a thread wakes up for each."""

SETTLE_S: Final = 0.1
"""A file that is unchanged for so long is believed to be written: editors empty it first, or save in steps."""

MAX_SETTLE_LOOKS: Final = 20
"""Looks at a file that never rests, before it is reported all the same."""

_log = logging.getLogger(__name__)

_FileState = tuple[int, ...] | None
"""Tells one state of a file from another; None if there is no file, or none that we may look at."""

_Look = tuple[_FileState, ...]

_Place = tuple[str, int, int]
"""A directory's path and identity: another directory may take its place."""


def changes_of(paths: Iterable[Path]) -> AsyncGenerator[None, None]:
    """Yield once after each change of any of these files, whether they exist yet or not.

    Changes count from this call on, also those during the caller's work on the last one: call it, then read the files.
    Several changes in a row are one.  Links are followed.  Close it when you leave it early (`aclosing`).
    """
    files = tuple(dict.fromkeys(Path(os.path.abspath(path)) for path in paths))
    return _changes(files, _look(files))


async def _changes(files: tuple[Path, ...], seen: _Look) -> AsyncGenerator[None, None]:
    await imported("watchfiles")  # slow, but no caller waits for it
    while True:
        seen = await _next_look(files, seen)
        yield


async def _next_look(files: tuple[Path, ...], seen: _Look) -> _Look:
    while True:
        places = await anyio.to_thread.run_sync(_places, files, abandon_on_cancel=True)
        async with aclosing(_hints(places)) as hints:
            async for _ in hints:
                now, found = await anyio.to_thread.run_sync(
                    lambda: (_look(files), _places(files)), abandon_on_cancel=True
                )
                if now != seen and (now := await _settled_look(files, seen, now)) != seen:
                    return now
                if found != places:
                    break


async def _hints(places: frozenset[_Place]) -> AsyncGenerator[None, None]:
    """Yield once these directories are watched, then whenever something may have happened in them.

    It ends after a pause where they cannot be watched: too many watches on this machine, a directory that is gone, a
    name in it that is no text.  The next attempt may succeed.
    """
    # Its documented direct use: `awatch` does not say when it has begun, and holds up a cancellation.
    from watchfiles._rust_notify import RustNotify

    stop = threading.Event()
    step_ms, look_ms = round(STEP_S * 1000), round(LOOK_S * 1000)
    try:
        paths = [path for path, _, _ in places]
        with RustNotify(
            paths, debug=False, force_polling=False, poll_delay_ms=0, recursive=False, ignore_permission_denied=True
        ) as watcher:
            yield
            while True:
                await anyio.to_thread.run_sync(watcher.watch, look_ms, step_ms, look_ms, stop, abandon_on_cancel=True)
                yield
    except (OSError, RuntimeError, UnicodeError) as error:
        _log.debug("files are checked every %s s: %s", LOOK_S, error)
        await anyio.sleep(LOOK_S)
        yield
    finally:
        stop.set()


async def _settled_look(files: tuple[Path, ...], seen: _Look, now: _Look) -> _Look:
    """Return the state of the files once they rest, or once they are as they were `seen`."""
    for _ in range(MAX_SETTLE_LOOKS):
        if now == seen:
            break
        await anyio.sleep(SETTLE_S)
        before, now = now, await anyio.to_thread.run_sync(_look, files, abandon_on_cancel=True)
        if now == before:
            break
    return now


def _look(files: tuple[Path, ...]) -> _Look:
    return tuple(_state(file) for file in files)


def _state(file: Path) -> _FileState:
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _places(files: tuple[Path, ...]) -> frozenset[_Place]:
    """Return the directories to watch: where the files are named, and where links lead."""
    return frozenset(_nearest_directory(path) for file in files for path in (file, Path(os.path.realpath(file))))


def _nearest_directory(file: Path) -> _Place:
    for directory in file.parents:
        try:
            status = directory.stat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            return (str(directory), status.st_dev, status.st_ino)
    raise AssertionError("the root is a directory")
