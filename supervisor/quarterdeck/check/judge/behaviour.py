"""Verdicts on what a server does: files, network, memory, processor time; what it survives, how it ends.  Pure."""

from collections.abc import Iterator
from typing import Final

from quarterdeck.check.decoys import DecoyKind
from quarterdeck.check.episode import Did, End, Episode, Exchange, FileChanges, Members, Recording
from quarterdeck.check.observed import observe
from quarterdeck.check.schemas import shown
from quarterdeck.check.verdicts import Verdict
from quarterdeck.common.words import size

from .shapes import unanswered

IDLE_SHARE: Final = 0.25
"""The share of one processor that an idle server may take."""

LARGE_BYTES: Final = 512 * 1024 * 1024


def judge_effects(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    annotations = _annotations(recording)
    for episode in recording.episodes:
        if episode.era:
            hosts = [hint for hint in episode.outside if "reached" in hint]
            yield Verdict("network-untold", shown("; ".join(hosts)))
            files = [hint for hint in episode.outside if "hidden" in hint]
            yield Verdict("files-outside", shown("; ".join(files)))
        for exchange in episode.of("call"):
            yield from _call(exchange, annotations.get(exchange.subject, {}))
        if episode.end.limit is not None or episode.era:
            yield Verdict("limits-kept", f"it hit its limit {episode.end.limit}" if episode.end.limit else "")
        if episode.idle_cpu_s is not None and episode.idle_s:
            share = episode.idle_cpu_s / episode.idle_s
            yield Verdict("idle", f"it takes {share:.0%} of a processor" if share > IDLE_SHARE else "")
    peak = max((each.peak_bytes or 0 for each in recording.episodes), default=0)
    if peak:
        yield Verdict("memory", f"it took {size(peak)}" if peak > LARGE_BYTES else "")


def _call(exchange: Exchange, hints: Members) -> Iterator[Verdict]:
    place, changed = shown(exchange.subject), exchange.changes
    if hints.get("readOnlyHint") is True:
        yield Verdict("read-only-kept", shown(_words(changed)) if changed.any else "", place)
    elif hints.get("destructiveHint") is False:
        lost = FileChanges(changed=changed.shrunk, removed=changed.removed)
        yield Verdict("destroys-told", shown(_words(lost)) if lost.any else "", place)
    hosts = [hint for hint in exchange.outside if "reached" in hint]
    if hints.get("openWorldHint") is False:
        yield Verdict("closed-world-kept", shown("; ".join(hosts)), place)
    files = [hint for hint in exchange.outside if "hidden" in hint]
    yield Verdict("files-outside", shown("; ".join(files)), place if files else "")


def _words(changes: FileChanges) -> str:
    told = (("made", changes.made), ("changed", changes.changed), ("removed", changes.removed))
    return "; ".join(f"{verb} {', '.join(paths)}" for verb, paths in told if paths)


def _annotations(recording: Recording) -> dict[str, Members]:
    found: dict[str, Members] = {}
    for tool in recording.tools:
        if isinstance(tool, dict) and isinstance(hints := tool.get("annotations"), dict):
            found[str(tool.get("name"))] = hints
    return found


def judge_decoys(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts; none of a server that never answered, as nothing was tried with it."""
    if not recording.decoys or not any(episode.era for episode in recording.episodes):
        return
    observed = observe(recording)
    yield Verdict("decoys-kept")
    for taken in observed.taken:
        yield Verdict("decoys-kept", f"it took a decoy: the content of {taken.path} is in {shown(taken.carrier)}")
    if observed.is_complete and not recording.unwatched:
        yield Verdict("secrets-unopened")
    for touch in observed.touched:
        if touch.did is Did.OPENED and touch.kind is DecoyKind.SECRET:
            when = f"when {', '.join(touch.tools)} was called" if touch.tools else "without a call"
            yield Verdict("secrets-unopened", shown(f"it opened {touch.path} {when}"))


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
"""The end of stderr in which a stack trace is sought."""


def judge_endings(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
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
