"""The commonest orders to a model are known in the commonest languages, and honest descriptions in them are not."""

import unicodedata
from pathlib import Path

import msgspec
import pytest

from quarterdeck.ledger.events.events import Subject
from quarterdeck.trust.scan import scan_definition
from quarterdeck.trust.scan.phrases import LANGUAGES, catalogue, phrase

UNPARTED = ("ja", "ko", "zh")
"""Languages whose words are not parted, or whose parts are not words."""


def rules(text: str) -> set[str]:
    return {finding.rule for finding in scan_definition(Subject.TOOL, "t", {"description": text})}


class Examples(msgspec.Struct):
    """The texts of one language: orders to a model by rule, and ordinary descriptions."""

    orders: dict[str, list[str]]
    ordinary: dict[str, list[str]]


def examples(language: str) -> Examples:
    return msgspec.toml.decode((Path(__file__).parent / f"languages/{language}.toml").read_text(), type=Examples)


@pytest.mark.parametrize("language", LANGUAGES)
def test_twenty_orders_in_each_language_are_known(language: str) -> None:
    """The documentation names the language, and an attacker would write in it unseen."""
    orders = [(rule, text) for rule, texts in examples(language).orders.items() for text in texts]
    assert len(orders) >= 20
    assert [(rule, text, rules(text)) for rule, text in orders if rule not in rules(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_accents_and_white_space_hide_no_order(language: str) -> None:
    """A model reads an order without its accents as well as with them."""
    for rule, texts in examples(language).orders.items():
        for text in texts:
            plain = "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))
            if plain.isascii():
                assert rule in rules(plain), plain
            if " " in text and language not in UNPARTED:
                assert rule in rules(" \n\t".join(text.split()).upper()), text


@pytest.mark.parametrize("language", LANGUAGES)
def test_ordinary_descriptions_in_each_language_are_left_alone(language: str) -> None:
    """A person who is warned of every second tool reads no warning any more."""
    descriptions = examples(language).ordinary["descriptions"]
    assert len(descriptions) >= 15
    assert [(text, found) for text in descriptions if (found := rules(text))] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_rule_that_has_words_of_a_language_is_tried(language: str) -> None:
    """A phrase that nothing tries may as well not be there."""
    found = catalogue(language)
    assert examples(language).orders.keys() == found.phrases.keys() | found.unparted.keys()


def test_a_beginning_that_fits_any_word_is_no_choice() -> None:
    """One letter and a star would make every text an order."""
    with pytest.raises(ValueError, match="too short"):
        phrase("ab* cd")
