"""Tell what a sandbox must show for a path of a command line, or of a variable, to work: seldom just that path.

    a program's file          its project, by its marker; else its folder: what it imports lies beside it
    a package's script        the outermost `node_modules` around it, which has the packages that it imports
    a database, a store       its folder, to be written: a journal or a temporary copy is made beside the file
    what is not there yet     the folder that it is to be made in, to be written; a new one, if that is not there either
    a folder that an option or a variable calls a store  itself, to be written
    any other file or folder  itself

Only looks.  A folder that nobody should give away whole (the home, the root, `/tmp`) is never the answer.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.policy.mounts import ancestors, is_within

MARKERS: Final = ("package.json", "pyproject.toml", ".git")  # what lies in the root of a project

PACKAGES: Final = "node_modules"
"""The folder in which node looks for packages, next to a script and in each folder above."""

_CODE: Final = re.compile(r"\.(?:py|pyz|js|mjs|cjs|jsx|ts|mts|cts|tsx|rb|php|pl|lua|sh|bash|jar|dll)$", re.IGNORECASE)

_SCRIPT: Final = re.compile(r"\.(?:[mc]?[jt]s|[jt]sx)$", re.IGNORECASE)
"""Of node: a workspace keeps the packages of all its projects in one folder above them."""

_CHANGED: Final = re.compile(
    r"(?:^|[_.-])(?:db|database|sqlite3?|duckdb|memory|store|storage|state|cache|log|output|out)(?:$|[_.-])",
    re.IGNORECASE,
)
"""Words in the name of an option, a variable or a file that a program writes."""

_FOLDER: Final = re.compile(
    r"(?:^|[_.-])(?:dir|directory|folder|root|workspace|storage|store|cache|output|out)s?(?:$|[_.-])", re.IGNORECASE
)
"""Words in the name of an option or a variable that names a folder, where the path itself does not exist yet."""

_URL: Final = re.compile(r"^(?:file://|(?:sqlite|duckdb)(?:\+\w+)?:///?)(?=/)")
"""What stands before the path in the URL of a file or a database."""

_SHARED: Final = frozenset({"/", "/home", "/root", "/tmp", "/var", "/etc", "/opt", "/srv", "/usr", "/mnt", "/media"})  # noqa: S108
"""Folders that hold more than one thing's files."""

MAX_ARGUMENT: Final = 4096 * 8
"""Characters of an argument that is searched for paths; a longer one is a program's text."""


class RequiredPath(msgspec.Struct, frozen=True):
    """An absolute path to add to a policy's `read` or `write`.

    Attributes:
        why: empty if it is the path that was named.
        source: what named it, such as `argument 2`; empty if no command did.
        is_new: whether it is a folder that has to be made first.
    """

    key: str
    path: str
    why: str = ""
    source: str = ""
    is_new: bool = False

    @property
    def shown(self) -> str:
        """The path as it is written in a row's `sandbox`."""
        return f'"{self.key}": ["{self.path}"]'


