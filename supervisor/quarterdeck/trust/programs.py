"""Whether the programs of local servers are those that were approved: read at each start, compared, recorded.

A program is its file, and the files that its arguments name, such as the script of an interpreter.  Folders are not
walked: what a script imports may change unseen.  Servers that run from a seal have no fingerprint, nor have remote
ones.
"""

import asyncio
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from quarterdeck.config.environment import DEFAULT_PATH
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Approved, LedgerEvent, Seen, hash_of
from quarterdeck.ledger.events.fold import Entry, Item, ServerKey
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, TrustMode
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_sandbox import (
    LaunchError,
    NotRegularError,
    is_within_any,
    open_regular,
    plan_launch,
    resolve_program,
)

from .common_record import CommonRecord
from .diff.fingerprints import FileMark, Fingerprint, Stamp, changed_files, fingerprint_of
from .judge.server_rows import ServerRow
from .judge.verdicts import PROGRAM, judge_program
from .server_state import Recorder

MAX_FILES: Final = 20
"""Files of arguments that count: a program is given a script or two."""

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Of one file that is hashed, a second's work; of a larger one, size and times count."""

MAX_PATH_CHARS: Final = 4096
"""The kernel takes no longer path."""

FRESH_NS: Final = 100_000_000
"""A file that was written so shortly ago may be written again within the same tick of its file system's clock."""

MAX_HASHES: Final = 1000
"""Files whose hashes are kept, so that they are not read again while they stay the same."""

MAX_NAMED: Final = 4
"""Files that one message names."""

_CHUNK_BYTES: Final = 1024 * 1024

_log = logging.getLogger("quarterdeck.trust")

Hashes = Mapping[Stamp, str]
"""The hash of each file that was read before, by its stamp."""


class Programs:
    """Compares the programs of servers with the approved ones.

    Args:
        common: as for `Approvals`.
        environ: our own environment, in which a command without a path is looked up.
        has_seal: whether a server that asks for a package has the seal that its entry names.
    """

    def __init__(
        self,
        recorder: Recorder,
        common: CommonRecord,
        environ: Mapping[str, str],
        has_seal: Callable[[StdioServerConfig, Entry], bool | None] = lambda _config, _entry: None,
    ) -> None:
        self._recorder = recorder
        self._common = common
        self._environ = environ
        self._has_seal = has_seal
        self._kept: dict[ServerKey, dict[str, Fingerprint]] = {}
        self._hashes: dict[Stamp, str] = {}
        self._reading = asyncio.Lock()

    async def load(self, rows: Iterable[ServerRow]) -> None:
        """Have at hand what the ledger says of the programs of these servers."""
        await self._load(*(ServerKey(row.scope, row.id) for row in rows if isinstance(row.config, StdioServerConfig)))

    def is_known(self, config: ServerConfig, scope: str) -> bool:
        """Return whether a server's program is the approved one, as far as sizes and times tell: nothing is read."""
        if not isinstance(config, StdioServerConfig):
            return True  # what it lists is all that can be compared
        entry = self._recorder.book.entry(scope, config.id)
        if (has_seal := self._has_seal(config, entry)) is not None:
            return has_seal
        item = entry.items.get(PROGRAM, Item())
        approved = self._kept.get(ServerKey(scope, config.id), {}).get(item.approved)
        if approved is None or item.is_blocked or approved.words != _hash_of_words(config):
            return False
        return all(_is_unchanged(path, mark) for path, mark in approved.files.items())

    def changed(self, scope: str, server: str) -> tuple[str, ...]:
        """Return the files that had changed since they were approved when the server was started last."""
        item = self._recorder.book.entry(scope, server).items.get(PROGRAM, Item())
        kept = self._kept.get(ServerKey(scope, server), {})
        approved, seen = kept.get(item.approved), kept.get(item.seen)
        return changed_files(approved, seen) if approved is not None and seen is not None else ()

    async def check(self, config: StdioServerConfig, scope: str) -> None:
        """Compare the program that starts now with the approved one, and record it if it is new.

        Raises `ProtocolFault` if it changed, and its server's `trust` is strict.
        """
        key = ServerKey(scope, config.id)
        await self._load(key)
        async with self._reading:  # servers that start at once read the interpreter that they share once
            found = await asyncio.to_thread(read_fingerprint, config, self._environ, self._hashes)
            self._remember(found)
        if found is None:
            return  # the start itself says what is missing
        async with self._common.recording:
            item = self._recorder.book.entry(*key).items.get(PROGRAM, Item())
            await self._load(key)
            approved = self._kept[key].get(item.approved)
            by = judge_program(item, config.trust, approved, found)
            subject = PROGRAM.subject
            events: list[LedgerEvent] = []
            if is_news := item.seen != found.hash:
                events.append(Seen(scope=scope, server=config.id, subject=subject, hash=found.hash))
            if by is not None:
                events.append(Approved(scope=scope, server=config.id, subject=subject, hash=found.hash, by=by))
            try:
                await self._recorder.record(events, {found.hash: found.body} if events else {})
            except LedgerWriteError as error:
                _log.error("%s: its program is not recorded: %s", config.id, error)
            self._kept.setdefault(key, {})[found.hash] = found
        if by is not None or (item.approved == found.hash and not item.is_blocked):
            return
        files = _listed(changed_files(approved, found) if approved is not None else tuple(found.files))
        if item.is_blocked or config.trust is TrustMode.STRICT:
            raise ProtocolFault(
                FaultKind.SPAWN_FAILED,
                f"{config.id} is not started until a person approves its program: {files} changed since approved",
                code="program_changed",
                delivery=Delivery.NOT_SENT,
            )
        if is_news:
            how = "quarterdeck trust diff shows how, quarterdeck trust approve approves it"
            _log.warning("%s: its program changed since approved: %s: %s", config.id, files, how)

    async def _load(self, *keys: ServerKey) -> None:
        """Keep the approved and the last fingerprint of these servers, by their hashes, and forget their others."""
        items = [self._recorder.book.entry(*key).items.get(PROGRAM, Item()) for key in keys]
        wanted = {key: {item.approved, item.seen} - {""} for key, item in zip(keys, items, strict=True)}
        unread = {hash_ for key, hashes in wanted.items() for hash_ in hashes if hash_ not in self._kept.get(key, {})}
        bodies = await self._recorder.bodies(unread) if unread else {}
        for key, hashes in wanted.items():
            kept = self._kept.get(key, {})
            found = {hash_: kept.get(hash_) or fingerprint_of(bodies.get(hash_)) for hash_ in hashes}
            self._kept[key] = {hash_: each for hash_, each in found.items() if each is not None}
            for each in self._kept[key].values():
                self._remember(each)

    def _remember(self, fingerprint: Fingerprint | None) -> None:
        for mark in fingerprint.files.values() if fingerprint is not None else ():
            if mark.sha256 and mark.ctime_ns:
                self._hashes[mark.stamp] = mark.sha256
        while len(self._hashes) > MAX_HASHES:
            del self._hashes[next(iter(self._hashes))]


