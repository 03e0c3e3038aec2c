"""Disguised letters are read as what they look like."""

import pytest

from quarterdeck.trust.scan.disguises import is_mixed, plain, unmasked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Plain.", "Plain."),
        ("раsswоrd", "password"),
        ("Іgnоrе", "Ignore"),
        ("ｐａｓｓ", "pass"),
        ("𝐩𝐚𝐬𝐬", "pass"),
        ("pa\u200bss\u00ad", "pass"),
        ("x" + "".join(chr(0xE0000 + ord(letter)) for letter in "hi"), "xhi"),
        ("don’t", "don't"),
        ("Größe und naïve Häuser", "Größe und naïve Häuser"),
        ("пароль", "пароль"),
        ("密码", "密码"),
    ],
)
def test_disguises_fall_and_languages_stay(text: str, said: str) -> None:
    """Words of other languages are not turned into nonsense."""
    assert plain(text) == said


def test_a_word_of_two_scripts_is_told_from_a_foreign_one() -> None:
    """Greek in physics and Cyrillic in Russian are no disguise."""
    assert is_mixed("раsswоrd")
    assert not is_mixed("password")
    assert not is_mixed("пароль")
    assert not is_mixed("Δt")
    assert unmasked("über") == "über"
