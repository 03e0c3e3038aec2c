"""The rules of the scan, and what each looks at.  Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from . import hidden
from .finding import Rule
from .phrases import PHRASEBOOK
from .siblings import Siblings, mixes_scripts
from .texts import Text
from .words import words_of

SCAN_VERSION: Final = 1
"""Rises with every change of what the rules find: what was scanned by an older one is scanned again."""

RULES: Final[Mapping[str, Rule]] = {
    rule.id: rule
    for rule in (
        Rule("hidden-unicode", "the text holds characters that people do not see and models read"),
        Rule("hidden-markup", "the text holds markup that hides a part of it from people"),
        Rule("hidden-padding", "blanks push the rest of the text out of sight"),
        Rule("long-base64", "the text holds a long or readable piece in Base64"),
        Rule("poses-as-system", "the text poses as a message of the system, of the user or of highest importance"),
        Rule("instructs-model", "the text gives the model orders that go beyond this tool"),
        Rule("conceals-from-user", "the text asks for something to be kept from the user"),
        Rule("asks-secrets", "the text asks for secrets, or for files that hold them"),
        Rule("asks-context", "the text asks for what the user and the model said, or for the model's own instructions"),
        Rule("shadows-tool", "the definition meddles with tools that are not its own"),
        Rule("confusable-name", "the name looks like another one"),
        Rule("mixed-script", "a word is written with look-alike letters of another script"),
        Rule("too-much-text", "there is more text than is looked at, and than any model should read"),
    )
}
"""By id."""


class Strike(NamedTuple):
    """One place of a text: what is quoted, and a sentence of its own where the rule's does not tell enough."""

    rule: str
    quote: str
    sentence: str = ""


def strikes(text: Text, siblings: Siblings) -> Iterator[Strike]:
    """What the rules on texts find in one."""
    yield from unseen(text.text)
    if (found := mixes_scripts(text.text)) is not None:
        yield Strike("mixed-script", found[0])
    if len(text.text) < _MIN_CHARS:
        return
    for rule, look in _PATTERNS:
        if (match := look(text.text)) is not None:
            yield Strike(rule, _around(text.text, *match.span()))
    if (span := hidden.encoded(text.text)) is not None:
        yield Strike("long-base64", text.text[span[0] : span[1]])
    said, words = words_of(text.text)
    struck: set[str] = set()
    for rule, start, end in PHRASEBOOK.find(words):
        struck.add(rule)
        yield Strike(rule, _around(said, start, end))
    if text.is_name and text.text.lower().replace("-", "_") in _GREEDY_NAMES and "asks-context" not in struck:
        yield Strike("asks-context", text.text)
    if "shadows-tool" not in struck:
        yield from _meddling(said, siblings)


def unseen(text: str) -> Iterator[Strike]:
    """Invisible characters."""
    places = hidden.hidden_characters(text)
    if places:
        words = hidden.hidden_words(text)
        sentence = f"{len(places)} characters of the text are not seen by people" if len(places) > 1 else ""
        yield Strike("hidden-unicode", words or text[max(0, places[0] - 20) : places[0] + 60], sentence)


_MIN_CHARS: Final = 8
"""Shorter texts order nothing."""

_GREEDY_NAMES: Final = frozenset(
    {
        "chain_of_thought",
        "conversation_history",
        "full_conversation",
        "llm_context",
        "most_recent_tool_call",
        "previous_tool_calls",
        "sidenote",
        "sidenotes",
        "side_note",
        "tool_call_history",
        "tools_list",
        "user_prompt_history",
    }
)
"""Arguments that models fill without being asked in words (HiddenLayer, "Exploiting MCP tool parameters", 2025)."""

_POSING: Final = re.compile(
    r"</?\s{0,3}(?:important|system|secret|hidden|critical|urgent|admin|override|instructions?|assistant|system[_-]prompt"
    r"|system[_-]message|system[_-]reminder|user[_-]message)\s{0,3}>"
    r"|<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id)\|>|\[/?INST\]|<</?SYS>>"
    r"|^\s{0,8}(?:#{1,6}\s{0,3})?\[?(?:system|assistant|human|user)\s{0,3}(?:message|prompt|override)\]?\s{0,3}:"
    r"|^\s{0,8}\[system\]",
    re.IGNORECASE | re.MULTILINE,
)
"""Tags and turns that only a client, a model's template or a system prompt writes."""

_FORGET: Final = re.compile(
    "(?:忽略|无视|無視|忘记|忘記|忘掉)[^。！？\n]{0,16}(?:指令|指示|规则|規則|提示|说明|說明)"
    "|(?:指示|命令|ルール|プロンプト)を?(?:すべて|全て)?(?:無視|忘れ)|지시[^.\n]{0,10}무시"
)
"""What `phrases` says of earlier instructions, in languages that write without blanks."""

_PATTERNS: Final[tuple[tuple[str, Callable[[str], re.Match[str] | None]], ...]] = (
    ("hidden-markup", hidden.hiding_markup),
    ("hidden-padding", hidden.padding),
    ("poses-as-system", _POSING.search),
    ("instructs-model", _FORGET.search),
)

_ORDER: Final = re.compile(
    r"\b(?:must|always|never|do not|don't|override|replace|redirect|intercept|modify|instead of)\b"
    r"|\b(?:is|was|gets|has been) (?:called|used|invoked|run|available|executed)\b",
    re.IGNORECASE,
)
_ORDER_CHARS: Final = 100
"""So near to the name stands what is ordered of it."""

_MAX_MENTIONS: Final = 50
"""Of one text that are looked at."""


def _meddling(said: str, siblings: Siblings) -> Iterator[Strike]:
    """Another server's tool, named in full, or told what to do."""
    for count, (name, start, end, is_qualified) in enumerate(siblings.mentions(said)):
        if count == _MAX_MENTIONS:
            return
        near = said[max(0, start - _ORDER_CHARS) : end + _ORDER_CHARS]
        if is_qualified or _ORDER.search(near):
            yield Strike("shadows-tool", _around(said, start, end), f"the text speaks of another server's tool, {name}")
            return


def _around(text: str, start: int, end: int) -> str:
    """What struck, with a little of what stands around it."""
    return text[max(0, start - 16) : max(end, start + 40) + 24].strip()
