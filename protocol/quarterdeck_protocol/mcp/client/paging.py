"""Take a list whole and bounded, page by page; its items stay the server's own bytes.  Pure."""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth, check_numbers

from .dialogues import Ask, Dialogue, ErrorReply
from .events import Listed, ListingFailed, Refused

MAX_ITEMS: Final = 5_000
"""More than any model can be shown, by a factor of ten."""

MAX_PAGES: Final = 500
"""A list of `MAX_ITEMS` in pages of ten; what is longer does not end."""

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""All items together, as JSON."""

MAX_CURSOR_CHARS: Final = 64 * 1024
"""Of a page's cursor; every one is kept, to know a list that goes round."""

LEAST_VALUE_BYTES: Final = 16
"""Of each value in a list of `MAX_LIST_BYTES`, in the mean: a page with more of them takes many times its size."""

MEMBERS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""The lists that there are, and where a page has its items."""

METHODS: Final = {member: method for method, member in MEMBERS.items()}


def noun(member: str) -> str:
    """What the items of a list are called in messages."""
    return "templates of resources" if member == "resourceTemplates" else member


class _Page(msgspec.Struct):
    tools: list[Raw] | UnsetType = UNSET
    prompts: list[Raw] | UnsetType = UNSET
    resources: list[Raw] | UnsetType = UNSET
    resourceTemplates: list[Raw] | UnsetType = UNSET  # noqa: N815 - the wire's name
    nextCursor: str | None = None  # noqa: N815


class _ListingError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def list_all(request_id: int, method: str) -> Dialogue:
    """Ends in `Listed`, `ListingFailed` or `Refused`, all of this `request_id`; `method` is one of `MEMBERS`.

    An item that may not be passed on (see `check_depth`, `check_numbers`) is left as `null`, like any broken one.
    """
    member = MEMBERS[method]
    what = noun(member)
    items: list[bytes] = []
    size = 0
    cursor: str | None = None
    seen: set[str] = set()
    try:
        for _ in range(MAX_PAGES):
            body = yield Ask(method, b"" if cursor is None else msgspec.json.encode({"cursor": cursor}))
            rows, cursor = _page(body, member, what)
            size += sum(map(len, rows))
            if len(items) + len(rows) > MAX_ITEMS or size > MAX_LIST_BYTES:
                raise _too_many(what)
            items += map(_passable, rows)
            if cursor is None:
                return Listed(request_id, b"[" + b",".join(items) + b"]")
            if len(cursor) > MAX_CURSOR_CHARS:
                raise _ListingError("bad_output", f"a cursor of the list of {what} has {len(cursor):,} characters")
            if cursor in seen:
                raise _ListingError("too_many_pages", f"the list of {what} comes back to a page that it had")
            seen.add(cursor)
        raise _ListingError("too_many_pages", f"the list of {what} has more than {MAX_PAGES} pages")
    except ErrorReply as error:
        return Refused(request_id, error.code, error.message, error.data)
    except _ListingError as error:
        return ListingFailed(request_id, error.code, str(error))
    except BodyError as error:
        return ListingFailed(request_id, "bad_output", f"the list of {what} does not follow MCP: {error}")


def _page(body: bytes, member: str, what: str) -> tuple[list[Raw], str | None]:
    """Return the items of one page, and the cursor of the next; raises `BodyError`, or `_ListingError` if it is too
    large.
    """
    if len(body) > 2 * MAX_LIST_BYTES or body.count(b",") > MAX_LIST_BYTES // LEAST_VALUE_BYTES:
        raise _too_many(what)
    if b"\r" in body:  # between values, where it is as good as a space; within text it would be escaped
        body = body.replace(b"\r", b" ")
    try:
        page = _page_decoder.decode(body)
        if not body.isascii():
            body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not a page", error) from None
    rows = getattr(page, member)
    if rows is UNSET:
        raise BodyError(f"a page has no {member}")
    return rows, page.nextCursor


def _passable(row: Raw) -> bytes:
    item = bytes(row)
    try:
        check_depth(item)
        check_numbers(item)
    except BodyError:
        return b"null"
    return item


def _too_many(what: str) -> _ListingError:
    message = f"more than {MAX_ITEMS:,} {what}, or {MAX_LIST_BYTES:,} bytes of them"
    return _ListingError("too_many_tools" if what == "tools" else "too_many_items", message)


_page_decoder: Final = msgspec.json.Decoder(_Page)
