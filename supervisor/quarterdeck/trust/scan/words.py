"""A text as words, and phrases to look for in them.  Pure.

A phrase is written as its words, with gaps:

    ignore|disregard .. previous|prior .. instructions|rules

`|` parts the choices of one word, `..` stands for up to three words of whatever kind, `...` for up to ten.  No phrase
reaches across the end of a sentence.  Case, line breaks, punctuation and markup do not count; a few things that are
said in many ways are one word each: `@file` (where only secrets are kept), `@dotfile` (where settings are, and secrets
among them), `@secret` (passwords, keys), `@env` (environment variables), `@talk` (what the model and its user said, or
what the model was told).  The time to match is linear in the text: no regular expression does it, but a walk over
the words.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from .plain import plain

_GAPS: Final = {"..": 3, "...": 10}

_START: Final = r"(?<![^\W_])"
_STOP: Final = r"(?![^\W_])"
"""Where a word starts and ends: in names, words stand between underscores."""

_FILE: Final = (
    r"\.ssh|id_(?:rsa|dsa|ecdsa|ed25519)|\.aws/(?:credentials|config)|mcp\.json"
    r"|claude_desktop_config|/etc/(?:passwd|shadow)|\.(?:netrc|pgpass|git-credentials)|wallet\.dat"
    r"|\.(?:bash|zsh)_history|\.gnupg|login data|cookies\.sqlite|ssh[\s_-]{1,12}id[\s_-]{1,12}rsa|authorized_keys"
)
_DOTFILE: Final = r"\.env|\.(?:npmrc|pypirc)|\.kube/config|\.docker/config\.json|\.config/gcloud"
_CREDENTIAL: Final = (
    r"(?:api|private|ssh|secret|access|auth|session|bearer|signing|encryption)[\s_-]{1,12}(?:keys?|tokens?)"
    r"|api_?keys?|pass(?:word|phrase|code)s?|credentials?|(?:seed|recovery|mnemonic)[\s_-]{1,12}phrases?"
    r"|session[\s_-]{1,12}cookies?|credit[\s_-]{1,12}card"
)
_ENV: Final = r"env(?:ironment)?[\s_-]{1,12}(?:variables?|vars?)"
_TALK: Final = (
    r"(?:conversation|chat|dialogue|tool[\s_-]{1,12}call)[\s_-]{1,12}(?:history|log|context)"
    r"|(?:entire|whole|full|complete)[\s_-]{1,12}(?:conversation|chat|dialogue)|system[\s_-]{1,12}(?:prompt|message)s?"
    r"|chain[\s_-]{1,12}of[\s_-]{1,12}thought|previous[\s_-]{1,12}(?:messages|conversations?)"
)
_TOKEN: Final = re.compile(
    rf"{_START}(?:(?P<file>{_FILE})|(?P<dotfile>{_DOTFILE})|(?P<secret>{_CREDENTIAL})|(?P<env>{_ENV})|(?P<talk>{_TALK}))"
    rf"{_STOP}"
    r"|(?P<word>[^\W_]+(?:'[^\W_]{1,3}\b)?)|(?P<end>[.!?](?=\s|$)|\n[ \t\r]*\n)",
    re.IGNORECASE,
)

_END: Final = ""


class Word(NamedTuple):
    """One word of a text: lower case, empty for the end of a sentence; and where it stands."""

    text: str
    start: int
    end: int


class Phrase(NamedTuple):
    """What to look for: choices of a word, each after at most so many words of whatever kind."""

    first: frozenset[str]
    rest: tuple[tuple[int, frozenset[str]], ...]


def words_of(text: str) -> tuple[str, list[Word]]:
    """`text` without disguises, and its words."""
    said = plain(text)
    return said, [_word(found) for found in _TOKEN.finditer(said)]


def phrase(text: str) -> Phrase:
    """The phrase that `text` writes down."""
    steps: list[tuple[int, frozenset[str]]] = []
    gap = 0
    for part in text.split():
        if part in _GAPS:
            gap = _GAPS[part]
        else:
            steps.append((gap, frozenset(part.split("|"))))
            gap = 0
    return Phrase(steps[0][1], tuple(steps[1:]))


class Phrasebook:
    """Phrases of many rules, found in one walk over a text.

    Args:
        phrases: what to look for, and the id of the rule that looks for it.
    """

    def __init__(self, phrases: Iterable[tuple[str, Phrase]]) -> None:
        self._by_first: dict[str, list[tuple[str, Phrase]]] = {}
        for rule, each in phrases:
            for word in each.first:
                self._by_first.setdefault(word, []).append((rule, each))

    def find(self, words: list[Word]) -> Iterator[tuple[str, int, int]]:
        """The rules that strike, each once, and where: from the start of a phrase to its end."""
        struck: set[str] = set()
        for place, word in enumerate(words):
            for rule, each in self._by_first.get(word.text, ()):
                if rule not in struck and (last := _match(each, words, place)) is not None:
                    struck.add(rule)
                    yield rule, word.start, words[last].end


def _word(found: re.Match[str]) -> Word:
    kind = found.lastgroup
    text = found[0].lower() if kind == "word" else _END if kind == "end" else f"@{kind}"
    return Word(text, found.start(), found.end())


def _match(each: Phrase, words: list[Word], place: int) -> int | None:
    """The place of the phrase's last word when it starts at `place`."""
    places = {place}
    for gap, choices in each.rest:
        reached: set[int] = set()
        for start in places:
            for offset in range(start + 1, min(start + gap + 2, len(words))):
                text = words[offset].text
                if text == _END:
                    break
                if text in choices:
                    reached.add(offset)
        if not reached:
            return None
        places = reached
    return min(places)
