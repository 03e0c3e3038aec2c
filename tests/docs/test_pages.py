"""The documentation as text: short where it must be, whole, and without links that lead nowhere."""

import re
from pathlib import Path
from typing import Final

from .documents import FENCED, ROOT, pages, text_of

LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

README_WORDS: Final = 900
"""A reader decides in three minutes; everything else is in `docs/`."""


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    """A reader would land on nothing."""
    links = [(page, target) for page in pages() for target in LINK.findall(FENCED.sub("", text_of(page)))]
    for page, target in links:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), (page, target)
        assert not anchor or anchor in headings(file), (page, target)


def test_the_readme_stays_short() -> None:
    """A newcomer would not read it to its end."""
    assert len(text_of(ROOT / "README.md").split()) <= README_WORDS


def test_every_page_can_be_found_from_the_readme_or_the_first_page() -> None:
    """A page would be there that nobody is told of."""
    linked = set(LINK.findall(text_of(ROOT / "docs" / "index.md")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= linked
