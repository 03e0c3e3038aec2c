"""`websearch` over providers of every temper."""

from collections.abc import Sequence

import anyio
import pytest
from support.file_tools import Answer, call

from quarterdeck.tools.context import inert_context
from quarterdeck.tools.web.websearch import MAX_QUERY_CHARS, MAX_RESULTS, SearchError, SearchHit, web_search_tool
from quarterdeck_protocol.tools import CancelToken, ToolHints

pytestmark = pytest.mark.anyio


class Engine:
    """A provider that gives its hits, or raises, and notes what it was asked."""

    def __init__(self, *hits: SearchHit, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self._hits = hits
        self._error = error

    async def search(self, query: str, max_results: int) -> Sequence[SearchHit]:  # noqa: D102
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


async def test_one_hit_is_one_result() -> None:
    """The listing would be clumsy."""
    assert (await ask(Engine(CATS), query="x")).text.startswith("1 result for")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"query": ""},
        {"query": 5},
        {"query": None},
        {"query": "x", "maxResults": 0},
        {"query": "x", "maxResults": -1},
        {"query": "x", "maxResults": 2.5},
        {"query": "x", "maxResults": "3"},
        {"query": "x", "maxResults": True},
        {"query": "x", "maxResults": None},
        {"query": "x", "other": 1},
    ],
)
async def test_wrong_input_is_not_searched_for(given: dict[str, object]) -> None:
    """A model's mistake would be an exception, or a search for something else."""
    engine = Engine(CATS)
    answer = await ask(engine, **given)
    assert answer.is_error
    assert "websearch was not run, its input is wrong" in answer.text
    assert engine.asked == []


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


async def test_a_failure_is_a_clear_result() -> None:
    """A model would see a traceback."""
    answer = await ask(Engine(error=SearchError("the engines want fewer searches; wait a minute")), query="cats")
    assert answer == Answer(
        "The search for 'cats' failed: the engines want fewer searches; wait a minute.", is_error=True
    )


async def test_a_provider_that_breaks_is_a_failure_too() -> None:
    """A provider's own mistake would end the session."""
    answer = await ask(Engine(error=RuntimeError("boom")), query="cats")
    assert answer == Answer("websearch did not finish: boom", is_error=True)


@pytest.mark.parametrize("hits", [(), (SearchHit("T", "javascript:x", ""),)])
async def test_nothing_found_says_so(hits: tuple[SearchHit, ...]) -> None:
    """An empty list would look like a mistake of the tool."""
    answer = await ask(Engine(*hits), query="cats")
    assert answer == Answer("Nothing was found for 'cats'. Try other or fewer words.", is_error=True)


async def test_cancelling_ends_the_search() -> None:
    """A cancelled call would hold its session."""
    began = anyio.Event()

    class Slow:
        async def search(self, query: str, max_results: int) -> Sequence[SearchHit]:
            began.set()
            await anyio.sleep_forever()
            return ()

    cancel = CancelToken()
    answers: list[Answer] = []

    async def run() -> None:
        answers.append(await call(web_search_tool(Slow()), inert_context(), cancel, query="cats"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await began.wait()
        cancel.cancel()
    assert answers == [Answer("websearch was cancelled.", is_error=True)]


def test_the_tool_says_what_it_is() -> None:
    """A client would ask its user before each search, or a model misuse it."""
    descriptor = web_search_tool().descriptor()
    assert (descriptor.name, descriptor.title) == ("websearch", "Web search")
    assert descriptor.hints == ToolHints(read_only=True, destructive=False, idempotent=True, open_world=True)
    parameters = dict(descriptor.parameters)
    assert set(parameters["properties"]) == {"query", "maxResults"}  # type: ignore[call-overload]
    assert parameters["required"] == ["query"]
    assert parameters["additionalProperties"] is False
