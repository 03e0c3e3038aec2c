"""Verdicts on greetings: initialize, server/discover, and versions that do not exist.  Pure."""

from collections.abc import Iterator
from typing import Final

from quarterdeck.check.episode import Episode, Recording
from quarterdeck.check.schemas import shown
from quarterdeck.check.verdicts import Verdict
from quarterdeck_protocol.mcp.client.eras import HANDSHAKE_REVISIONS, MODERN_REVISIONS

from .shapes import error_words, refusal_problem, shape_problem, unanswered

SOON_S: Final = 10.0

UNSUPPORTED_VERSION: Final = -32022

UNKNOWN_MODERN: Final = (-32022, -32601)
"""With which a server says that it does not speak an older revision."""


def judge(recording: Recording) -> Iterator[Verdict]:
    """See the module."""
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
"""What a status says in place of a greeting."""


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
