"""Verdicts on bytes and endings: what survives what, what is read, how it ends.  Pure."""

from collections.abc import Iterator
from typing import Final

from quarterdeck.check.episode import End, Episode, Recording
from quarterdeck.check.verdicts import Verdict

from .shapes import unanswered

SURVIVES: Final = {
    "after:garbage": "survives-garbage",
    "after:odd-json": "survives-odd-json",
    "after:bad-utf8": "survives-bad-utf8",
    "pieces": "reads-pieces",
    "together": "reads-together",
    "long-line": "reads-long-lines",
}
"""The check of each purpose whose request has to be answered."""

ASKED: Final = {"stdin": "ends-with-stdin", "half line": "ends-within-line", "term": "ends-on-term"}

_STACKS: Final = ("Traceback (most recent call last)", "\n    at ")
"""The beginnings of a stack of calls, of Python and node."""

LAST_CHARS: Final = 4000
"""Of stderr, in which a stack is sought."""


def judge(recording: Recording) -> Iterator[Verdict]:
    """See the module."""
    for episode in recording.episodes:
        for exchange in episode.exchanges:
            if exchange.purpose in SURVIVES:
                yield Verdict(SURVIVES[exchange.purpose], unanswered(exchange))
        if episode.era and episode.end.asked:
            yield from _end(episode)


def _end(episode: Episode) -> Iterator[Verdict]:
    end = episode.end
    yield Verdict(ASKED[end.asked], "" if end.after_s is not None else "it went on, and had to be killed")
    if end.asked == "stdin" and end.after_s is not None:
        yield Verdict("quiet-end", _loudness(end))


def _loudness(end: End) -> str:
    if end.code:
        return f"it ends with status {end.code}" if end.code > 0 else f"it is ended by signal {-end.code}"
    return "it leaves a stack of calls on stderr" if any(each in end.said[-LAST_CHARS:] for each in _STACKS) else ""
