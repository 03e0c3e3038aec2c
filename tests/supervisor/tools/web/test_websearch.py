"""`websearch` over providers of every temper."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import anyio
import pytest
from ddgs import exceptions
from hypothesis import given
from hypothesis import strategies as st
from support.tools.contexts import inert_context
from support.tools.file_tools import Answer, call, cancelled

from quarterdeck.tools.web.websearch import (
    MAX_QUERY_CHARS,
    MAX_RESULTS,
    MAX_SNIPPET_CHARS,
    MAX_TITLE_CHARS,
    MAX_URL_CHARS,
    DdgsProvider,
    SearchError,
    SearchHit,
    tidy,
    web_search_tool,
)


class Engine:
    """A provider that gives its hits, or raises, and notes what it was asked."""

    def __init__(self, *hits: SearchHit, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self._hits = hits
        self._error = error

    async def search(self, query: str, max_results: int) -> Sequence[SearchHit]:
        self.asked.append((query, max_results))
        if self._error:
            raise self._error
        return self._hits


CATS = SearchHit("Cats", "https://cats.example/", "All about cats.")
DOGS = SearchHit("", "https://dogs.example/", "")


async def ask(engine: Engine, /, **given: object) -> Answer:
    return await call(web_search_tool(engine), inert_context(), **given)


async def test_hits_are_listed_and_given_as_data() -> None:
    """A model could not read them, or a program not use them."""
    engine = Engine(CATS, DOGS)
    answer = await ask(engine, query=" big \n cats ")
    assert answer.text == (
        "2 results for 'big cats':\n\n"
        "1. Cats\n   https://cats.example/\n   All about cats.\n\n"
        "2. https://dogs.example/\n   https://dogs.example/"
    )
    assert answer.value == [
        {"title": "Cats", "url": "https://cats.example/", "snippet": "All about cats."},
        {"title": "", "url": "https://dogs.example/", "snippet": ""},
    ]
    assert not answer.is_error
    assert engine.asked == [("big cats", 5)]


async def test_as_many_come_as_are_wanted_but_not_more_than_may() -> None:
    """A model would be flooded, or wonder where the rest is."""
    hits = [SearchHit(f"T{number}", f"https://a.example/{number}", "") for number in range(60)]
    engine = Engine(*hits)
    assert len((await ask(engine, query="x")).value) == 5
    assert len((await ask(engine, query="x", maxResults=1)).value) == 1
    answer = await ask(engine, query="x", maxResults=1000)
    assert len(answer.value) == MAX_RESULTS
    assert answer.text.startswith("25 results for 'x' (maxResults is at most 25):")
    assert [most for _, most in engine.asked] == [5, 1, 25]


@pytest.mark.parametrize(
    ("query", "why"), [(" \n\t", "the query is blank"), ("x" * (MAX_QUERY_CHARS + 1), "longer than 500 characters")]
)
async def test_a_query_that_no_engine_takes_is_said(query: str, why: str) -> None:
    """A model would get an engine's odd answer."""
    engine = Engine(CATS)
    answer = await ask(engine, query=query)
    assert answer.is_error
    assert why in answer.text
    assert engine.asked == []


@pytest.mark.parametrize("hits", [(), (SearchHit("T", "javascript:x", ""),)])
async def test_nothing_found_says_so(hits: tuple[SearchHit, ...]) -> None:
    """An empty list would look like a mistake of the tool."""
    answer = await ask(Engine(*hits), query="cats")
    assert answer == Answer("Nothing was found for 'cats'. Try other or fewer words.", is_error=True)


async def test_cancelling_ends_the_search() -> None:
    """A cancelled call would hold its session."""
    began = asyncio.Event()

    class Slow:
        async def search(self, query: str, max_results: int) -> Sequence[SearchHit]:
            began.set()
            await anyio.sleep_forever()
            return ()

    ended = await cancelled(web_search_tool(Slow()), inert_context(), began, query="cats")
    assert ended == Answer("websearch was cancelled.", is_error=True)


class Library(ModuleType):
    """Stands for `ddgs`; `outcome` is what a search returns, raises or waits for."""

    exceptions = exceptions

    def __init__(self, outcome: object) -> None:
        super().__init__("ddgs")
        self.outcome = outcome
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def DDGS(self, **options: Any) -> "Library":  # noqa: N802 - the library's own name
        assert options["timeout"] > 0
        return self

    def text(self, query: str, **options: Any) -> object:
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
        (exceptions.RatelimitException("202"), "refuse so many searches; wait"),
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
