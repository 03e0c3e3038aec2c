"""The rules of the scan: gather a definition's texts, hold each against every rule.  Pure, total, bounded."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from quarterdeck.ledger.events.events import Subject
from quarterdeck.trust.diff.values import place_of, shown

from . import disguises
from .disguises import readings
from .phrases import Word, books, words_of
from .texts import MAX_TEXT_CHARS, Text, texts_of
from .tool_names import NO_NAMES, KnownNames, mixes_scripts

MAX_EXCERPT_CHARS: Final = 160
"""Enough to judge by; the definition itself is a command away."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's match; `place` is a JSON pointer into the document, empty for all; `excerpt` is escaped and cut."""

    rule: str
    place: str
    excerpt: str
    sentence: str


SCAN_VERSION: Final = 4
"""Rises with every change of what the rules find: what was scanned by an older one is scanned again."""

RULES: Final[Mapping[str, str]] = {
    "hidden-unicode": "the text contains invisible characters: models read them, people do not see them",
    "hidden-markup": "the text contains markup that hides part of it from people",
    "hidden-padding": "a long run of spaces or empty lines moves the rest of the text out of view",
    "long-base64": "the text contains Base64 that is long or decodes to words",
    "encoded-text": "the text contains an encoded message that models can read and people cannot",
    "leaking-markup": "an image or a link in the text would send data to another host",
    "runs-commands": "the text asks to download a program and run it",
    "claims-consent": "the text claims that the user has already agreed",
    "poses-as-system": "the text imitates a message of the system, the user or the client",
    "instructs-model": "the text gives the model orders beyond the use of this tool",
    "conceals-from-user": "the text asks to hide something from the user",
    "asks-secrets": "the text asks for secrets, or for files that contain them",
    "asks-context": "the text asks for the conversation, or for the model's own instructions",
    "shadows-tool": "the definition tries to change how other tools are used",
    "confusable-name": "the name can be confused with another name",
    "mixed-script": "a word contains look-alike letters of another script",
    "too-much-text": "the text is longer than the scan reads",
}
"""Rule ids, which the ledger keeps, and what each finds, for people."""


class RuleMatch(NamedTuple):
    """Where a rule matches: what is quoted, and a sentence of its own where the rule's does not say enough."""

    rule: str
    quote: str
    sentence: str = ""


MAX_FINDINGS: Final = 50
"""Of one definition: one is enough to look at it."""

_MAX_SENTENCE_CHARS: Final = 240


def scan_definition(kind: str, name: str, document: object, known: KnownNames = NO_NAMES) -> tuple[Finding, ...]:
    """Return the suspicious places of a definition, outer ones first.

    Args:
        kind: its subject; a launch is read by people alone, so that only hidden text counts there.
        name: the tool's own name; empty for the others.
        document: a JSON value.
        known: the names that it is held against.
    """
    found: dict[tuple[str, str], Finding] = {}
    for place, match in _matches(kind, name, document, known):
        finding = Finding(
            match.rule,
            place,
            shown(match.quote, MAX_EXCERPT_CHARS),
            shown(match.sentence or RULES[match.rule], _MAX_SENTENCE_CHARS),
        )
        found.setdefault((finding.rule, finding.place), finding)
        if len(found) == MAX_FINDINGS:
            break
    return tuple(found.values())


def _matches(kind: str, name: str, document: object, known: KnownNames) -> Iterator[tuple[str, RuleMatch]]:
    if kind == Subject.TOOL:
        yield from (("/name", match) for match in _name_matches(name, known))
    if kind == Subject.PROGRAM:
        return  # hashes, and paths that its launch has, too
    texts, beyond = texts_of(document)
    if beyond is not None:
        yield place_of(beyond.path), RuleMatch("too-much-text", beyond.text[:MAX_EXCERPT_CHARS])
    for text in texts:
        found = _unseen(text.text) if kind == Subject.LAUNCH else _text_matches(text, known)
        for match in found:
            yield place_of(text.path), match


def _name_matches(name: str, known: KnownNames) -> Iterator[RuleMatch]:
    if name in known.native:
        yield RuleMatch("shadows-tool", name, "a native tool has the same name")
    elif (owner := known.mistaken_for(name)) is not None:
        yield RuleMatch("confusable-name", name, f"the name can be confused with {owner.name}, {owner.what}")
    yield from _text_matches(Text(None, name, is_name=True), NO_NAMES)


