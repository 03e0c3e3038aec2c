"""`websearch`: search the web behind a seam, `SearchProvider`; the default is a maintained metasearch library."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import anyio
from msgspec import Meta

from quarterdeck.common.shielding import cancelled_by, in_counted_thread
from quarterdeck.common.words import clipped, counted
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.installed import is_installed, lacks
from quarterdeck.tools.results import JsonContentBlock, Output, TextContentBlock, ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

TIMEOUT_S: Final = 15.0  # for one search over several engines
ENGINE_TIMEOUT_S: Final = 6  # for each engine's answer; a whole number, as the library requires
AT_A_TIME: Final = 4  # searches; an abandoned one keeps its thread until its engines have timed out
MAX_TITLE_CHARS: Final = 300
MAX_SNIPPET_CHARS: Final = 1000
MAX_URL_CHARS: Final = 2000
_UNREADABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_PAGE: Final = re.compile(r"https?://[^\s\x00-\x20\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result."""

    title: str
    url: str
    snippet: str


class SearchError(Exception):
    """A failed search; the text has reason and remedy, for a model to read."""


class SearchProvider(Protocol):
    """A search service."""

    async def search(self, query: str, max_results: int) -> Sequence[SearchHit]:
        """Return the best hits first, about `max_results` of them. Raise `SearchError` if the search failed."""


class DdgsProvider:
    """Several public search engines at once, through the library `ddgs`; needs no key."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._limiter = anyio.CapacityLimiter(AT_A_TIME)

    async def search(self, query: str, max_results: int) -> Sequence[SearchHit]:
        """See `SearchProvider`; cancelled or late, it leaves its thread behind, which ends by itself."""
        try:
            with anyio.fail_after(self._timeout_s):
                rows = await in_counted_thread(self._limiter, lambda: _ask(query, max_results))
        except TimeoutError:
            raise SearchError(f"no engine answered within {self._timeout_s:g} s; try again later") from None
        return [SearchHit(*(str(row.get(key) or "") for key in ("title", "href", "body"))) for row in rows]


def _ask(query: str, max_results: int) -> list[dict[str, object]]:
    try:
        from ddgs import DDGS  # slow to import, and most sessions never search
        from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException
    except ImportError as error:
        reason = f"the Python library ddgs cannot be loaded: {error}" if is_installed("ddgs") else lacks("ddgs")
        raise SearchError(reason) from None
    try:
        return DDGS(timeout=ENGINE_TIMEOUT_S).text(query, max_results=max_results)
    except RatelimitException:
        raise SearchError("the engines refuse so many searches; wait a minute and try again") from None
    except TimeoutException:
        raise SearchError("the engines did not answer in time; try again later") from None
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise SearchError(f"the engines cannot be reached: {_line(error, MAX_TITLE_CHARS)}") from None
    except Exception as error:
        # The library reads pages that their owners change as they like.
        raise SearchError(f"the engines' answers cannot be read: {_line(error, MAX_TITLE_CHARS)}") from None


def tidy(hits: Iterable[SearchHit], max_results: int) -> list[SearchHit]:
    """Return the first `max_results` that lead to pages, each page once, each text on one line and not too long."""
    found: dict[str, SearchHit] = {}
    for hit in hits:
        url = hit.url.strip()
        if len(url) <= MAX_URL_CHARS and _PAGE.fullmatch(url):
            tidied = SearchHit(_line(hit.title, MAX_TITLE_CHARS), url, _line(hit.snippet, MAX_SNIPPET_CHARS))
            found.setdefault(url.partition("#")[0].rstrip("/"), tidied)
    return list(found.values())[:max_results]


def _line(value: object, max_chars: int) -> str:
    return clipped(" ".join(_UNREADABLE.sub(" ", str(value)).split()), max_chars)


DEFAULT_RESULTS: Final = 5
MAX_RESULTS: Final = 25
MAX_QUERY_CHARS: Final = 500  # engines cut longer ones, or refuse them


class WebSearchArguments(Arguments, frozen=True):
    """The query."""

    query: Annotated[str, Meta(min_length=1, description="What to search for, as typed into a search engine.")]
    max_results: (
        Annotated[int, Meta(ge=1, description=f"How many results (default {DEFAULT_RESULTS}, at most {MAX_RESULTS}).")]
        | None
    ) = None


class PageFound(Output, frozen=True):
    """One result."""

    title: Annotated[str, Meta(description="May be empty.")]
    url: str
    snippet: Annotated[str, Meta(description="What the engine shows of the page; may be empty.")]


class WebSearchOutput(Output, frozen=True):
    """The results."""

    results: Annotated[list[PageFound], Meta(min_length=1, description="Best first.")]


def web_search_tool(provider: SearchProvider | None = None) -> DefinedTool:
    """Make the tool over `provider`, by default several public engines."""
    chosen = provider or DdgsProvider()

    async def run(arguments: WebSearchArguments, ctx: ToolContext) -> ToolResult:
        with cancelled_by(ctx.cancel):
            return await _search(chosen, arguments)
        return ToolResult.of_error("websearch was cancelled.")

    return native_tool(
        "websearch",
        "Search the web. Gives title, URL and a snippet of each result, best first; read a result's page with "
        "webfetch.",
        WebSearchArguments,
        run,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=True),
        outputs=(WebSearchOutput,),
    )


async def _search(provider: SearchProvider, arguments: WebSearchArguments) -> ToolResult:
    query = " ".join(arguments.query.split())
    if not query:
        return ToolResult.of_error("Nothing was searched for: the query is blank.")
    if len(query) > MAX_QUERY_CHARS:
        return ToolResult.of_error(
            f"Nothing was searched for: the query is longer than {MAX_QUERY_CHARS} characters; use fewer words."
        )
    wanted = arguments.max_results or DEFAULT_RESULTS
    most = min(wanted, MAX_RESULTS)
    try:
        hits = tidy(await provider.search(query, most), most)
    except SearchError as error:
        return ToolResult.of_error(f"The search for {query!r} failed: {error}.")
    if not hits:
        return ToolResult.of_error(f"Nothing was found for {query!r}. Try other or fewer words.")
    note = f" (maxResults is at most {MAX_RESULTS})" if wanted > MAX_RESULTS else ""
    pages = [PageFound(title=hit.title, url=hit.url, snippet=hit.snippet) for hit in hits]
    found = WebSearchOutput(results=pages).to_value()
    entries = (
        f"{number}. {hit.title or hit.url}\n   {hit.url}" + (f"\n   {hit.snippet}" if hit.snippet else "")
        for number, hit in enumerate(hits, start=1)
    )
    listing = "\n\n".join((f"{counted(len(hits), 'result')} for {query!r}{note}:", *entries))
    return ToolResult((TextContentBlock(listing), JsonContentBlock(found["results"])), structured=found)
