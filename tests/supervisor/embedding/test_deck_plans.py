"""The files of approved plans."""

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.embedding import deck
from quarterdeck.embedding.deck import (
    MAX_PLAN_BYTES,
    MAX_SLUG_CHARS,
    PLANS_DIRNAME,
    plan_file_path,
    plan_slug,
    read_plan,
    write_plan,
)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Add a cache", "add-a-cache"),
        ("\n  \n# Plan: fix *all* bugs!\nsecond", "plan-fix-all-bugs"),
        ("Ünïcode Straße ½", "unicode-strae-12"),
        ("日本語", "plan"),
        ("", "plan"),
        ("---", "plan"),
        ("../../etc/passwd", "etc-passwd"),
        ("x" * 60, "x" * 48),
        ("a" * 47 + " b", "a" * 47),
        ("ﬁle", "file"),
    ],
)
def test_a_slug_says_what_the_plan_is_about(text: str, slug: str) -> None:
    """A directory of plans could not be read, or a plan's title would name a file elsewhere."""
    assert plan_slug(text) == slug


@given(st.text())
def test_any_text_has_a_slug_that_is_a_name(text: str) -> None:
    """Some plan could not be kept, or would be kept outside of its directory."""
    slug = plan_slug(text)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug)
    assert len(slug) <= MAX_SLUG_CHARS
    assert plan_slug(slug) == slug


@given(st.text())
def test_a_slug_is_that_of_a_naive_reading(text: str) -> None:
    """The rule in the documentation would be another."""
    lines = [line for line in text.splitlines() if line.strip()]
    words, word = [], ""
    for character in unicodedata.normalize("NFKD", lines[0]) if lines else "":
        if not character.isascii():
            continue
        if character.lower() in "abcdefghijklmnopqrstuvwxyz0123456789":
            word += character.lower()
        elif word:
            words.append(word)
            word = ""
    words += [word] if word else []
    naive = "-".join(words)[:48]
    assert plan_slug(text) == (naive.removesuffix("-") or "plan")


def test_a_plan_is_written_beside_earlier_ones_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second plan of the same title would replace the first."""
    monkeypatch.setattr(deck.time, "time_ns", lambda: 36**8 * 1_000_000)
    first, second = write_plan(tmp_path, "# Dig\nä"), write_plan(str(tmp_path), "# Dig\ndeeper")
    assert first == plan_file_path(tmp_path, "100000000-dig") == tmp_path / PLANS_DIRNAME / "100000000-dig.md"
    assert second.name == "100000001-dig.md"
    assert (read_plan(first), read_plan(str(second))) == ("# Dig\nä", "# Dig\ndeeper")
    assert first.stat().st_mode & 0o777 == 0o600


def test_names_sort_by_time(tmp_path: Path) -> None:
    """The newest plan would have to be guessed."""
    assert write_plan(tmp_path, "b").name < write_plan(tmp_path, "b").name


def test_what_cannot_be_read_is_no_plan(tmp_path: Path) -> None:
    """A missing or broken file would end whoever looks for a plan."""
    assert read_plan(tmp_path / "missing.md") is None
    assert read_plan(tmp_path) is None
    (tmp_path / "binary.md").write_bytes(b"\xff")
    assert read_plan(tmp_path / "binary.md") is None
    (tmp_path / "large.md").write_bytes(b"x" * (MAX_PLAN_BYTES + 1))
    assert read_plan(tmp_path / "large.md") is None
    assert read_plan("a\0b") is None


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (35, "z"), (36, "10"), (1_700_000_000_000, "loyw3v28")])
def test_a_time_is_written_in_base_36(number: int, text: str) -> None:
    """Files of other editions could not be sorted among ours."""
    assert deck._base36(number) == text
    assert int(text, 36) == number