def _text_matches(text: Text, known: KnownNames) -> Iterator[RuleMatch]:
    yield from _unseen(text.text)
    if (found := mixes_scripts(text.text)) is not None:
        yield RuleMatch("mixed-script", found[0])
    if len(text.text) < (_MIN_CHARS if text.text.isascii() else _MIN_SIGNS):
        return
    for rule, look in _PATTERNS:
        if (match := look(text.text)) is not None:
            yield RuleMatch(rule, _around(text.text, *match.span()))
    if (span := disguises.encoded(text.text)) is not None:
        yield RuleMatch("long-base64", text.text[span[0] : span[1]])
    said, words = words_of(text.text)
    matched: set[str] = set()
    for rule, start, end in _spoken(said, words, is_asking=text.is_of_parameter):
        if rule not in matched:
            matched.add(rule)
            yield RuleMatch(rule, _around(said, start, end))
    yield from _behind(text.text, matched)
    if (text.is_name or text.names_argument) and _is_greedy(text.text) and "asks-context" not in matched:
        yield RuleMatch("asks-context", text.text)
    if "shadows-tool" not in matched:
        yield from _meddling(said, known)


def _spoken(said: str, words: list[Word], *, is_asking: bool) -> Iterator[tuple[str, int, int]]:
    yield from books().spoken.find(words)
    if is_asking:
        yield from books().asking.find(words)
    if not said.isascii():
        for rule, pattern in books().unparted:
            if (found := pattern.search(said)) is not None:
                yield rule, *found.span()


def _behind(text: str, matched: Collection[str]) -> Iterator[RuleMatch]:
    """Yield what a text says in an encoding and not openly."""
    for reading in readings(text):
        if reading.is_certain:
            yield RuleMatch("encoded-text", reading.text)
            return
        said, words = words_of(reading.text[:MAX_TEXT_CHARS])
        for rule, start, end in _spoken(said, words, is_asking=False):
            if rule not in matched:
                yield RuleMatch("encoded-text", _around(said, start, end))
                return


