"""The manifest of a seal: the packages in an installed tree, its files, and the digest that names it.  Pure."""

import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck_protocol.policy_values import MAX_SEAL_BYTES

from .request import PackageIndex

FORMAT: Final = 1
"""Number of the form that manifests are written in; one of another number is not read."""

COMPILED: Final = ".pyc"
"""Ending of compiled files: of them the digest has the names alone, since their bytes may differ between machines."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Bounds(msgspec.Struct, frozen=True):
    """How large a tree may be.

    Attributes:
        total_bytes: of all files, of which one may have as much.
        entries: files, links and folders.
        depth: folders within one another; each is a descriptor while the tree is read.
    """

    total_bytes: int = MAX_SEAL_BYTES
    entries: int = 200_000
    depth: int = 100


class SealError(Exception):
    """A package cannot be sealed, or its seal cannot be used.

    Attributes:
        code: one of `unsealable`, `no_runner`, `not_found`, `registry_away`, `wrong_hash`, `too_large`, `hostile_tree`,
            `other_platform`, `no_sandbox`, `no_space`, `no_store`, `in_use`, `changed`, `ended`, `needs_scripts`.
        message: what happened.
        remedy: what to do; may be empty.
    """

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


KEEP_RUNNER: Final = 'set "seal": false in the row to keep the runner'
RAISE_BOUND: Final = f"raise max_seal_bytes in the row (files and time grow with it), or {KEEP_RUNNER}"


def too_large(problem: str) -> SealError:
    """Return the error of a package that passes a bound, or whose installation does."""
    return SealError("too_large", f"the package is too large to be sealed: {problem}", RAISE_BOUND)


class Kind(StrEnum):
    """What an entry of a tree is."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file, link or folder of a tree.

    Attributes:
        path: relative to the tree, with `/` between its parts; `.` for the tree itself.
        hash: SHA-256 of a file's bytes, in hexadecimal; the target of a link; empty for a folder.
    """

    path: str
    kind: Kind
    is_executable: bool = False
    size: int = 0
    hash: str = ""


class Difference(msgspec.Struct, frozen=True):
    """A path of a sealed tree that is not as it was.

    Attributes:
        what: `changed`, `added` or `removed`.
        since: when it was changed, or its folder; seconds since the epoch by the file system's clock.
    """

    path: str
    what: str
    since: float


class Package(msgspec.Struct, frozen=True):
    """One package of a tree.

    Attributes:
        integrity: the hash by which npm knows its archive; of Python that of its list of files, each with its hash.
        size: bytes on the disk.
        license: as the package names it; empty if it names none.
        script: the install script that it has ("postinstall", "built from source"); empty for none.
    """

    name: str
    version: str
    integrity: str
    size: int
    license: str = ""
    script: str = ""


class Program(msgspec.Struct, frozen=True):
    """A program that a package of a tree offers.

    Attributes:
        package: the package's name, as its index spells it.
        name: how a runner is asked for it.
        target: its path in the tree; of a Python package `module:function`.
        words: what starts it, before the path, such as `node`; empty if it is executed itself.
    """

    package: str
    name: str
    target: str
    words: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a seal holds.  Its entries lie in a file beside it: only a check of every hash needs them.

    Attributes:
        words: the request's words for which the tree was made.
        programs: of the packages that were asked for.
        platform: what its bytes depend on: `linux x86_64`, of Python `cpython-311` as well.
        interpreter: absolute path of the Python that it was installed for; empty for npm.
        lock: the text of the lock that it was installed from.
        made_at: for display.
        bounds: those of the installation, by which the tree is read again.
        size: bytes of all files; set by the store.
        files: number of files; set by the store.
        entries: SHA-256 of the list of entries; set by the store.
    """

    format: int = FORMAT
    index: PackageIndex
    name: str
    version: str
    words: str
    packages: tuple[Package, ...] = ()
    programs: tuple[Program, ...] = ()
    has_run_scripts: bool = False
    platform: str = ""
    interpreter: str = ""
    lock: str = ""
    made_at: str = ""
    bounds: Bounds = Bounds()
    size: int = 0
    files: int = 0
    entries: str = ""


