"""Verdicts on HTTP itself: statuses, content types, sessions, origins.  Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quarterdeck.check.episode import Episode, HttpTrial, Recording
from quarterdeck.check.verdicts import Verdict

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


def judge(recording: Recording) -> Iterator[Verdict]:
    """See the module."""
    for episode in recording.episodes:
        if episode.era:
            yield from _episode(episode)


def _episode(episode: Episode) -> Iterator[Verdict]:
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
