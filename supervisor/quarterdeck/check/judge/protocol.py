"""Verdicts on the protocol: greetings, messages, lists, and HTTP's statuses, types, sessions and origins.  Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quarterdeck.check.episode import MEMBERS, Episode, Exchange, HttpTrial, Recording, items_of
from quarterdeck.check.schemas import shown
from quarterdeck.check.verdicts import Verdict
from quarterdeck_protocol.mcp.client.eras import HANDSHAKE_REVISIONS, MODERN_REVISIONS
from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from quarterdeck_protocol.schema.canonical import JsonValue, canonical_json

from .shapes import error_words, refusal_problem, shape_problem, unanswered

SOON_S: Final = 10.0

UNSUPPORTED_VERSION: Final = -32022


def judge_greetings(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    greeted = [each for each in recording.episodes if each.era]
    yield Verdict("greeting", "" if greeted else _why_not(recording))
    for episode in recording.episodes:
        yield from _initialize(episode)
    if greeted:
        yield from _modern(recording)
        soonest = min((each.greeted_s for each in greeted if each.greeted_s is not None), default=0.0)
        yield Verdict("greeted-soon", f"it took {soonest:.1f} s" if soonest > SOON_S else "")
    if (legacy := recording.named("version")) is not None and (asked := legacy.one("version")) is not None:
        yield Verdict(
            "version-answered",
            _version_problem(asked.result_members.get("protocolVersion"))
            if asked.result_members
            else unanswered(asked),
        )


def _why_not(recording: Recording) -> str:
    asked = recording.all_of("initialize", "discover")
    if not asked:
        return "it was not asked"
    if any(exchange.method in episode.asked for episode in recording.episodes for exchange in asked):
        return "it sends back what it is sent, as `cat` does: it is no MCP server"
    if asked[0].error is not None:
        return error_words(asked[0])
    problem = unanswered(asked[0]) or "the answer is no greeting"
    return f"{problem}: {_HTTP[asked[0].status]}" if asked[0].status in _HTTP else problem


_NOT_LET_IN: Final = "it wants other credentials than the headers of its row"

_HTTP: Final = {
    401: _NOT_LET_IN,
    403: _NOT_LET_IN,
    404: "is its URL right?",
    405: "is its URL right? The SSE transport of 2024-11-05 is not tried",
}
"""Explanations of a status in place of a handshake."""


def _initialize(episode: Episode) -> Iterator[Verdict]:
    for exchange in episode.of("initialize"):
        if exchange.result_members:
            agreed = exchange.result_members.get("protocolVersion")
            yield Verdict("initialize-result", shape_problem(exchange, episode) or _version_problem(agreed))


def _version_problem(agreed: object) -> str:
    if agreed in HANDSHAKE_REVISIONS:
        return ""
    return f"it answers with version {shown(str(agreed))}, which is none that initialize can agree on"


def _modern(recording: Recording) -> Iterator[Verdict]:
    episode = recording.named("modern")
    if episode is None or (asked := episode.one("discover")) is None:
        return
    if episode.era not in MODERN_REVISIONS:
        said = error_words(asked) if asked.error is not None else unanswered(asked) or "the answer is none"
        yield Verdict("modern-era", f"server/discover: {said}")
        return
    yield Verdict("modern-era")
    yield Verdict("discover-result", shape_problem(asked, episode))
    if (wrong := episode.one("version")) is not None:
        yield Verdict("modern-version", refusal_problem(wrong, UNSUPPORTED_VERSION))


def judge_messages(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    for episode in recording.episodes:
        if not episode.era:
            if episode.junk and not recording.is_remote:
                yield Verdict("clean-stdout", _junk(episode), episode.name)
            continue
        if recording.is_remote:
            yield from _each("message-shape", [f"an answer is no message: {each}" for each in episode.junk])
        else:
            yield Verdict("clean-stdout", _junk(episode), episode.name if episode.junk else "")
        yield from _each("message-shape", episode.misshapen)
        yield from _each("reply-once", episode.strays)
        yield from _each("asks-declared", [f"it sent {method}" for method in episode.asked])
        yield from _each("notification-silent", [f"{each} was answered" for each in episode.answered_notifications])
        for ping in episode.of("ping"):
            words = error_words(ping) if ping.error is not None else unanswered(ping) or shape_problem(ping, episode)
            yield Verdict("ping", words)
        for unknown in episode.of("unknown-method"):
            yield Verdict("unknown-method", refusal_problem(unknown, METHOD_NOT_FOUND), episode.name)


def _junk(episode: Episode) -> str:
    if not episode.junk:
        return ""
    if episode.junk_lines == 1:
        return f"a line on stdout that is no message: {episode.junk[0]}"
    return f"{episode.junk_lines:,} lines on stdout that are no messages, the first: {episode.junk[0]}"


def _each(check: str, problems: list[str]) -> Iterator[Verdict]:
    yield Verdict(check)
    yield from (Verdict(check, problem) for problem in problems)


def judge_lists(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    for episode in recording.episodes:
        for method in MEMBERS:
            if pages := episode.of(f"list:{method}"):
                yield from _list(method, pages, episode)
            for exchange in episode.of(f"undeclared:{method}"):
                count = len(items_of(exchange))
                words = (
                    f"{method} answers with {count}, and capabilities do not name {MEMBERS[method]}" if count else ""
                )
                yield Verdict("capability-declared", words, episode.name if count else "")
        yield from _twice(episode)
        for unknown in episode.of("unknown-cursor"):
            yield Verdict("unknown-cursor", refusal_problem(unknown, INVALID_PARAMS), episode.name)
    yield from _both_eras(recording)


def _list(method: str, pages: list[Exchange], episode: Episode) -> Iterator[Verdict]:
    first = pages[0]
    is_unknown = first.error_code == METHOD_NOT_FOUND
    if first.error is not None and not is_unknown:
        yield Verdict("list-answered", error_words(first), method)
        return
    if first.result is None:
        is_optional = method == "resources/templates/list" and is_unknown
        words = error_words(first) if is_unknown else unanswered(first)
        yield Verdict("capability-kept", "" if is_optional else words, method)
        return
    yield Verdict("list-answered")
    yield Verdict("capability-kept")
    for page in pages:
        yield Verdict("list-shape", shape_problem(page, episode), f"{method}, {episode.name}")
    yield Verdict("list-pages", _pages_problem(pages), method)


def _pages_problem(pages: list[Exchange]) -> str:
    cursors = [page.result_members.get("nextCursor") for page in pages]
    told = [cursor for cursor in cursors if isinstance(cursor, str)]
    if len(set(told)) < len(told):
        return "a cursor comes back: the pages have no end"
    if isinstance(cursors[-1], str):
        return unanswered(pages[-1]) or f"there are more than {len(pages)} pages"
    if pages[-1].result is None:
        return error_words(pages[-1]) if pages[-1].error is not None else unanswered(pages[-1])
    return ""


def _twice(episode: Episode) -> Iterator[Verdict]:
    pages, again = episode.of("list:tools/list"), episode.one("again:tools/list")
    if not pages or again is None or again.result is None:
        return
    before, after = items_of(pages[0]), items_of(again)
    problem = ""
    if _text(before) != _text(after):
        names = _names(before), _names(after)
        same = sorted(names[0]) == sorted(names[1])
        problem = (
            ("its order changes" if names[0] != names[1] else "its definitions change")
            if same
            else ("different tools are listed")
        )
    yield Verdict("list-stable", problem, "tools/list")


def _both_eras(recording: Recording) -> Iterator[Verdict]:
    lists = {
        episode.name: [item for page in pages for item in items_of(page)]
        for episode in recording.episodes
        if (pages := episode.of("list:tools/list"))
    }
    if "legacy" not in lists or "modern" not in lists:
        return
    older, newer = set(_names(lists["legacy"])), set(_names(lists["modern"]))
    problem = "; ".join(
        f"{era} alone: {shown(', '.join(sorted(names)))}"
        for era, names in (("initialize", older - newer), ("server/discover", newer - older))
        if names
    )
    yield Verdict("eras-agree", problem)


def _names(items: list[JsonValue]) -> list[str]:
    return [str(item.get("name")) for item in items if isinstance(item, dict)]


def _text(items: list[JsonValue]) -> str:
    try:
        return canonical_json(items)
    except (RecursionError, TypeError):
        return ""


EVENTS: Final = "text/event-stream"

CONTENT_TYPES: Final = ("application/json", EVENTS)


class Wanted(NamedTuple):
    """The check that is about a trial, and the statuses that pass it."""

    check: str
    statuses: tuple[int, ...]


TRIALS: Final = {
    "notification": Wanted("http-accepted", (202,)),
    "get": Wanted("http-get", (405,)),
    "origin": Wanted("http-origin", (403,)),
    "unknown-version": Wanted("http-version", (400,)),
    # A server that gives ids need not ask for them.
    "no-session": Wanted("http-session-needed", (400, 200)),
    "unknown-session": Wanted("http-session-unknown", (404,)),
    "ended-session": Wanted("http-session-ended", (404,)),
}


def judge_http(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    for episode in recording.episodes:
        if episode.era:
            yield from _http_episode(episode)


def _http_episode(episode: Episode) -> Iterator[Verdict]:
    for trial in episode.http:
        if (wanted := TRIALS.get(trial.purpose)) is not None:
            yield Verdict(wanted.check, _status_problem(trial, wanted.statuses))
    for content_type in episode.content_types:
        problem = "" if content_type in CONTENT_TYPES else f"an answer is of type {content_type}"
        yield Verdict("http-content-type", problem)
    if episode.session_id:
        is_fine = all("!" <= char <= "~" for char in episode.session_id)
        yield Verdict("http-session-id", "" if is_fine else f"its id is {episode.session_id[:80]!a}")


def _status_problem(trial: HttpTrial, wanted: tuple[int, ...]) -> str:
    if trial.status in wanted or (trial.purpose == "get" and (trial.status, trial.content_type) == (200, EVENTS)):
        return ""
    if not trial.status:
        return "no answer"
    return f"HTTP status {trial.status}, not {wanted[0]}"