class Changes(msgspec.Struct, frozen=True):
    """How the packages of a seal differ from those of the seal before it; each pair is the package before and now.

    Attributes:
        scripts: packages with an install script that had none of that kind before.
    """

    added: tuple[Package, ...] = ()
    removed: tuple[Package, ...] = ()
    changed: tuple[tuple[Package, Package], ...] = ()
    scripts: tuple[Package, ...] = ()


def compare(old: Manifest, new: Manifest) -> Changes:
    """Return the changes of packages from `old` to `new`.

    Versions of one package that both have are the same; others are paired from the lowest on, as npm installs several.
    """
    before, after = _by_name(old.packages), _by_name(new.packages)
    added: list[Package] = []
    removed: list[Package] = []
    changed: list[tuple[Package, Package]] = []
    for name in sorted(before.keys() | after.keys()):
        known = {(each.version, each.integrity) for each in before.get(name, ())}
        kept = {(each.version, each.integrity) for each in after.get(name, ())} & known
        gone = [each for each in before.get(name, ()) if (each.version, each.integrity) not in kept]
        came = [each for each in after.get(name, ()) if (each.version, each.integrity) not in kept]
        changed += zip(gone, came, strict=False)
        removed += gone[len(came) :]
        added += came[len(gone) :]
    had = {(each.name, each.script) for each in old.packages}
    scripts = tuple(each for each in new.packages if each.script and (each.name, each.script) not in had)
    return Changes(tuple(added), tuple(removed), tuple(changed), scripts)


def _by_name(packages: Iterable[Package]) -> dict[str, list[Package]]:
    found: dict[str, list[Package]] = {}
    for each in sorted(packages, key=lambda each: (each.name, each.version)):
        found.setdefault(each.name, []).append(each)
    return found


def digest_of(entries: Iterable[Entry], *, has_run_scripts: bool = False) -> str:
    """Return the name of a tree: 64 hexadecimal digits over its entries in the order of their paths, and over whether
    install scripts have run, which need not leave a trace.
    """
    whole = hashlib.sha256(b"quarterdeck seal 1, with scripts\n" if has_run_scripts else b"quarterdeck seal 1\n")
    for entry in sorted(entries, key=lambda entry: entry.path):
        size, digest = ("", "") if entry.path.endswith(COMPILED) else (str(entry.size), entry.hash)
        # No name or target holds a control character: `name_problem` and `link_problem` see to that.
        line = "\0".join((entry.path, entry.kind, "x" if entry.is_executable else "", size, digest))
        whole.update(f"{line}\n".encode())
    return whole.hexdigest()


def name_problem(name: str) -> str:
    """Return why no entry of a tree may have this name; empty if it may."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return "has a control character in its name" if _CONTROL.search(name) else ""


def name_key(name: str) -> str:
    """Return what two names of one folder have in common if a file system may take them for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def link_problem(link: Entry, kinds: Mapping[str, Kind]) -> str:
    """Return why a link may not be in a tree with entries of these kinds; empty if it may.

    It has to lead to an entry, and through folders alone: behind another link, `..` is not what its words say.
    """
    target = link.hash
    if target.startswith("/"):
        return "is a link to an absolute path"
    if name_problem(target):
        return "is a link to a name that no entry may have"
    place = posixpath.dirname(link.path)
    for part in target.split("/"):
        if kinds.get(place or ".") is not Kind.FOLDER:
            return "is a link through something that is no folder"
        if part == ".." and not place:
            return "is a link out of the tree"
        place = posixpath.dirname(place) if part == ".." else posixpath.normpath(posixpath.join(place, part))
        place = "" if place == "." else place
    return "" if (place or ".") in kinds else "is a link to nothing"


def differences(old: Sequence[Entry], new: Sequence[Entry], times: Mapping[str, float]) -> list[Difference]:
    """Return the paths in which two readings of a tree differ, sorted; `times` has when each new entry was changed."""
    before, after = ({entry.path: entry for entry in entries} for entries in (old, new))
    found: list[Difference] = []
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        what = "added" if path not in before else "removed" if path not in after else "changed"
        near = path
        while near and near not in times:
            near = posixpath.dirname(near)
        found.append(Difference(path, what, times.get(near or ".", 0.0)))
    return found
