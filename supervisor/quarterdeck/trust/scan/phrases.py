"""The phrases by which a definition tries to rule the model, and the search for them in a text.  Pure.

`phrases.toml`, beside this, holds them.  A phrase is written as its words, with gaps:

    ignore|disregard .. previous|prior .. instructions|rules

`|` separates the choices for one word, `..` stands for up to three words of any kind, `...` for up to ten.  No phrase
reaches across the end of a sentence.  Case, line breaks, punctuation and markup do not count.  A few things that are
said in many ways are one word each: `@file` (where only secrets are kept), `@dotfile` (where settings are, and secrets
among them), `@secret` (passwords, keys), `@env` (environment variables), `@talk` (the conversation, or what the model
was told).  The search walks over the words, in time linear in the text, without a regular expression.

Written after what was published: the experiments of Invariant Labs (April 2025: direct poisoning, shadowing, the
WhatsApp takeover), CyberArk's full-schema poisoning, HiddenLayer's parameter names, and the rules of open scanners.
The words are ours.  Each phrase avoids what honest servers write: tests hold both.
"""

import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec

from .disguises import plain

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
    r"(?:api|private|ssh|secret|access|auth|session|owner|signing|encryption)[\s_-]{1,12}(?:keys?|tokens?)"
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
    """Phrases, each with the id of its rule, found in one walk over a text."""

    def __init__(self, phrases: Iterable[tuple[str, Phrase]]) -> None:
        self._by_first: dict[str, list[tuple[str, Phrase]]] = {}
        for rule, each in phrases:
            for word in each.first:
                self._by_first.setdefault(word, []).append((rule, each))

    def find(self, words: list[Word]) -> Iterator[tuple[str, int, int]]:
        """The rules that match, each once, and where: from the start of a phrase to its end."""
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


class Catalogue(msgspec.Struct, frozen=True):
    """What `phrases.toml` holds, by rule.

    Attributes:
        words: choices that phrases name.
        phrases: in English.
        asking: what the description of a parameter asks for without a word of asking.
        foreign: in other languages that part their words.
        unparted: regular expressions for those that do not.
    """

    words: dict[str, str]
    phrases: dict[str, list[str]]
    asking: dict[str, list[str]]
    foreign: dict[str, list[str]]
    unparted: dict[str, list[str]]

    def book(self, *tables: Mapping[str, Sequence[str]]) -> Phrasebook:
        """The phrases of these tables."""
        lines = ((rule, text) for table in tables for rule, texts in table.items() for text in texts)
        return Phrasebook((rule, phrase(self.spelled(text))) for rule, text in lines)

    def spelled(self, text: str) -> str:
        """A text with the choices that it names."""
        return re.sub(r"\{([a-z_]+)\}", lambda found: self.words[found[1]], text)


class Books(NamedTuple):
    """What texts are held against: all of them, those of parameters, and those whose words are not parted."""

    spoken: Phrasebook
    asking: Phrasebook
    unparted: tuple[tuple[str, re.Pattern[str]], ...]


@cache
def catalogue() -> Catalogue:
    """The catalogue, which is read once, and not before something is scanned."""
    return msgspec.toml.decode(pkgutil.get_data(__package__, "phrases.toml") or b"", type=Catalogue)


@cache
def books() -> Books:
    """The catalogue as it is searched for."""
    found = catalogue()
    unparted = ((rule, re.compile(found.spelled("|".join(texts)))) for rule, texts in found.unparted.items())
    return Books(found.book(found.phrases, found.foreign), found.book(found.asking), tuple(unparted))
