"""The folder of seals: each in a folder that is named after its digest, complete from the moment it has that name.

    DIGEST/tree        the installed files, read-only
    DIGEST/manifest    what they are
    DIGEST/entries     every path with its hash
    DIGEST/stamps      what the file system said of each when it was last found unchanged
    .making/RANDOM     an attempt, whose process holds a lock on it; the next attempt removes it once that process ended

The lock of the folder itself is held only for a rename or a look.  No decision depends on a clock.  Blocking.
"""

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import gmtime, strftime
from typing import Final

import msgspec

from quarterdeck.common.locks import acquire, holding_directory
from quarterdeck.config.places.paths import (
    DATA_DIR_VARIABLE,
    UnsafePathError,
    UnusableDirectoryError,
    make_private_dir,
)
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_sandbox import open_regular, remove_tree

from .manifest import (
    FORMAT,
    Difference,
    Entry,
    Kind,
    Manifest,
    SealError,
    differences,
    digest_of,
)
from .tree import NO_ROOM, Reading, Stamps, is_untouched, read_tree

MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
"""A lock of a thousand packages has a tenth of it."""

MAX_LIST_BYTES: Final = 128 * 1024 * 1024
"""Of `entries` and of `stamps`: 200,000 long paths."""

LOCK_WAIT_S: Final = 30.0
"""Another process holds the folder for milliseconds; it may have been stopped meanwhile."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Seal(msgspec.Struct, frozen=True):
    """A sealed package; `folder / "tree"` has its files."""

    digest: str
    manifest: Manifest
    folder: Path

    @property
    def tree(self) -> Path:
        """The installed files."""
        return self.folder / "tree"

    @property
    def title(self) -> str:
        """For people: name, version and the first digits."""
        return f"{self.manifest.name} {self.manifest.version} ({self.digest[:12]})"


class SealStore:
    """The seals of a user.

    Args:
        folder: made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._making: Final = folder / ".making"

    @contextmanager
    def making(self) -> Iterator[Path]:
        """Yield an empty private folder for one installation.  It is removed at the end of the block, or after the end
        of this process by the next installation.
        """
        with _as_seal_errors(self._folder):
            make_private_dir(self._making)
            with holding_directory(self._folder, LOCK_WAIT_S):
                left = self._abandoned()
                place = self._making / secrets.token_hex(8)
                place.mkdir(mode=0o700)
                lock = _locked(place)
            self._drop(left)
        try:
            yield place
        finally:
            _remove(place)
            if lock is not None:
                os.close(lock)

    def adopt(self, place: Path, manifest: Manifest) -> Seal:
        """Take in `place / "tree"`, and return its seal: the one that is there already, if it has these files.

        Args:
            place: a folder of `making`, with nothing that still writes to it.
            manifest: the store sets its `size`, `files` and `entries`.

        Raises:
            SealError: `hostile_tree`, `too_large`, `no_space` or `changed`.
        """
        with _as_seal_errors(self._folder):
            made = place / "sealed"
            made.mkdir(mode=0o700)
            os.rename(place / "tree", made / "tree")
            # A folder that was renamed, or a file that was written, after its stamp was taken would look changed.
            reading = read_tree(made / "tree", manifest.bounds, close=True)
            entries = msgspec.json.encode(reading.entries)
            manifest = msgspec.structs.replace(
                manifest,
                size=sum(entry.size for entry in reading.entries),
                files=sum(entry.kind is Kind.FILE for entry in reading.entries),
                entries=hashlib.sha256(entries).hexdigest(),
            )
            digest = digest_of(reading.entries, has_run_scripts=manifest.has_run_scripts)
            sync_file_system(made)
            _write(made / "entries", entries)
            _write(made / "stamps", msgspec.msgpack.encode(reading.stamps))
            _write(made / "manifest", msgspec.json.encode(manifest))
            _sync_folder(made)
            damaged = self._damaged(digest)
            with holding_directory(self._folder, LOCK_WAIT_S):
                if self._inode(digest) not in (damaged, 0):
                    return self._renewed(digest, manifest)  # it was whole, or another process has just made it
                self._set_aside(digest)
                os.rename(made, self._folder / digest)
                _sync_folder(self._folder)
        return Seal(digest, manifest, self._folder / digest)

    def digests(self) -> list[str]:
        """Return the digests of all seals, of damaged ones too, sorted."""
        with suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self._folder) if _DIGEST.fullmatch(name))
        return []

    def seals(self) -> list[Seal]:
        """Return all seals whose manifest can be read, by name and version."""
        found: list[Seal] = []
        for digest in self.digests():
            with suppress(SealError):
                seal = self.open(digest)
                found += [seal] if seal is not None else []
        return sorted(found, key=lambda seal: (seal.manifest.name, seal.manifest.version, seal.digest))

    def open(self, digest: str) -> Seal | None:
        """Return this seal, unchecked; None if there is none.  Raises SealError `changed` for a damaged manifest."""
        if not _DIGEST.fullmatch(digest):
            return None
        folder = self._folder / digest
        try:
            data = _read(folder / "manifest", MAX_MANIFEST_BYTES)
            form = msgspec.json.decode(data, type=_Form).format
            if form != FORMAT:
                raise ValueError(f"it has format {form}, and this version reads {FORMAT}")
            return Seal(digest, msgspec.json.decode(data, type=Manifest), folder)
        except (OSError, ValueError, RecursionError) as error:
            if not folder.exists():
                return None
            raise _damaged(digest, "manifest", error) from error

    def has(self, digest: str) -> bool:
        """Return whether there is a folder of this seal; nothing in it is looked at."""
        return bool(_DIGEST.fullmatch(digest)) and (self._folder / digest).exists()

    def find(self, words: str, *, has_run_scripts: bool = False) -> Seal | None:
        """Return the seal that was made last of what these words ask for; None if there is none."""
        found = (
            seal
            for seal in self.seals()
            if seal.manifest.words == words and seal.manifest.has_run_scripts == has_run_scripts
        )
        return max(found, key=lambda seal: seal.manifest.made_at, default=None)

    @contextmanager
    def held(self, seal: Seal) -> Iterator[None]:
        """Keep everyone from removing the seal inside the block.  Raises SealError `not_found` if it is gone."""
        lock = _locked(seal.folder, fcntl.LOCK_SH)
        if lock is None:
            raise _absent(seal.digest)
        try:
            yield
        finally:
            os.close(lock)

    def check(self, seal: Seal) -> None:
        """Raise SealError `changed` unless every file is as it was sealed; quickly if no time or size differs."""
        with suppress(OSError, ValueError):
            stamps = msgspec.msgpack.decode(_read(seal.folder / "stamps", MAX_LIST_BYTES), type=Stamps)
            if is_untouched(seal.tree, stamps):
                return
        reading, found = self._compared(seal)
        if found:
            first = found[0]
            since = strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(first.since))
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            text = f"{first.path} of {seal.title} was {first.what} at {since}{more}"
            raise SealError("changed", text, _again(seal.digest))
        self._renew(seal, reading)

    def verify(self, seal: Seal) -> list[Difference]:
        """Return how the files differ from what was sealed, every hash computed."""
        return self._compared(seal)[1]

    def remove(self, digest: str) -> None:
        """Remove a seal.  Raises SealError `not_found`, or `in_use` while a process holds it."""
        with _as_seal_errors(self._folder):
            if not _DIGEST.fullmatch(digest) or not self._folder.is_dir():
                raise _absent(digest)
            make_private_dir(self._making)
            with holding_directory(self._folder, LOCK_WAIT_S):
                folder = self._folder / digest
                if not folder.is_dir():
                    raise _absent(digest)
                lock = _locked(folder)
                if lock is None:
                    raise SealError("in_use", f"the seal {digest[:12]} is in use", "stop the servers that run from it")
                aside = self._set_aside(digest)
            self._drop([(aside, lock)])

    def collect(self, used: Collection[str]) -> list[Seal]:
        """Remove the seals whose digests are not in `used` and that no process holds.  Return those removed."""
        removed: list[Seal] = []
        for seal in self.seals():
            if seal.digest not in used:
                with suppress(SealError):
                    self.remove(seal.digest)
                    removed.append(seal)
        if self._making.is_dir():
            with _as_seal_errors(self._folder), holding_directory(self._folder, LOCK_WAIT_S):
                left = self._abandoned()
            self._drop(left)
        return removed

    def _compared(self, seal: Seal) -> tuple[Reading, list[Difference]]:
        if not seal.folder.is_dir():
            raise _absent(seal.digest)
        try:
            data = _read(seal.folder / "entries", MAX_LIST_BYTES)
            kept = msgspec.json.decode(data, type=list[Entry])
        except (OSError, ValueError) as error:
            raise _damaged(seal.digest, "list of files", error) from error
        digest = digest_of(kept, has_run_scripts=seal.manifest.has_run_scripts)
        if digest != seal.digest or hashlib.sha256(data).hexdigest() != seal.manifest.entries:
            raise _damaged(seal.digest, "list of files", "it is another one than was sealed")
        try:
            reading = read_tree(seal.tree, seal.manifest.bounds)
        except OSError as error:
            raise _damaged(seal.digest, "tree", error) from error
        except SealError as error:
            raise _damaged(seal.digest, "tree", error.message) from error
        return reading, differences(kept, reading.entries, reading.times)

    def _renew(self, seal: Seal, reading: Reading) -> None:
        """Keep the stamps of a reading that found nothing changed; without them the next check reads all again."""
        with suppress(OSError):
            _replace(seal.folder / "stamps", msgspec.msgpack.encode(reading.stamps))

    def _renewed(self, digest: str, manifest: Manifest) -> Seal:
        """Return a seal that is there, with the interpreter of the newer manifest: the older one may be gone."""
        seal = self.open(digest)
        assert seal is not None
        if seal.manifest.interpreter == manifest.interpreter:
            return seal
        newer = msgspec.structs.replace(seal.manifest, interpreter=manifest.interpreter, platform=manifest.platform)
        _replace(seal.folder / "manifest", msgspec.json.encode(newer))
        return msgspec.structs.replace(seal, manifest=newer)

    def _damaged(self, digest: str) -> int:
        """Return the inode of this seal's folder if it is there, and not as it was sealed; else 0."""
        inode = self._inode(digest)
        try:
            seal = self.open(digest)
            if seal is not None:
                self.check(seal)
            return 0
        except SealError:
            return inode

    def _inode(self, digest: str) -> int:
        try:
            return os.stat(self._folder / digest, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return 0

    def _set_aside(self, digest: str) -> Path:
        """Take the name from a seal, if it is there, and return where it went.  The folder is locked by the caller."""
        aside = self._making / secrets.token_hex(8)
        with suppress(FileNotFoundError):
            os.rename(self._folder / digest, aside)
        return aside

    def _abandoned(self) -> list[tuple[Path, int]]:
        """Return the attempts of processes that ended, each with its lock, now ours; the caller locks the folder."""
        found = ((path, _locked(path)) for path in self._making.iterdir())
        return [(path, lock) for path, lock in found if lock is not None]

    def _drop(self, places: Collection[tuple[Path, int]]) -> None:
        for path, lock in places:
            _remove(path)
            os.close(lock)


class _Form(msgspec.Struct):
    format: int


@contextmanager
def _as_seal_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise SealError("in_use", f"another process holds {folder}", "end that process if it hangs") from error
    except OSError as error:
        found = UnusableDirectoryError(folder, DATA_DIR_VARIABLE, error)
        raise SealError("no_space" if error.errno in NO_ROOM else "no_store", found.what, found.remedy) from error
    except UnsafePathError as error:
        raise SealError("no_store", str(error)) from error


def _absent(digest: str) -> SealError:
    return SealError("not_found", f"there is no seal {digest[:12]}", "quarterdeck seals list shows them")


def _damaged(digest: str, part: str, why: Exception | str) -> SealError:
    why = why if isinstance(why, str) else plain_words(why)
    return SealError("changed", f"the {part} of the seal {digest[:12]} is damaged: {why}", _again(digest))


def _again(digest: str) -> str:
    return f"run `quarterdeck seals remove {digest[:12]}`, and it is installed again"


def _locked(folder: Path, operation: int = fcntl.LOCK_EX) -> int | None:
    """Return a descriptor that holds the lock of this folder; None if another process holds it, or there is none."""
    try:
        fd = os.open(folder, _OPEN_FOLDER)
    except OSError:
        return None
    try:
        if acquire(fd, operation=operation) and os.path.samestat(os.fstat(fd), os.stat(folder, follow_symlinks=False)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _read(path: Path, most_bytes: int) -> bytes:
    with open_regular(path, follow_link=False) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes} bytes")
    return data


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(draft, data)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    with suppress(OSError, RecursionError):
        for _, _, _, fd in os.fwalk(folder):
            os.fchmod(fd, 0o700)
    remove_tree(str(folder))


def sync_file_system(folder: Path) -> None:
    """Have the file system of this folder write all that it holds, and raise OSError if it could not.

    An `fsync` for each file would take a minute for what takes a second here; `sync` would also wait for other file
    systems, such as a server's that does not answer, and tells of no error.
    """
    import ctypes  # imported only here: no other command needs it

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    fd = os.open(folder, _OPEN_FOLDER)
    try:
        if syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, _OPEN_FOLDER)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