def _is_greedy(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    is_wrapped = plain.startswith("_") and plain.endswith("_")
    return plain.strip("_") in _GREEDY_NAMES or (is_wrapped and plain.strip("_") in _HIDDEN_NAMES)


def _unseen(text: str) -> Iterator[RuleMatch]:
    places = disguises.hidden_characters(text)
    if places:
        words = disguises.hidden_words(text)
        sentence = f"the text contains {len(places)} invisible characters" if len(places) > 1 else ""
        yield RuleMatch("hidden-unicode", words or text[max(0, places[0] - 20) : places[0] + 60], sentence)


_MIN_CHARS: Final = 8
"""A shorter text gives no order."""

_MIN_SIGNS: Final = 5
"""The same in scripts where one sign may be a word."""

_GREEDY_NAMES: Final = frozenset(
    """
    all_messages assistant_context chain_of_thought chat_history chat_log complete_conversation conversation_context
    conversation_log entire_conversation message_history model_context previous_messages user_messages
    whole_conversation your_system_prompt conversation_history full_conversation llm_context most_recent_tool_call
    previous_tool_calls sidenote sidenotes side_note tool_call_history tools_list user_prompt_history
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""Arguments that models fill without being asked in words (HiddenLayer, "Exploiting MCP tool parameters", 2025)."""

_HIDDEN_NAMES: Final = frozenset(
    """
    chat context conversation history memory messages note notes prompt system thoughts
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""Between underscores (`_context_`) they mean the model's own, and no tool needs them."""

_POSING: Final = re.compile(
    r"</?\s{0,3}(?:important|system|secret|hidden|critical|urgent|admin|override|instructions?|assistant|system[_-]prompt"
    r"|system[_-]message|system[_-]reminder|user[_-]message)\s{0,3}>"
    r"|<\|[a-z_]{2,24}\|>|<｜[^｜\n]{2,30}｜>|<(?:start|end)_of_turn>|\[/?(?:INST|SYSTEM_PROMPT|TOOL_RESULTS|AVAILABLE_TOOLS)\]"
    r"|<</?SYS>>|</(?:tool|tools|tool_result|tool_results|tool_response|tool_output|function_result|function_results"
    r"|function_calls|tool_call|system-reminder)>"
    r"|^\s{0,8}(?:human|assistant)\s{0,2}:\s|^\s{0,3}#{2,4}\s{0,3}(?:instruction|response|human|assistant|system)s?\s{0,2}:"
    r"|^\s{0,8}(?:#{1,6}\s{0,3})?\[?(?:system|assistant|human|user)\s{0,3}(?:message|prompt|override)\]?\s{0,3}:"
    r"|^\s{0,8}\[system\]",
    re.IGNORECASE | re.MULTILINE,
)
"""Tags and turns that only a client, a model's template or a system prompt writes."""

_HOLE: Final = (
    r"(?:\{[^{}\s]{1,64}\}|\$\{|\$[A-Za-z_]|<[A-Za-z][\w -]{0,40}>|%[sd]\b|\[[A-Za-z][\w ]{1,40}\]|\.{3}|…"
    r"|=(?:DATA|CONTENTS?|SECRETS?|TEXT|MESSAGES?|CONVERSATION|HISTORY|SUMMARY|INSERT|BASE64)\b)"
)
"""Where something is to be filled in."""

_LEAK: Final = re.compile(
    rf"!\[[^\]\n]{{0,200}}\]\(\s{{0,4}}<?https?://[^)\s]{{0,400}}?(?:{_HOLE}|\?[^)\s=]{{1,40}}=)"
    rf"|(?<!!)\[[^\]\n]{{1,200}}\]\(\s{{0,4}}<?https?://[^)\s?]{{0,300}}\?[^)\s]{{0,200}}?{_HOLE}"
    rf"|^\s{{0,3}}\[[^\]\n]{{1,80}}\]:\s{{0,4}}<?https?://\S{{0,300}}?(?:{_HOLE}|\?[^\s=]{{1,40}}=)"
    rf"|<img\b[^<>]{{0,200}}\bsrc\s{{0,3}}=\s{{0,3}}[\"']?https?://[^\s\"'>]{{0,300}}?(?:{_HOLE}|\?[^\s=\"'>]{{1,40}}=)"
    rf"|<a\b[^<>]{{0,200}}\bhref\s{{0,3}}=\s{{0,3}}[\"']?https?://[^\s\"'>?]{{0,300}}\?[^\s\"'>]{{0,200}}?{_HOLE}",
    re.IGNORECASE | re.MULTILINE,
)
"""Markup whose URL is requested by whoever shows it, with data filled in: showing it sends the data."""

_SHELL: Final = r"(?:sudo\s{1,4})?(?:(?:ba|z|da|k|fi)?sh|python[\d.]{0,4}|perl|ruby|node|iex|pwsh|powershell)\b"
_DOWNLOAD: Final = r"(?:curl|wget|iwr|irm|invoke-webrequest|invoke-restmethod)\b"
_RUN: Final = re.compile(
    rf"\b{_DOWNLOAD}[^\n|;]{{0,300}}\|\s{{0,4}}{_SHELL}"
    rf"|\b(?:(?:ba|z|da|k)?sh|eval|source|python[\d.]{{0,4}})\b[^\n|;]{{0,12}}(?:<\(|\$\(|`)\s{{0,4}}{_DOWNLOAD}"
    rf"|\biex\b[^\n]{{0,20}}\b(?:{_DOWNLOAD}|new-object)"
    r"|\bbase64\s{1,4}(?:-d|-D|--decode)\b[^\n|;]{0,60}\|\s{0,4}(?:ba|z|da)?sh\b",
    re.IGNORECASE,
)
"""A program from elsewhere, run without being read."""

_PATTERNS: Final[tuple[tuple[str, Callable[[str], re.Match[str] | None]], ...]] = (
    ("hidden-markup", disguises.hiding_markup),
    ("hidden-padding", disguises.padding),
    ("poses-as-system", _POSING.search),
    ("leaking-markup", _LEAK.search),
    ("runs-commands", _RUN.search),
)

_ORDER: Final = re.compile(
    r"\b(?:must|always|never|do not|don't|override|replace|redirect|intercept|modify|instead of)\b"
    r"|\b(?:is|was|gets|has been) (?:called|used|invoked|run|available|executed)\b",
    re.IGNORECASE,
)
_ORDER_CHARS: Final = 100
"""How near to the name an order about it stands."""

_MAX_MENTIONS: Final = 50


def _meddling(said: str, known: KnownNames) -> Iterator[RuleMatch]:
    """Yield another server's tool, named in full or next to an order."""
    for count, (name, start, end, is_qualified) in enumerate(known.mentions(said)):
        if count == _MAX_MENTIONS:
            return
        near = said[max(0, start - _ORDER_CHARS) : end + _ORDER_CHARS]
        if is_qualified or _ORDER.search(near):
            yield RuleMatch("shadows-tool", _around(said, start, end), f"the text names another server's tool, {name}")
            return


def _around(text: str, start: int, end: int) -> str:
    first, last = max(0, start - 16), max(end, start + 40) + 24
    # A word that would be cut is left out, up to what matched; one that is longer than any word is cut.
    if first and not text[first - 1].isspace():
        blank = re.search(r"\s", text[first:start])
        first += blank.end() if blank else 0
    if last < len(text) and not text[last].isspace():
        blanks = list(re.finditer(r"\s", text[end:last]))
        last = end + blanks[-1].start() if blanks else last
    return text[first:last].strip()
