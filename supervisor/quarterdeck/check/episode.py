"""The recording of a server: episodes with everything sent and received, each one start of its process.  Pure.

Everything in here is bounded by the recorder.  JSON values are as decoded.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from quarterdeck_protocol.schema.canonical import JsonValue

from .decoys import Decoy

RequestId: TypeAlias = int | str

Members: TypeAlias = dict[str, JsonValue]


class Ending(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    SILENT = "silent"
    """No answer came in time."""
    LOST = "lost"
    """The server ended first."""
    REFUSED = "refused"
    """HTTP answered without a message."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changed paths below the directories that a server may write; `shrunk` are some of `changed`."""

    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    shrunk: tuple[str, ...] = ()

    @property
    def any(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.made, *self.changed, *self.removed)


NOT_REACHED: Final = " cannot be reached"
"""Behind a host in `Exchange.outside`, as the sandbox's hints put it."""


class Did(StrEnum):
    """What happened to a path of the world."""

    OPENED = "opened"
    LISTED = "listed"
    CHANGED = "changed"
    MADE = "made"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Touches:
    """What a server did in the world during one call, or between calls.

    Attributes:
        seen: what happened, and the path below the home, whose names the server may have chosen; each pair once.
        more: events with further new names, which were left out.
        is_lossy: whether the kernel dropped events because there were too many.
    """

    seen: tuple[tuple[Did, str], ...] = ()
    more: int = 0
    is_lossy: bool = False


@dataclass(frozen=True, slots=True)
class Marked:
    """Content of a decoy that the server sent: the decoy, the request that it answered if any, or `stderr`."""

    decoy: str
    request_id: RequestId | None = None
    in_stderr: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its outcome.

    Attributes:
        purpose: why it was sent, a word of the scenario by which judges find it.
        subject: its tool, prompt or resource; empty for none.
        reply: the whole message that answered it.
        waited_s: seconds until the answer, or until it was given up.
        progress: params of the progress notifications with its token, in order.
        outside: hosts and files that it wanted and was refused.
        late: whether an answer came after it was cancelled.
        status: of HTTP; 0 without one.
        touches: what it did in the world meanwhile, if it is a call.
    """

    purpose: str
    method: str
    params: Members
    request_id: RequestId
    ending: Ending
    reply: Members | None = None
    waited_s: float = 0.0
    subject: str = ""
    progress: tuple[Members, ...] = ()
    changes: FileChanges = FileChanges()
    outside: tuple[str, ...] = ()
    late: bool = False
    status: int = 0
    touches: Touches = Touches()

    @property
    def result(self) -> JsonValue:
        """The result; None without one."""
        return (self.reply or {}).get("result")

    @property
    def result_members(self) -> Members:
        """The members of a result that is an object, else none."""
        return self.result if isinstance(self.result, dict) else {}

    @property
    def error(self) -> Members | None:
        """The error; None without one."""
        error = (self.reply or {}).get("error")
        return error if isinstance(error, dict) else None

    @property
    def error_code(self) -> JsonValue:
        """The error's code."""
        return (self.error or {}).get("code")


@dataclass(frozen=True, slots=True)
class End:
    """The end of the process.

    Attributes:
        asked: `stdin`, `half line` or `term`; empty if it ended by itself.
        after_s: seconds that it took; None if it had to be killed.
        code: exit status, or minus the signal.
        limit: limit of the sandbox that ended it.
        said: its stderr since it was asked.
    """

    asked: str = ""
    after_s: float | None = None
    code: int | None = None
    limit: str | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class HttpTrial:
    """An HTTP request made for its status: 0 without an answer; `content_type` in lower case, without parameters."""

    purpose: str
    status: int
    content_type: str = ""


@dataclass(slots=True)
class Episode:
    """One start of the server, or one connection to a remote one.

    Attributes:
        era: the agreed revision; empty without a handshake.
        junk: lines on stdout that are no JSON objects, cut.
        misshapen: flaws of messages, each once.
        strays: answers to no request, or second ones.
        answered_notifications: methods of notifications that were answered.
        asked: methods of its own requests.
        foreign_progress: tokens of progress notifications that belong to no request.
        outside: hosts and files that it wanted before the first request.
        greeted_s: seconds from its start to the answer of the handshake.
        idle_cpu_s: processor time that it took in `idle_s` without a request.
        gone_at: what was tried when it ended by itself; empty while it lives.
        http: requests that were about HTTP itself.
        content_types: of answers to requests, each once.
        session_id: its session; empty for none.
        touches: what it did in the world outside of calls.
        marked: contents of decoys in what it sent, each once.
    """

    name: str
    era: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    junk: list[str] = field(default_factory=list)
    junk_lines: int = 0
    misshapen: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    answered_notifications: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    foreign_progress: list[str] = field(default_factory=list)
    outside: tuple[str, ...] = ()
    greeted_s: float | None = None
    idle_cpu_s: float | None = None
    idle_s: float = 0.0
    cpu_s: float | None = None
    peak_bytes: int | None = None
    end: End = End()
    gone_at: str = ""
    stderr: str = ""
    http: list[HttpTrial] = field(default_factory=list)
    content_types: list[str] = field(default_factory=list)
    session_id: str = ""
    touches: list[Touches] = field(default_factory=list)
    marked: list[Marked] = field(default_factory=list)

    def of(self, *purposes: str) -> list[Exchange]:
        """Return the exchanges of these purposes, in order."""
        return [each for each in self.exchanges if each.purpose in purposes]

    def one(self, purpose: str) -> Exchange | None:
        """Return the first exchange of this purpose."""
        return next(iter(self.of(purpose)), None)


@dataclass(frozen=True, slots=True)
class Recording:
    """All episodes of a server in order, what was not tried and why, and the sandbox's gaps on this machine.

    Attributes:
        decoys: those in its home; none of a remote server.
        unwatched: why what it did with them was not watched; empty if it was.
        has_runner: whether a package runner starts it, which reads settings of its own.
        hosts: all that it asked for, where they were recorded; those of one request are in its `outside`, too.
    """

    episodes: tuple[Episode, ...]
    untried: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    is_remote: bool = False
    decoys: tuple[Decoy, ...] = ()
    unwatched: str = ""
    has_runner: bool = False
    hosts: tuple[str, ...] = ()

    def named(self, name: str) -> Episode | None:
        """Return the first episode of this name."""
        return next((each for each in self.episodes if each.name == name), None)

    def all_of(self, *purposes: str) -> list[Exchange]:
        """Return the exchanges of these purposes in all episodes."""
        return [each for episode in self.episodes for each in episode.of(*purposes)]

    @property
    def tools(self) -> list[JsonValue]:
        """Its tools, in the first era that lists any."""
        return self.listed("tools/list")

    def listed(self, method: str) -> list[JsonValue]:
        """Return the items of a list, all pages, as first listed."""
        for episode in self.episodes:
            if pages := episode.of(f"list:{method}"):
                found = [items_of(page) for page in pages]
                return [item for items in found for item in items]
        return []


MEMBERS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""The lists that there are, and where a page has its items."""


def items_of(page: Exchange) -> list[JsonValue]:
    """Return the items of one page of a list; none if it is no list."""
    items = page.result_members.get(MEMBERS[page.method])
    return items if isinstance(items, list) else []
