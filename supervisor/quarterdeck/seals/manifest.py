"""The manifest of a seal: the packages in an installed tree, its files, and the digest that names it.  Pure."""

from enum import StrEnum
from typing import Final

import msgspec

from .request import PackageIndex

FORMAT: Final = 1
"""Number of the form that manifests are written in; one of another number is not read."""


class SealError(Exception):
    """A package cannot be sealed, or its seal cannot be used.

    Attributes:
        code: one of `unsealable`, `no_runner`, `not_found`, `registry_away`, `wrong_hash`, `too_large`, `hostile_tree`,
            `other_platform`, `no_space`, `changed`, `ended`, `needs_scripts`.
        message: what happened.
        remedy: what to do; may be empty.
    """

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


class Kind(StrEnum):
    """What an entry of a tree is."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file, link or folder of a tree.

    Attributes:
        path: relative to the tree, with `/` between its parts.
        hash: SHA-256 of a file's bytes, in hexadecimal; the target of a link; empty for a folder.
    """

    path: str
    kind: Kind
    is_executable: bool = False
    size: int = 0
    hash: str = ""


class Package(msgspec.Struct, frozen=True):
    """One package of a tree.

    Attributes:
        integrity: the hash by which the index knows its archive.
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
        size: bytes of all files; set by the store.
        files: number of files and links; set by the store.
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
    size: int = 0
    files: int = 0
    entries: str = ""