class NamedPath(msgspec.Struct, frozen=True):
    """A path that a command names.

    Attributes:
        label: its option or variable, empty without one.
        source: where it is named, in words.
        is_written: whether the program is known to write there, whatever the label says.
    """

    path: str
    label: str = ""
    source: str = ""
    is_written: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether its option or variable is one for what a program writes."""
        return self.is_written or _CHANGED.search(self.label) is not None


def need_of(named: NamedPath, user_home: str) -> RequiredPath | None:
    """Return what a policy needs for this path; None if nothing can be given that would do."""
    path, folder = named.path, os.path.dirname(named.path)
    if observed.isdir(path):
        key = "write" if named.is_changed else "read"
        return RequiredPath(key, path) if is_of_one_thing(path, user_home) else None
    if not observed.lexists(path):
        is_possible = observed.isdir(folder) and is_of_one_thing(folder, user_home)
        return RequiredPath("write", folder, "the file is to be made in it") if is_possible else None
    if _CODE.search(path):
        root = project_of(path, user_home)
        return RequiredPath("read", root, _why_project(root)) if root is not None else RequiredPath("read", path)
    if named.is_changed or _CHANGED.search(os.path.basename(path)):
        if is_of_one_thing(folder, user_home):
            return RequiredPath("write", folder, "a journal or a temporary copy is made beside the file")
        return None
    return RequiredPath("read", path)


def folder_to_make(named: NamedPath, user_home: str) -> str | None:
    """Return the missing folder without which a program cannot write this path, which is not there; None if no folder
    is missing, or if nothing says that the program writes there.
    """
    if observed.lexists(named.path) or not named.is_changed:
        return None
    is_folder = "." not in os.path.basename(named.path) and (
        named.is_written or _FOLDER.search(named.label) is not None
    )
    folder = named.path if is_folder else os.path.dirname(named.path)
    if observed.lexists(folder) or not is_of_one_thing(folder, user_home):
        return None
    above = next(step for step in ancestors(folder) if observed.lexists(step))
    is_ours = is_within(above, user_home) or is_of_one_thing(above, user_home)
    return folder if is_ours and observed.isdir(above) else None


def project_of(path: str, user_home: str) -> str | None:
    """Return the root of a program file's project, else its folder; None if `is_of_one_thing` rejects the folder."""
    above, is_package, _ = path.partition(f"/{PACKAGES}/")
    if _SCRIPT.search(path) and is_package:
        return f"{above}/{PACKAGES}"
    inner = [step for step in ancestors(os.path.dirname(path)) if is_of_one_thing(step, user_home)]
    for index, step in enumerate(inner):
        if any(observed.lexists(os.path.join(step, marker)) for marker in MARKERS):
            if _SCRIPT.search(path) and not _has_packages(step):
                return next((above for above in inner[index:] if _has_packages(above)), step)
            return step
    return inner[0] if inner else None


def is_code(path: str) -> bool:
    """Return whether a file of this name is a program for an interpreter."""
    return _CODE.search(path) is not None


def named_in(argv: Sequence[str], env: Mapping[str, str], cwd: str, user_home: str) -> Iterator[NamedPath]:
    """Yield every path that the arguments of a command and its variables may name, existing or not."""
    option = ""
    for number, argument in enumerate(argv[1:], 1):
        name, is_pair, _ = argument.partition("=")
        label = name if is_pair else option
        source = f"argument {number}" + (f" ({label})" if label else "")
        for text in paths_in(argument):
            yield NamedPath(os.path.normpath(os.path.join(cwd, text)), label, source)
        option = argument if argument.startswith("-") and not is_pair else ""
    for name, text in env.items():
        value = _URL.sub("", text)
        if value.startswith("~/"):
            yield NamedPath(os.path.normpath(user_home + value[1:]), name, f"variable {name}")
        elif value.startswith("/") and len(value) <= MAX_ARGUMENT and ":" not in value and "\0" not in value:
            yield NamedPath(os.path.normpath(value), name, f"variable {name}")


def paths_in(argument: str) -> Iterator[str]:
    """Yield what may be a path in an argument: the whole, the part after `=`, a file's URL, parts of a list."""
    if len(argument) > MAX_ARGUMENT or "\0" in argument:
        return
    values = [argument]
    if argument.startswith("-") or argument.split("=", 1)[0].replace("_", "").isalnum():
        values += argument.split("=", 1)[1:]
    for value in values:
        text = _URL.sub("", value)
        if "/" not in text:
            continue
        yield text
        for separator in (",", ":"):
            if separator in text and "://" not in text:
                yield from (part for part in text.split(separator) if "/" in part)


def is_of_one_thing(folder: str, user_home: str) -> bool:
    """Return whether a policy may grant a whole folder: it is not a home, a folder above one, or a shared folder."""
    is_a_home = os.path.dirname(folder) in {"/home", "/Users"}
    return folder not in _SHARED and not is_a_home and not is_within(user_home, folder)


def _has_packages(folder: str) -> bool:
    return observed.isdir(os.path.join(folder, PACKAGES))


def _why_project(root: str) -> str:
    if os.path.basename(root) == PACKAGES:
        return "the packages that it imports"
    marker = next((each for each in MARKERS if observed.lexists(os.path.join(root, each))), None)
    return f"its project, by {marker}" if marker is not None else "its folder: what it imports lies beside it"
