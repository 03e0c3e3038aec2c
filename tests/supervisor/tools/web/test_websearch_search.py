"""Searching behind the seam, and the default provider when its library fails in every way."""

import sys
import threading
from types import ModuleType
from typing import Any

import anyio
import pytest
from ddgs import exceptions
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.websearch import (
    MAX_SNIPPET_CHARS,
    MAX_TITLE_CHARS,
    MAX_URL_CHARS,
    DdgsProvider,
    SearchError,
    SearchHit,
    tidy,
)

pytestmark = pytest.mark.anyio


class Library(ModuleType):
    """Stands for `ddgs`; `outcome` is what a search returns, raises or waits for."""

    exceptions = exceptions

    def __init__(self, outcome: object) -> None:
        super().__init__("ddgs")
        self.outcome = outcome
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def DDGS(self, **options: Any) -> "Library":  # noqa: D102, N802 - the library's own name
        assert options["timeout"] > 0
        return self

    def text(self, query: str, **options: Any) -> object:  # noqa: D102
        self.asked.append((query, options))
        if isinstance(self.outcome, threading.Event):
            self.outcome.wait(30)
            return []
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def install(monkeypatch: pytest.MonkeyPatch, outcome: object) -> Library:
    library = Library(outcome)
    monkeypatch.setitem(sys.modules, "ddgs", library)
    return library


async def test_the_librarys_rows_are_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would be found."""
    rows = [{"title": "T", "href": "https://a.example/", "body": "B"}, {"href": "https://b.example/"}, {"title": None}]
    library = install(monkeypatch, rows)
    assert await DdgsProvider().search("cats", 7) == [
        SearchHit("T", "https://a.example/", "B"),
        SearchHit("", "https://b.example/", ""),
        SearchHit("", "", ""),
    ]
    assert library.asked == [("cats", {"max_results": 7})]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (exceptions.RatelimitException("202"), "want fewer searches; wait"),
        (exceptions.TimeoutException("x"), "did not answer in time"),
        (exceptions.DDGSException("ConnectError: no\nroute \x1b[1m"), "cannot be reached: ConnectError: no route [1m"),
        (exceptions.DDGSException("x" * 10_000), "cannot be reached: xxx"),
        (ValueError("no such element"), "cannot be read: no such element"),
        (RecursionError(), "cannot be read"),
    ],
)
async def test_every_failure_says_what_to_do(error: Exception, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model would repeat a search that cannot succeed, or see a traceback."""
    install(monkeypatch, error)
    with pytest.raises(SearchError) as caught:
        await DdgsProvider().search("cats", 5)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 400


async def test_nothing_found_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model would take a rare word for a broken network."""
    install(monkeypatch, exceptions.DDGSException("No results found."))
    assert await DdgsProvider().search("cats", 5) == []


async def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken installation would be an exception."""
    monkeypatch.setitem(sys.modules, "ddgs", None)
    with pytest.raises(
        SearchError, match=r"ddgs is not installed: install it with `pip install 'quarterdeck\[native\]'`"
    ):
        await DdgsProvider().search("cats", 5)


async def test_a_search_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that does not answer would hold a call for minutes."""
    over = threading.Event()
    install(monkeypatch, over)
    try:
        with pytest.raises(SearchError, match=r"within 0\.05 s"):
            await DdgsProvider(timeout_s=0.05).search("cats", 5)
    finally:
        over.set()


async def test_a_cancelled_search_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled call would hold its session."""
    over = threading.Event()
    library = install(monkeypatch, over)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(DdgsProvider().search, "cats", 5)
            while not library.asked:  # noqa: ASYNC110 - a thread cannot set the event
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    finally:
        over.set()


async def test_the_real_library_has_what_is_used() -> None:
    """A new release of the library could break every search."""
    import ddgs

    assert callable(ddgs.DDGS(timeout=1).text)
    assert issubclass(exceptions.RatelimitException, exceptions.DDGSException)
    assert issubclass(exceptions.TimeoutException, exceptions.DDGSException)


def hit(url: str, title: str = "T", snippet: str = "S") -> SearchHit:
    return SearchHit(title, url, snippet)


def test_each_page_comes_once_and_the_first_wins() -> None:
    """Several engines find the same page."""
    hits = [
        hit("https://a.example/x", "first"),
        hit("https://a.example/x/"),
        hit("https://a.example/x#y"),
        hit("http://b/"),
    ]
    assert tidy(hits, 5) == [hits[0], hits[3]]
    assert tidy(hits, 1) == [hits[0]]


@pytest.mark.parametrize(
    "url", ["", "javascript:x", "/relative", "ftp://x/", "https://a/ b", "https://a/" + "x" * MAX_URL_CHARS]
)
def test_what_leads_to_no_page_is_left_out(url: str) -> None:
    """A model would try to fetch it."""
    assert tidy([hit(url)], 5) == []


def test_texts_are_short_and_on_one_line() -> None:
    """An engine's text could look like ours, or flood a model."""
    [tidied] = tidy([hit("https://a/", "a\n1. b\x1b[2J", "s " * 5000)], 5)
    assert tidied.title == "a 1. b [2J"
    assert len(tidied.snippet) == MAX_SNIPPET_CHARS + 1


@given(st.lists(st.builds(SearchHit, st.text(), st.text() | st.text().map("https://{}".format), st.text())))
def test_any_hits_are_tidied(hits: list[SearchHit]) -> None:
    """An engine's odd answer could crash the tool."""
    for tidied in tidy(hits, 5):
        assert len(tidied.title) <= MAX_TITLE_CHARS + 1
        assert "\n" not in tidied.title + tidied.url + tidied.snippet
