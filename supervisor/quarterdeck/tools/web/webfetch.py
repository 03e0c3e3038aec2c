"""`webfetch`: fetch one page, text or image of the web, never of this machine or its networks."""

from base64 import b64encode
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final

import anyio.to_thread
from msgspec import Meta

from quarterdeck.common.shielding import cancelled_by
from quarterdeck.common.words import clipped
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.files.file_access import size
from quarterdeck.tools.installed import is_installed, lacks
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .decoding import Kind, decode, image_type, kind_of

if TYPE_CHECKING:
    from .fetch import Fetched, Fetcher
    from .pages import PageReader

DEFAULT_BYTES: Final = 1024 * 1024  # of a page or a text by default; the longest articles are shorter
CEILING_BYTES: Final = 5 * 1024 * 1024  # at most, whatever a call asks for; and of an image, which is useless in part
MAX_ERROR_CHARS: Final = 2_000  # shown of a server's error page


class WebFetchArguments(Arguments, frozen=True):
    """The URL, and how much of it."""

    url: Annotated[
        str, Meta(min_length=1, description="What to fetch: a whole URL that begins with https:// or http://.")
    ]
    max_bytes: (
        Annotated[
            int,
            Meta(
                ge=1,
                description=f"Take at most so many bytes of the body (default {DEFAULT_BYTES}, at most "
                f"{CEILING_BYTES}); the rest is cut, and the result says so.",
            ),
        ]
        | None
    ) = None


def web_fetch_tool(policy: FetchPolicy | None = None, *, pages: "PageReader | None" = None) -> DefinedTool:
    """Make the tool under `policy`, by default open to the internet and nothing nearer; `pages` reads pages."""
    tool = _WebFetch(policy or FetchPolicy(), pages)
    return native_tool(
        "webfetch",
        "Fetch a URL with GET and show it: a web page as text with its links, headings, lists and tables, any "
        "other text as it is, an image as an image. Follows redirects. Runs no JavaScript, sends no cookies, and "
        "reaches the public internet only: addresses of this machine and of private networks are refused unless "
        "the user has allowed them.",
        WebFetchArguments,
        tool.run,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=True),
    )


class _WebFetch:
    def __init__(self, policy: FetchPolicy, pages: "PageReader | None") -> None:
        self._policy = policy
        self._fetcher: Fetcher | None = None
        self._pages = pages

    async def run(self, arguments: WebFetchArguments, ctx: ToolContext) -> ToolResult:
        with cancelled_by(ctx.cancel):
            return await self._fetch(arguments, ctx)
        return ToolResult.of_error("webfetch was cancelled.")

    async def _fetch(self, arguments: WebFetchArguments, ctx: ToolContext) -> ToolResult:
        # The HTTP library takes a tenth of a second to import, and most sessions never fetch.
        from .fetch import Fetcher, FetchError
        from .pages import PageReader

        self._fetcher = self._fetcher or Fetcher(self._policy)
        self._pages = self._pages or PageReader()
        most = min(arguments.max_bytes or DEFAULT_BYTES, CEILING_BYTES)
        most_of_image = min(arguments.max_bytes or CEILING_BYTES, CEILING_BYTES)
        try:
            fetched = await self._fetcher.fetch(arguments.url, most, most_of_image, ctx.tell)
        except FetchError as error:
            return ToolResult.of_error(str(error))
        notes = []
        if (arguments.max_bytes or 0) > CEILING_BYTES:
            notes.append(f"maxBytes is at most {CEILING_BYTES:,}; that was taken.")
        match kind_of(fetched.media, fetched.body):
            case Kind.PAGE:
                page = await self._pages.read(await _decoded(fetched), fetched.url)
                if page.is_crude and is_installed("justhtml"):
                    notes.append(
                        "The page could not be parsed within its limits: its tags were removed, and its links are lost."
                    )
                elif page.is_crude:
                    notes.append(f"The tags of this page were removed, and its links are lost: {lacks('justhtml')}.")
                if page.title:
                    notes.append(f"Title: {page.title}")
                return _show(fetched, notes, page.text)
            case Kind.TEXT:
                return _show(fetched, notes, await _decoded(fetched))
            case Kind.IMAGE if _is_success(fetched):
                header, media = _header(fetched, notes), image_type(fetched.body)
                if fetched.is_cut or fetched.trouble:
                    return ToolResult.of_error(f"{header}\n\nThe image is incomplete, so it is not shown.")
                image = {"type": "image", "data": b64encode(fetched.body).decode("ascii"), "mimeType": media}
                return ToolResult.of_mcp({"type": "text", "text": header}, image)
            case _ if _is_success(fetched):
                return ToolResult.of_error(
                    f"{_header(fetched, notes)}\n\nwebfetch cannot show this: it shows pages, text, and "
                    "images (PNG, JPEG, GIF, WebP)."
                )
            case _:
                return _show(fetched, notes, "")


async def _decoded(fetched: "Fetched") -> str:
    return await anyio.to_thread.run_sync(decode, fetched.body, fetched.media.charset)


def _is_success(fetched: "Fetched") -> bool:
    return fetched.status // 100 == 2


def _header(fetched: "Fetched", notes: list[str]) -> str:
    came_from = f"{fetched.url} (redirected from {fetched.asked_url})" if fetched.redirects else fetched.url
    try:
        status = f"{fetched.status} {HTTPStatus(fetched.status).phrase}"
    except ValueError:
        status = str(fetched.status)
    facts = [status, fetched.media.type or "no content type", size(len(fetched.body))]
    if fetched.declared_bytes is not None and fetched.declared_bytes > len(fetched.body):
        facts[-1] += f" of {fetched.declared_bytes:,}"
    lines = [came_from, ", ".join(facts), *notes]
    if fetched.is_cut:
        lines.append(f"Cut at {len(fetched.body):,} bytes: maxBytes sets how much is taken, up to {CEILING_BYTES:,}.")
    elif fetched.trouble:
        lines.append(f"Not all of it came: {fetched.trouble}.")
    return "\n".join(lines)


def _show(fetched: "Fetched", notes: list[str], text: str) -> ToolResult:
    header = _header(fetched, notes)
    text = text.strip("\n")
    if _is_success(fetched):
        return ToolResult.of_text(f"{header}\n\n{text or '(it holds no text)'}")
    return ToolResult.of_error(f"{header}\n\n{clipped(text, MAX_ERROR_CHARS)}".rstrip())
