"""Variables in a configuration: `${NAME}` and its kin, secret files, and env files.

    ${NAME}  ${env:NAME}            a variable of our environment; an unset one is an error
    ${NAME:-text}                   the same, `text` when it is unset or empty
    ${file:PATH}                    the content of a file that only we may read, without its last newline
    ${keyring:NAME}                 a secret that `quarterdeck secret set` keeps
    ${workspaceFolder}              the project's folder; unset without a project
    ${workspaceFolder:-text}        the same, `text` when it is unset
    ${userHome}                     the user's home
    $${                             a plain `${`

Values are put in as they are and never expanded again; no message shows one.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dotenv.parser import parse_stream

from quarterdeck.common.text_file import TextFileError, read_text
from quarterdeck.config.secrets.store import MissingSecretError, SecretError, SecretStore, check_name
from quarterdeck_protocol.secrets import secret_values

from .origin import FileRead
from .project import ProjectBounds, closed_variable

MAX_VALUE_FILE_BYTES: Final = 64 * 1024
"""Of a secret or an env file; the kernel takes no more than 128 KiB as one variable."""

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class VariableError(Exception):
    """A reference cannot be resolved; `code` is `unset_variable` or `config_invalid`."""

    def __init__(self, message: str, code: str = "config_invalid") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Variables:
    """The values of references, and a record of those that were used.

    Attributes:
        base: the configuration file's directory; relative paths start there.
        workspace: `${workspaceFolder}`; None without a project.
        home: `${userHome}`, and `~` in a path.
        bounds: the limits of a project's file; None for a file of the user's.
        keyring: finds `${keyring:NAME}`, or raises `SecretError`.
        left: receives the names of secrets, which stay as they are written; None to look them up.
        secrets: receives every value that must not be shown; paths, words and numbers, of which messages are full
            anyway, count only under a secret name.
        files: receives every file that a reference names, whether it exists or not.
        taken: receives every file that values were taken from, by its path as it is written.
        places: receives `workspaceFolder` once a reference names it.
    """

    environ: Mapping[str, str]
    base: Path
    workspace: Path | None
    home: Path
    bounds: ProjectBounds | None = None
    keyring: Callable[[str], str] = field(default_factory=lambda: SecretStore().get, compare=False)
    left: set[str] | None = field(default=None, compare=False)
    secrets: set[str] = field(default_factory=set, repr=False, compare=False)
    files: set[Path] = field(default_factory=set, repr=False, compare=False)
    taken: dict[str, FileRead] = field(default_factory=dict, repr=False, compare=False)
    places: set[str] = field(default_factory=set, repr=False, compare=False)

    @property
    def common(self) -> "Variables":
        """These, for what is the same for all clients, also where each has secrets of its own."""
        return self if self.left is None else replace(self, left=None, keyring=_refuse)

    def expand(self, text: str) -> str:
        """Return `text` with every reference resolved.  Raises `VariableError` if a reference is unset, malformed, or
        names a file that may not be used.
        """
        return _REFERENCE.sub(self._resolve, text)

    def locate(self, text: str) -> Path:
        """Return the path that `text` means: `~` is the home, a relative one starts at the file's directory."""
        found = self.home / text[2:] if text == "~" or text.startswith("~/") else self.base / text
        # A sandbox contains only the paths that it is given, by name: `..` may lead through a folder that it lacks.
        return found.resolve() if ".." in found.parts else found

    def read_env_file(self, path: str, shown: str) -> dict[str, str]:
        """Return the variables of a dotenv file, literally: references in it are not expanded.

        Errors call the file `shown`, as it is written, since `path` may contain a variable's value.  Raises
        `VariableError` if the file cannot be read, or a line is not `NAME=value`.
        """
        values: dict[str, str] = {}
        for binding in parse_stream(io.StringIO(self._text_of(path, repr(shown)))):
            if binding.error or (binding.key is not None and binding.value is None):
                leading = binding.original.string
                line = binding.original.line + leading[: len(leading) - len(leading.lstrip())].count("\n")
                raise VariableError(f"{shown!r} line {line}: not in the form NAME=value")
            if binding.key is not None and binding.value is not None:
                values[binding.key] = binding.value
        self.taken[shown] = FileRead(self.locate(path), values)
        return values

    def _resolve(self, match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        body: str = match[1]
        if not match[2]:
            raise VariableError("'${' has no '}': write $${ for a plain ${")
        if "${" in body:
            raise VariableError("variables do not nest: write $${ for a plain ${")
        scope, colon, rest = body.partition(":")
        if scope == "workspaceFolder" and (not colon or rest.startswith("-")):
            return self._find_workspace(rest[1:] if colon else None)
        if not colon and scope == "userHome":
            return str(self.home)
        if colon and scope == "file":
            return self._read_file(rest)
        if colon and scope == "keyring":
            return self._read_keyring(rest)
        if colon and scope == "input":
            raise VariableError(f"{match[0][:64]!r} asks a person, which only an editor can: use ${{env:NAME}}")
        return self._look_up(rest if colon and scope == "env" else body, any_name=scope == "env")

    def _find_workspace(self, default: str | None) -> str:
        self.places.add("workspaceFolder")
        if self.workspace is not None:
            return str(self.workspace)
        if default is None:
            raise VariableError(
                "${workspaceFolder} has no value, because the client was not started in a project's folder: start it "
                "in one, or write the path",
                "unset_variable",
            )
        return default

    def _look_up(self, body: str, *, any_name: bool) -> str:
        name, has_default, default = body.partition(":-")
        if not name or not (any_name or _NAME.fullmatch(name)):
            raise VariableError(f"{name[:64]!r} is not a variable's name: write $${{ for a plain ${{")
        is_closed = self.bounds is not None and name not in self.bounds.allowed_env
        value = None if is_closed else self.environ.get(name)
        if value:
            self.secrets.update(secret_values({name: value}))
        if has_default:
            return value or default
        if is_closed:
            raise VariableError(closed_variable(name), "unset_variable")
        if value is None:
            raise VariableError(f"the variable {name[:64]!r} is not set", "unset_variable")
        return value

    def _read_file(self, path: str) -> str:
        value = self._text_of(path, f"the file {path!r}", private=True).removesuffix("\n").removesuffix("\r")
        self.taken[path] = FileRead(self.locate(path), value)
        self.secrets.add(value)
        return value

    def _read_keyring(self, name: str) -> str:
        if self.bounds is not None:
            raise VariableError("a project's file may not use a secret of yours: move the row into a file of your own")
        try:
            if self.left is not None:
                check_name(name)
                self.left.add(name)
                return f"${{keyring:{name}}}"
            value = self.keyring(name)
        except MissingSecretError as error:
            raise VariableError(str(error), "unset_variable") from error
        except SecretError as error:
            raise VariableError(str(error)) from error
        self.secrets.add(value)
        return value

    def _text_of(self, path: str, shown: str, *, private: bool = False) -> str:
        if self.bounds is not None:
            # What a person approves is the row: a file that it names may say something else tomorrow.
            raise VariableError("a project's file may not take values from other files: write them into the row")
        self.files.add(self.locate(path))
        try:
            return read_text(self.locate(path), MAX_VALUE_FILE_BYTES, private=private, is_own_word=True).text
        except TextFileError as error:
            raise VariableError(f"{shown} {error}") from error


def _refuse(_: str) -> str:
    raise SecretError("what all clients share may not use a secret that each has for itself: use it in env or headers")
