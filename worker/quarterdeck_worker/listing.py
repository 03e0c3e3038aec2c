"""Ask a server for all of its tools, page by page, whole and bounded."""

import json
from typing import Final

import mcp_types as types
from mcp.client.session import ClientSession
from pydantic import ValidationError

from quarterdeck_worker.sdk_calls import RAW_RESULT

MAX_TOOLS: Final = 5_000
"""More than any model can be shown, by a factor of ten."""

MAX_PAGES: Final = 500
"""A list of `MAX_TOOLS` in pages of ten; what is longer does not end."""

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""All tool objects together, as JSON."""


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
        page = await _page(session, cursor)
        rows = page.get("tools")
        if not isinstance(rows, list):
            raise ListingError("bad_output", "the list of tools is no list")
        for row in rows:
            text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
            size += len(text)
            tools.append(text)
        if len(tools) > MAX_TOOLS or size > MAX_LIST_BYTES:
            raise ListingError("too_many_tools", f"more than {MAX_TOOLS:,} tools, or {MAX_LIST_BYTES:,} bytes of them")
        following = page.get("nextCursor")
        if not isinstance(following, str):
            return ("[" + ",".join(tools) + "]").encode(errors="replace")
        if following in seen:
            raise ListingError("too_many_pages", "the list of tools comes back to a page that it had")
        seen.add(following)
        cursor = following
    raise ListingError("too_many_pages", f"the list of tools has more than {MAX_PAGES} pages")


async def _page(session: ClientSession, cursor: str | None) -> dict[str, object]:
    params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
    try:
        page: dict[str, object] = await session.send_request(types.ListToolsRequest(params=params), RAW_RESULT)
    except (ValidationError, RecursionError) as error:
        raise ListingError("bad_output", f"the list of tools is not what MCP says: {first_line(error)}") from error
    return page


def first_line(error: Exception) -> str:
    """What a validation error is about, in one line."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
    return str(error).partition("\n")[0]
