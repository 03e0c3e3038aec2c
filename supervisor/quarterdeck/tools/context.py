"""The surroundings of a tool call: the seams to files and commands, limits, progress, and the session's identity.

Confinement is not decided here: an implementation decides which paths and commands are allowed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, NoReturn, Protocol, Self

from quarterdeck_protocol.tools import CancelToken, ProgressNote, Report

from .results import STANDARD_BUDGET, OutputBudget


@dataclass(frozen=True, slots=True)
class FileStat:
    """The target of a path, links followed; `modified_at` is in seconds since the epoch.

    `revision` is another text whenever the content may be another (device, inode, size, time of change).
    """

    is_file: bool
    is_directory: bool
    size_bytes: int
    modified_at: float
    revision: str = ""


class EntryKind(StrEnum):
    """The kind of a directory's entry itself: a link is not followed."""

    FILE = "file"
    DIRECTORY = "dir"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory.  `size_bytes` is 0 for anything but a file."""

    name: str
    kind: EntryKind
    size_bytes: int


class OutsideRootsError(PermissionError):
    """A path that leads out of the session's roots; the text names the path and the roots."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()


class Fs(Protocol):
    """Files by path, relative ones from the context's directory.

    Every method raises `OSError` with the caller's spelling of the path; `OutsideRootsError` where an implementation
    has roots and the path leads out of them, by whatever links, at the moment of use.
    """

    async def read_text(self, path: str) -> str:
        """Return the file as UTF-8, undecodable bytes replaced by U+FFFD."""

    async def read_bytes(self, path: str) -> bytes:
        """Return the whole file."""

    async def open_binary(self, path: str) -> BinaryIO:
        """Open a regular file, which the caller reads in a thread and closes; refuse others without waiting."""

    async def write_file(self, path: str, data: str | bytes) -> None:
        """Create or replace the file, whole or not at all; text is written as UTF-8.

        An existing file keeps its mode and owner, and a link to it stays a link. Parents must exist.
        """

    async def stat(self, path: str) -> FileStat:
        """Return the target's kind, size and times."""

    async def readdir(self, path: str) -> Sequence[str]:
        """Return the names in a directory."""

    async def list_directory(self, path: str, most: int) -> tuple[Sequence[DirectoryEntry], int]:
        """Return the first `most` entries by name, directories before all else, and the total number."""

    async def real_path(self, path: str) -> str:
        """Return the absolute target of `path`, links resolved. The target may be missing, its parent not."""

    async def mkdir(self, path: str, *, recursive: bool = False) -> None:
        """Create a directory; with `recursive` its parents too, and an existing one is no error."""

    async def rm(self, path: str, *, recursive: bool = False, ignore_missing: bool = False) -> None:
        """Remove a file, with `recursive` a directory and all in it."""

    async def exists(self, path: str) -> bool:
        """Return whether the path leads to anything."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The end of a command; `code` is None when a signal ended it, `limit` the policy's name of a limit that did."""

    stdout: str
    stderr: str
    code: int | None
    signal: int | None = None
    limit: str | None = None


class Stream(StrEnum):
    """A command's output streams."""

    STDOUT = "stdout"
    STDERR = "stderr"


OnOutput = Callable[[Stream, bytes], None]
"""Takes a command's output as it comes, from the event loop; chunks of at most 64 KiB, cut anywhere."""


class ShellProcess(Protocol):
    """A running command."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def kill(self, signal: int) -> None:
        """Send `signal` to the command and its descendants; harmless after its end."""

    def on_exit(self, listener: Callable[[int | None, int | None], None]) -> None:
        """Call `listener` once with exit status and signal, one of them None; at once after its end.

        By then `on_output` has received all of its output.
        """

    async def stop(self, grace_s: float) -> None:
        """Send TERM, after `grace_s` KILL, to it and its descendants; wait until all are gone. Repeatable."""


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
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run `command` to its end. Raise `OSError` if it cannot be started, `TimeoutError` if it ran longer than
        `timeout_s`, seconds, and was ended.

        Cancelling, by token or task, ends the command and its descendants. With `on_output` the output goes there, as
        it comes, and the result's texts are empty.
        """

    async def spawn(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> ShellProcess:
        """Start `command` with an empty stdin and leave it running; without `on_output` its output is dropped.

        Raise `OSError` if it cannot be started.
        """


class BackendUnavailableError(OSError):
    """A tool used files or commands in a context that has none: the tool's mistake, not the user's."""


class UnavailableShell:
    """No commands: every use raises `BackendUnavailableError`."""

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise BackendUnavailableError("this context runs no commands")

    exec = spawn = _refuse


class Overflow(Protocol):
    """Keeps the full form of texts that a model was shown in part."""

    async def keep(self, tool: str, text: str) -> str | None:
        """Keep `text`, an output of `tool`. Return a path for the session's file tools, or None on failure."""


class ContextId:
    """The opaque identity of a context and of all its `with_cancel` copies.

    It lives as long as the session's box, and is meant as the key of a `weakref.WeakKeyDictionary` of stores.
    """

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class Framework:
    """Handles that a host lends to tools; without `read_state` there is no read-before-edit gate."""

    read_state: object | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The surroundings of a tool call.

    Contexts with the same identity are equal, whatever their other fields hold: each call's copy equals the box's base
    context.
    """

    cwd: str = field(compare=False)
    fs: Fs = field(compare=False)
    shell: Shell = field(compare=False)
    cancel: CancelToken = field(default_factory=CancelToken, compare=False)
    budget: OutputBudget = field(default=STANDARD_BUDGET, compare=False)  # the size limit of one result's text
    framework: Framework = field(default_factory=Framework, compare=False)
    context_id: ContextId = field(default_factory=ContextId, repr=False)
    overflow: Overflow | None = field(default=None, compare=False)  # keeps what the budget cuts; None keeps nothing
    report: Report | None = field(default=None, compare=False)  # takes notes of progress; None where none are wanted

    def with_cancel(self, cancel: CancelToken, report: Report | None = None) -> Self:
        """Return the same context, identity included, for a call that `cancel` stops; `report` takes its progress."""
        # Spelt out: `dataclasses.replace` takes as long as all else that the kernel does for a call.
        return type(self)(
            self.cwd,
            self.fs,
            self.shell,
            cancel,
            self.budget,
            self.framework,
            self.context_id,
            self.overflow,
            report or self.report,
        )

    def tell(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the call's progress, if it is wanted."""
        if self.report is not None:
            self.report(ProgressNote(progress, total, message))
