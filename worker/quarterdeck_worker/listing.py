"""Ask a server for all of its tools, page by page, whole and bounded.

The SDK's session refuses a page for one bad tool, so `PageDispatcher` takes the tools off a page before the session
sees it; which of them can be shown is the supervisor's to say.
"""

import json
from contextvars import ContextVar
from typing import Any, Final

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import ValidationError

from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker.remote.sdk_calls import RAW_RESULT

MAX_TOOLS: Final = 5_000
"""More than any model can be shown, by a factor of ten."""

MAX_PAGES: Final = 500
"""A list of `MAX_TOOLS` in pages of ten; what is longer does not end."""

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""All tool objects together, as JSON."""


MAX_CURSOR_CHARS: Final = 64 * 1024
"""Of a page's cursor; every one is kept, to know a list that goes round."""


class ListingError(Exception):
    """A list that cannot be taken; `code` is its stable name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def list_tools(session: ClientSession) -> bytes:
    """Every tool object as one JSON array, in the server's order; unknown fields are kept.

    Raises:
        ListingError: `too_many_pages`, `too_many_tools` or `bad_output`.
        MCPError: the server refused.
    """
    tools: list[str] = []
    size = 0
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        rows, following = await _page(session, cursor)
        for row in rows:
            text = _as_json(row)
            size += len(text)
            tools.append(text)
        if len(tools) > MAX_TOOLS or size > MAX_LIST_BYTES:
            raise ListingError("too_many_tools", f"more than {MAX_TOOLS:,} tools, or {MAX_LIST_BYTES:,} bytes of them")
        if following is None:
            return ("[" + ",".join(tools) + "]").encode(errors="replace")
        if len(following) > MAX_CURSOR_CHARS:
            raise ListingError("bad_output", f"a cursor of the list of tools has {len(following):,} characters")
        if following in seen:
            raise ListingError("too_many_pages", "the list of tools comes back to a page that it had")
        seen.add(following)
        cursor = following
    raise ListingError("too_many_pages", f"the list of tools has more than {MAX_PAGES} pages")


class PageDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's own, but for one thing; see the module."""

    async def send_raw_request(self, method: str, *args: Any, **more: Any) -> dict[str, Any]:
        """See `JSONRPCDispatcher`."""
        page = await super().send_raw_request(method, *args, **more)
        taken = _taken.get(None)
        rows = page.get("tools")
        if taken is None or method != "tools/list" or not isinstance(rows, list):
            return page
        taken += rows
        return page | {"tools": []}


async def _page(session: ClientSession, cursor: str | None) -> tuple[list[object], str | None]:
    """The tool objects of one page, and the cursor of the next."""
    params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
    rows: list[object] = []
    _taken.set(rows)
    try:
        page = await session.send_request(types.ListToolsRequest(params=params), RAW_RESULT)
    except (ValidationError, RecursionError) as error:
        raise ListingError("bad_output", f"the list of tools does not follow MCP: {plain_words(error)}") from error
    # A session that somebody else made has another dispatcher, and leaves the tools in their place.
    return [*rows, *page["tools"]], page.get("nextCursor")


def _as_json(row: object) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return "null"  # Python reads more than JSON knows: this is left out like any other broken tool


_taken: Final[ContextVar[list[object]]] = ContextVar("_taken")
"""Where the tools of the page go that this very task asks for."""