def read_fingerprint(
    config: StdioServerConfig, environ: Mapping[str, str], known: Hashes | None = None
) -> Fingerprint | None:
    """Read the program of a server; None if there is none.  Files with a `known` stamp are not read.  Blocking."""
    path = config.env.get("PATH") or environ.get("PATH") or DEFAULT_PATH
    try:
        plan = plan_launch(config.command, config.args, {**config.env, "PATH": path}, config.cwd or "/")
        program = resolve_program(plan, Path.home(), environ).path
    except LaunchError:
        return None
    files: dict[str, FileMark] = {}
    for named in (program, *_named_by_arguments(config)):
        if len(files) <= MAX_FILES and named not in files and (mark := _read_mark(named, known or {})) is not None:
            files[named] = mark
    return Fingerprint(_hash_of_words(config), files) if program in files else None


def _hash_of_words(config: StdioServerConfig) -> str:
    return hash_of(repr((config.command, config.args, config.cwd)).encode("utf-8", "backslashreplace"))


def _named_by_arguments(config: StdioServerConfig) -> Iterator[str]:
    """Yield the paths that may be files of the program: the first file, and others that the server may not write.

    Relative ones count only with a `cwd`: a server's private home holds its own data.
    """
    is_first = True
    for argument in config.args:
        for text in (argument, argument.partition("=")[2]):
            path = os.path.normpath(os.path.join(config.cwd or "", text)) if text else ""
            if not path.startswith("/") or len(path) > MAX_PATH_CHARS or not _is_file(path):
                continue
            if is_first or not is_within_any(os.path.realpath(path), config.sandbox.write):
                yield path
            is_first = False


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _read_mark(path: str, known: Hashes) -> FileMark | None:
    """Read one file, whatever links lead to it; None if it is none."""
    real = os.path.realpath(path)
    try:
        with open_regular(real, follow_link=False) as file:
            before = os.fstat(file.fileno())
            mark = _mark(real, before)
            sha256 = known.get(mark.stamp) or _hash(file)
            is_settled = _mark(real, os.fstat(file.fileno())) == mark
    except NotRegularError:
        return None
    except OSError:
        try:
            return _mark(real, os.lstat(real)) if _is_file(real) else None
        except OSError:
            return None
    if not is_settled or time.time_ns() - before.st_ctime_ns < FRESH_NS:
        return FileMark(real, mark.size, mark.inode, 0, 0, sha256)
    return FileMark(*mark.stamp, sha256)


def _mark(real: str, status: os.stat_result) -> FileMark:
    return FileMark(real, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


def _hash(file: BinaryIO) -> str:
    """Return the hash of an open file; empty if it is too large."""
    digest, left = hashlib.sha256(), MAX_FILE_BYTES
    while chunk := file.read(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            return ""
        digest.update(chunk)
    return digest.hexdigest()


def _is_unchanged(path: str, mark: FileMark) -> bool:
    try:
        real = os.path.realpath(path)
        return mark.ctime_ns > 0 and _mark(real, os.lstat(real)).stamp == mark.stamp
    except OSError:
        return False


def _listed(files: tuple[str, ...]) -> str:
    more = f" and {len(files) - MAX_NAMED} more" if len(files) > MAX_NAMED else ""
    return ", ".join(files[:MAX_NAMED]) + more
