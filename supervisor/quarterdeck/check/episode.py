"""What was recorded of a server: episodes, each one start of its process, with what was sent and what came.  Pure.

Everything in here is bounded by whoever recorded it (`peer`).  JSON values are as decoded.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from quarterdeck_protocol.schema.canonical import JsonValue

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
    """What changed in the directories that a server may write, by paths below them; `shrunk` of `changed`."""

    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    shrunk: tuple[str, ...] = ()

    @property
    def any(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.made, *self.changed, *self.removed)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and what came of it.

    Attributes:
        purpose: why it was sent: a word of the scenario's, by which judges find it.
        subject: the tool, prompt or resource that it is about; empty for none.
        reply: the whole message that answered it.
        waited_s: until the answer, or until nobody waited any more.
        progress: the params of the progress notifications that named its token, in order.
        outside: hints of what it wanted and was not given: hosts, files.
        late: whether an answer came after it was cancelled.
        status: of HTTP; 0 where there is none.
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

    @property
    def result(self) -> JsonValue:
        """The result; None where there is none."""
        return (self.reply or {}).get("result")

    @property
    def result_members(self) -> Members:
        """The result's members; none where it is no object."""
        return self.result if isinstance(self.result, dict) else {}

    @property
    def error(self) -> Members | None:
        """The error; None where there is none."""
        error = (self.reply or {}).get("error")
        return error if isinstance(error, dict) else None

    @property
    def error_code(self) -> JsonValue:
        """The error's code."""
        return (self.error or {}).get("code")


@dataclass(frozen=True, slots=True)
class End:
    """How the process ended.

    Attributes:
        asked: how it was asked to: `stdin`, `half line`, `term`; empty when it ended of itself.
        after_s: how long that took; None when it had to be killed.
        code: its status, or minus the signal that ended it.
        limit: the limit of the sandbox that ended it.
        said: what it wrote on stderr since it was asked.
    """

    asked: str = ""
    after_s: float | None = None
    code: int | None = None
    limit: str | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class HttpTrial:
    """One HTTP request that was made for the sake of its status.

    Attributes:
        purpose: a word of the scenario's, by which judges find it.
        status: of the answer; 0 for none.
        content_type: of the answer, in small letters, without parameters.
    """

    purpose: str
    status: int
    content_type: str = ""


@dataclass(slots=True)
class Episode:
    """One start of the server, or one connection to a remote one.

    Attributes:
        name: of the part of the scenario.
        era: the revision that was spoken; empty when no greeting was answered.
        junk: lines on its stdout that are no JSON objects, cut.
        misshapen: what is wrong with messages, each once.
        strays: answers to no request, or second ones.
        answered_notifications: replies without a request since a notification of this method was sent.
        asked: methods of its own requests.
        foreign_progress: progress notifications whose token nobody gave.
        outside: hints of what it wanted before anything was asked.
        greeted_s: from its start to the greeting's answer.
        idle_cpu_s: processor time that it took in `idle_s` without a request.
        gone_at: what was being tried when it ended of itself; empty while it lives.
        http: requests that were about HTTP itself.
        content_types: of answers to requests, each once.
        session_id: the one that it gave; empty for none.
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

    def of(self, *purposes: str) -> list[Exchange]:
        """The exchanges of these purposes, in order."""
        return [each for each in self.exchanges if each.purpose in purposes]

    def one(self, purpose: str) -> Exchange | None:
        """The first exchange of this purpose."""
        return next(iter(self.of(purpose)), None)


@dataclass(frozen=True, slots=True)
class Recording:
    """All episodes of a server, in order.

    Attributes:
        untried: what was not tried, and why.
        gaps: what of the sandbox is weaker on this machine than wanted.
        is_remote: whether it is no process of this machine.
    """

    episodes: tuple[Episode, ...]
    untried: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    is_remote: bool = False

    def named(self, name: str) -> Episode | None:
        """The first episode of this name."""
        return next((each for each in self.episodes if each.name == name), None)

    def all_of(self, *purposes: str) -> list[Exchange]:
        """The exchanges of these purposes of all episodes."""
        return [each for episode in self.episodes for each in episode.of(*purposes)]

    @property
    def tools(self) -> list[JsonValue]:
        """The tools that it listed, in the first era that lists any."""
        return self.listed("tools/list")

    def listed(self, method: str) -> list[JsonValue]:
        """The items of a list, all pages, as first listed."""
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
    """The items of one page of a list; none where it is no list."""
    items = page.result_members.get(MEMBERS[page.method])
    return items if isinstance(items, list) else []
