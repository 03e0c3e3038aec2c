"""The phrases by which a definition tries to rule the model, and the search for them in a text.  Pure.

`phrases.toml` has the English phrases, each file in `languages` those of another language, as words with gaps:

    ignore|disregard .. previous|prior .. instruction*|rules

`|` separates choices for one word, `*` is any end of a word, `..` up to three words, `...` up to ten.  No phrase goes
beyond its sentence; case, accents, line breaks, punctuation and markup do not count.  Languages that do not part their
words have regular expressions instead.  One word stands for things said in many ways: `@file` (where only secrets are
kept), `@dotfile` (settings, with secrets among them), `@secret` (passwords, keys), `@env` (environment variables),
`@talk` (the conversation, or what the model was told).  The search walks over the words, in linear time.

Written after what was published: the experiments of Invariant Labs (April 2025: direct poisoning, shadowing, the
WhatsApp takeover), CyberArk's full-schema poisoning, HiddenLayer's parameter names, and the rules of open scanners.
The words are ours.  Each phrase avoids what honest servers write: tests hold both.
"""

import pkgutil
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from .disguises import plain, unmasked

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


LANGUAGES: Final = ("de", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh")
"""Codes (ISO 639) of the languages, other than English, with known phrases."""

_STEM: Final = 3
"""Minimum letters of a choice with a free ending; the search finds it by them."""


class Word(NamedTuple):
    """One word of a text and its position; the word is folded, and empty for the end of a sentence."""

    text: str
    start: int
    end: int


class Choices(NamedTuple):
    """The words that fit one position of a phrase: whole words, and beginnings of words."""

    whole: frozenset[str]
    stems: tuple[str, ...] = ()

    def fit(self, word: str) -> bool:
        """Return whether a folded word fits."""
        return word in self.whole or (bool(self.stems) and word.startswith(self.stems))


class Phrase(NamedTuple):
    """What to look for: choices of a word, each after at most so many words of whatever kind."""

    first: Choices
    rest: tuple[tuple[int, Choices], ...]


def words_of(text: str) -> tuple[str, list[Word]]:
    """`text` without disguises, and its words."""
    said = plain(text)
    return said, [_word(found) for found in _TOKEN.finditer(said)]


def phrase(text: str) -> Phrase:
    """The phrase that `text` writes down."""
    steps: list[tuple[int, Choices]] = []
    gap = 0
    for part in text.split():
        if part in _GAPS:
            gap = _GAPS[part]
        else:
            steps.append((gap, _choices(part)))
            gap = 0
    return Phrase(steps[0][1], tuple(steps[1:]))


class Phrasebook:
    """Phrases, each with the id of its rule, found in one walk over a text."""

    def __init__(self, phrases: Iterable[tuple[str, Phrase]]) -> None:
        self._by_first: dict[str, list[tuple[str, Phrase]]] = {}
        self._by_stem: dict[str, list[tuple[str, Phrase]]] = {}
        for rule, each in phrases:
            for word in each.first.whole:
                self._by_first.setdefault(word, []).append((rule, each))
            for stem in {stem[:_STEM] for stem in each.first.stems}:
                self._by_stem.setdefault(stem, []).append((rule, each))

    def find(self, words: list[Word]) -> Iterator[tuple[str, int, int]]:
        """The rules that match, each once, and where: from the start of a phrase to its end."""
        struck: set[str] = set()
        for place, word in enumerate(words):
            by_stem = self._by_stem.get(word.text[:_STEM], ())
            for rule, each in (*self._by_first.get(word.text, ()), *by_stem):
                if by_stem and not each.first.fit(word.text):
                    continue
                if rule not in struck and (last := _match(each, words, place)) is not None:
                    struck.add(rule)
                    yield rule, word.start, words[last].end


def _word(found: re.Match[str]) -> Word:
    kind = found.lastgroup
    text = folded(found[0]) if kind == "word" else _END if kind == "end" else f"@{kind}"
    return Word(text, found.start(), found.end())


def folded(word: str) -> str:
    """Return a word in lower case and without accents."""
    if word.isascii():
        return word.lower()
    letters = unicodedata.normalize("NFD", word.casefold())
    return unicodedata.normalize("NFC", "".join(each for each in letters if not unicodedata.combining(each)))


def _choices(text: str) -> Choices:
    # A capital `Не` looks like `He`, and the search reads it as `He` in texts.
    spellings = (spell for word in text.split("|") for spell in (word, word.title(), word.upper()))
    words = list(
        dict.fromkeys(folded(unmasked(spell.removesuffix("*"))) + "*" * spell.endswith("*") for spell in spellings)
    )
    stems = tuple(word[:-1] for word in words if word.endswith("*"))
    if short := [stem for stem in stems if len(stem) < _STEM]:
        raise ValueError(f"{short[0]}* is too short to be looked for")
    return Choices(frozenset(word for word in words if not word.endswith("*")), stems)


def _match(each: Phrase, words: list[Word], place: int) -> int | None:
    places = {place}
    for gap, choices in each.rest:
        reached: set[int] = set()
        for start in places:
            for offset in range(start + 1, min(start + gap + 2, len(words))):
                text = words[offset].text
                if text == _END:
                    break
                if choices.fit(text):
                    reached.add(offset)
        if not reached:
            return None
        places = reached
    return min(places)


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The phrases of one language, by rule; `words` are choices that phrases name.

    Attributes:
        phrases: of a language that separates its words.
        asking: of a parameter's description, which requests without a verb of request.
        unparted: regular expressions, for a language that does not separate its words.
    """

    words: dict[str, str]
    phrases: dict[str, list[str]] = {}
    asking: dict[str, list[str]] = {}
    unparted: dict[str, list[str]] = {}

    def spelled(self, table: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Phrase]]:
        """Return each phrase of a table with its rule."""
        return ((rule, phrase(self._with_words(text))) for rule, texts in table.items() for text in texts)

    def patterns(self) -> Iterator[tuple[str, re.Pattern[str]]]:
        """Return one expression for each rule that has any."""
        for rule, texts in self.unparted.items():
            yield rule, re.compile(self._with_words("|".join(texts)), re.IGNORECASE)

    def _with_words(self, text: str) -> str:
        return re.sub(r"\{([a-z_]+)\}", lambda found: self.words[found[1]], text)


class Books(NamedTuple):
    """What texts are held against: all of them, those of parameters, and those whose words are not parted."""

    spoken: Phrasebook
    asking: Phrasebook
    unparted: tuple[tuple[str, re.Pattern[str]], ...]


@cache
def catalogue(language: str = "en") -> Catalogue:
    """Return the phrases of a language, read once, at the first scan."""
    name = "phrases.toml" if language == "en" else f"languages/{language}.toml"
    return msgspec.toml.decode(pkgutil.get_data(__package__, name) or b"", type=Catalogue)


@cache
def books() -> Books:
    """Return all catalogues as they are searched for."""
    all_ = [catalogue(), *map(catalogue, LANGUAGES)]
    return Books(
        Phrasebook(chain.from_iterable(each.spelled(each.phrases) for each in all_)),
        Phrasebook(chain.from_iterable(each.spelled(each.asking) for each in all_)),
        tuple(chain.from_iterable(each.patterns() for each in all_)),
    )
