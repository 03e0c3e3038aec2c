"""`websearch`: search the web.  Above it the session; below it `web.search`, the seam and its default."""

from collections.abc import Sequence
from typing import Annotated, Final

import anyio
from msgspec import Meta

from quarterdeck.kernel.arguments import Arguments, schema_of
from quarterdeck.kernel.context import ToolContext
from quarterdeck.kernel.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.kernel.spec import DefinedTool, ToolSpec, define_tool, typed
from quarterdeck.kernel.web.search import DdgsProvider, SearchError, SearchHit, SearchProvider, tidy
from quarterdeck_protocol.tools import ToolHints

DEFAULT_RESULTS: Final = 5

MAX_RESULTS: Final = 25

MAX_QUERY_CHARS: Final = 500
"""Engines cut longer ones, or refuse them."""


class WebSearchArguments(Arguments, frozen=True):
    """What to search for."""

    query: Annotated[str, Meta(min_length=1, description="What to search for, as typed into a search engine.")]
    max_results: (
        Annotated[
            int,
            Meta(ge=1, description=f"How many results (default {DEFAULT_RESULTS}, at most {MAX_RESULTS})."),
        ]
        | None
    ) = None


def web_search_tool(provider: SearchProvider | None = None) -> DefinedTool:
    """The tool over `provider`, by default several public engines."""
    tool = _WebSearch(provider or DdgsProvider())
    return define_tool(
        ToolSpec(
            "websearch",
            "Search the web. Gives title, URL and a snippet of each result, best first; read a result's page with "
            "webfetch.",
            schema_of(WebSearchArguments),
            typed(WebSearchArguments, tool.run),
            title="Web search",
            hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=True),
        )
    )


class _WebSearch:
    def __init__(self, provider: SearchProvider) -> None:
        self._provider = provider

    async def run(self, arguments: WebSearchArguments, ctx: ToolContext) -> ToolResult:
        with anyio.CancelScope() as scope:
            forget = ctx.cancel.on_cancel(scope.cancel)
            try:
                return await self._search(arguments)
            finally:
                forget()
        return ToolResult.of_error("websearch was cancelled.")

    async def _search(self, arguments: WebSearchArguments) -> ToolResult:
        query = " ".join(arguments.query.split())
        if not query:
            return ToolResult.of_error("Nothing was searched for: the query is blank.")
        if len(query) > MAX_QUERY_CHARS:
            return ToolResult.of_error(
                f"Nothing was searched for: the query is longer than {MAX_QUERY_CHARS} characters; use fewer words."
            )
        wanted = arguments.max_results or DEFAULT_RESULTS
        try:
            found = await self._provider.search(query, min(wanted, MAX_RESULTS))
        except SearchError as error:
            return ToolResult.of_error(f"The search for {query!r} failed: {error}.")
        hits = tidy(found, min(wanted, MAX_RESULTS))
        if not hits:
            return ToolResult.of_error(f"Nothing was found for {query!r}. Try other or fewer words.")
        note = f" (maxResults is at most {MAX_RESULTS})" if wanted > MAX_RESULTS else ""
        rows = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet} for hit in hits]
        return ToolResult((TextContentBlock(_listing(query, hits, note)), JsonContentBlock(rows)))


def _listing(query: str, hits: Sequence[SearchHit], note: str) -> str:
    noun = "result" if len(hits) == 1 else "results"
    entries = []
    for number, hit in enumerate(hits, start=1):
        lines = [f"{number}. {hit.title or hit.url}", f"   {hit.url}"]
        entries.append("\n".join([*lines, f"   {hit.snippet}"] if hit.snippet else lines))
    return "\n\n".join((f"{len(hits)} {noun} for {query!r}{note}:", *entries))
