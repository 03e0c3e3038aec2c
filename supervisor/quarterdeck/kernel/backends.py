"""The seams through which tools reach files and commands, and the inert pair for tools that have no business there.

Says nothing about confinement: an implementation decides what a path or a command may touch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from quarterdeck_protocol.tools import CancelToken


@dataclass(frozen=True, slots=True)
class FileStat:
    """What a path names, links followed.  `modified_at` is seconds since the epoch."""

    is_file: bool
    is_directory: bool
    size_bytes: int
    modified_at: float


class Fs(Protocol):
    """Files by path.  Every method raises `OSError` with the caller's spelling of the path."""

    async def read_text(self, path: str) -> str:
        """The file as UTF-8, undecodable bytes replaced by U+FFFD."""
        ...

    async def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        ...

    async def write_file(self, path: str, data: str | bytes) -> None:
        """Create or replace the file; text is written as UTF-8."""
        ...

    async def stat(self, path: str) -> FileStat:
        """What is there."""
        ...

    async def readdir(self, path: str) -> Sequence[str]:
        """The names in a directory."""
        ...

    async def mkdir(self, path: str, *, recursive: bool = False) -> None:
        """Create a directory, with `recursive` its parents too, and then an existing one is no error."""
        ...

    async def rm(self, path: str, *, recursive: bool = False, ignore_missing: bool = False) -> None:
        """Remove a file, with `recursive` a directory and all in it."""
        ...

    async def exists(self, path: str) -> bool:
        """Whether anything is there."""
        ...


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended.  `code` is None when a signal ended it."""

    stdout: str
    stderr: str
    code: int | None


class ShellProcess(Protocol):
    """A command under way."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def kill(self, signal: int) -> None:
        """Send `signal` to the command and all that it started; harmless when it has ended."""
        ...

    def on_exit(self, listener: Callable[[int | None, int | None], None]) -> None:
        """Call `listener` once with exit status and signal, one of them None; at once when it has ended."""
        ...


class Shell(Protocol):
    """Commands, as one line for `/bin/sh`.  A relative or absent `cwd` starts from the context's."""

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        cancel: CancelToken | None = None,
        timeout_s: float | None = None,
        stdin: str = "",
    ) -> ExecResult:
        """Run `command` to its end.

        Cancelling, by token or task, ends the command and all that it started.

        Raises:
            TimeoutError: it ran longer than `timeout_s`, seconds, and was ended.
            OSError: it could not be started.
        """
        ...

    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> ShellProcess:
        """Start `command` and leave it running.

        Raises:
            OSError: it could not be started.
        """
        ...


class BackendUnavailableError(OSError):
    """A tool reached for files or commands in a context that has none: the tool's mistake, not the user's."""


class UnavailableFs:
    """No files: every use raises `BackendUnavailableError`."""

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise BackendUnavailableError("this context has no files: its tools run elsewhere")

    read_text = read_bytes = write_file = stat = readdir = mkdir = rm = exists = _refuse


class UnavailableShell:
    """No commands: every use raises `BackendUnavailableError`."""

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise BackendUnavailableError("this context runs no commands: its tools run elsewhere")

    exec = spawn = _refuse
