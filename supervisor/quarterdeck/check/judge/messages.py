"""Verdicts on messages as such: their shape, their ids, who asks whom, what is unknown.  Pure."""

from collections.abc import Iterator

from quarterdeck.check.episode import Episode, Recording
from quarterdeck.check.verdicts import Verdict
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND

from .shapes import error_words, refusal_problem, shape_problem, unanswered


def judge(recording: Recording) -> Iterator[Verdict]:
    """See the module."""
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
