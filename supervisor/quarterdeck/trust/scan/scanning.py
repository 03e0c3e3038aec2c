"""Scan one definition: gather its texts, hold each against the rules, tell what was found.  Pure, total, bounded."""

from collections.abc import Iterator
from typing import Final

from quarterdeck.ledger.events import Subject
from quarterdeck.trust.excerpt import place_of, shown

from .finding import MAX_EXCERPT_CHARS, Finding
from .rules import RULES, Strike, strikes, unseen
from .siblings import NOBODY, Siblings, siblings_of_names
from .texts import Text, texts_of

MAX_FINDINGS: Final = 50
"""Of one definition: one is enough to look at it."""

_MAX_SENTENCE_CHARS: Final = 240


def scan_definition(
    kind: str, name: str, document: object, siblings: Siblings | frozenset[str] = NOBODY
) -> tuple[Finding, ...]:
    """What is suspicious about a definition, the outer places first.

    Args:
        kind: of what it is; nobody but people reads a launch, so that only what they cannot see counts there.
        name: the tool's own name; empty for the others.
        document: a JSON value.
        siblings: the names around it; or all of them in one set: qualified ones are other servers' tools', the others
            native.
    """
    around = siblings if isinstance(siblings, Siblings) else siblings_of_names(siblings)
    found: dict[tuple[str, str], Finding] = {}
    for place, strike in _strikes(kind, name, document, around):
        finding = Finding(
            strike.rule,
            place,
            shown(strike.quote, MAX_EXCERPT_CHARS),
            shown(strike.sentence or RULES[strike.rule].sentence, _MAX_SENTENCE_CHARS),
        )
        found.setdefault((finding.rule, finding.place), finding)
        if len(found) == MAX_FINDINGS:
            break
    return tuple(found.values())


def _strikes(kind: str, name: str, document: object, siblings: Siblings) -> Iterator[tuple[str, Strike]]:
    if kind == Subject.TOOL:
        yield from (("/name", strike) for strike in _name_strikes(name, siblings))
    texts, beyond = texts_of(document)
    if beyond is not None:
        yield place_of(beyond.path), Strike("too-much-text", beyond.text[:MAX_EXCERPT_CHARS])
    for text in texts:
        found = unseen(text.text) if kind == Subject.LAUNCH else strikes(text, siblings)
        for strike in found:
            yield place_of(text.path), strike


def _name_strikes(name: str, siblings: Siblings) -> Iterator[Strike]:
    if name in siblings.native:
        yield Strike("shadows-tool", name, "the name is that of a native tool")
    elif (bearer := siblings.mistaken_for(name)) is not None:
        yield Strike("confusable-name", name, f"the name looks like {bearer.name}, {bearer.what}")
    yield from strikes(Text(None, name, is_name=True), NOBODY)
