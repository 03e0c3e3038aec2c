"""`webfetch` as a model uses it, against real servers."""

import asyncio
import sys
from base64 import b64decode

import msgspec
import pytest
from support.servers.web_servers import Request, WebServer, gzipped, redirect, response, serving
from support.tools.contexts import inert_context
from support.tools.file_tools import Answer, call, cancelled, outcome_of
from support.waiting import eventually_async

from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.spec import DefinedTool
from quarterdeck.tools.web.webfetch import CEILING_BYTES, DEFAULT_BYTES, MAX_ERROR_CHARS, web_fetch_tool
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall

pytestmark = pytest.mark.process

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def tool_for(*servers: WebServer) -> DefinedTool:
    return web_fetch_tool(FetchPolicy(allow=tuple(f"127.0.0.1:{server.port}" for server in servers)))


async def fetch(server: WebServer, path: str = "/", **given: object) -> Answer:
    return await call(tool_for(server), inert_context(), url=server.url + path, **given)


async def test_a_page_is_shown_as_text() -> None:
    """A model would be shown tags and scripts."""
    html = "<title>Docs</title><h1>Hi</h1><p>See <a href=more>more</a>.<script>x</script>"
    async with serving(response(html, "text/html; charset=utf-8")) as server:
        answer = await fetch(server, "/docs/")
    assert answer == Answer(
        f"{server.url}/docs/\n200 OK, text/html, {len(html)} bytes\nTitle: Docs\n\n"
        f"# Hi\n\nSee [more]({server.url}/docs/more).",
        is_error=False,
    )


async def test_a_page_without_the_parser_is_shown_crudely_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Links would be lost for good, and nobody be told why."""
    monkeypatch.setitem(sys.modules, "justhtml", None)
    async with serving(response("<p>Hi <a href=more>more</a>", "text/html")) as server:
        answer = await fetch(server)
    assert "justhtml is not installed: install it with `pip install 'quarterdeck[native]'`" in answer.text
    assert "Hi more" in answer.text
    assert not answer.is_error


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("text/plain", "a\n  b\n"),
        ("application/json", '{"a": [1]}'),
        ("application/xml", "<a>\n<b/></a>"),
        ("text/markdown; charset=utf-8", "# grün"),
        ("", "no type"),
        ("text/plain", ""),
    ],
)
async def test_other_text_is_shown_as_it_is(content_type: str, text: str) -> None:
    """Code and data would be reflowed, and a model wait for the rest of an empty answer."""
    async with serving(response(text, content_type)) as server:
        answer = await fetch(server)
    shown = content_type.partition(";")[0] or "no content type"
    size = f"{len(text.encode())} bytes"
    assert answer.text == f"{server.url}/\n200 OK, {shown}, {size}\n\n{text.strip(chr(10)) or '(it holds no text)'}"


async def test_an_image_is_an_image() -> None:
    """A model could not look at it."""
    async with serving(response(PNG, "image/x-wrong")) as server:
        outcome = await outcome_of(tool_for(server), inert_context(), url=f"{server.url}/")
    assert outcome.wire is not None
    result = msgspec.json.decode(outcome.wire.body)
    assert result["isError"] is False
    text, image = result["content"]
    assert text["text"].startswith(f"{server.url}/\n200 OK, image/x-wrong, {len(PNG)} bytes")
    assert (image["type"], image["mimeType"], b64decode(image["data"])) == ("image", "image/png", PNG)


async def test_an_image_may_be_larger_than_a_text_but_not_cut() -> None:
    """Most images would be refused, or be sent in halves that no client can draw."""
    large = PNG + bytes(2 * DEFAULT_BYTES)
    async with serving(response(large, "image/png")) as server:
        outcome = await outcome_of(tool_for(server), inert_context(), url=f"{server.url}/")
        assert outcome.wire is not None
        answer = await fetch(server, maxBytes=DEFAULT_BYTES)
        assert answer.is_error
        assert "The image is incomplete, so it is not shown." in answer.text
        assert "maxBytes sets how much is taken" in answer.text


async def test_what_cannot_be_shown_is_said_with_type_and_size() -> None:
    """A model would be shown bytes."""
    async with serving(response(b"%PDF-1.7\n\x80\x81\0" + bytes(5000), "application/pdf")) as server:
        answer = await fetch(server)
    assert answer.is_error
    assert "200 OK, application/pdf, 4.9 KiB (5,012 bytes)" in answer.text
    assert "webfetch cannot show this" in answer.text


async def test_a_refusal_of_the_server_is_an_error_with_its_words() -> None:
    """A model could not tell a missing page from a forbidden one."""
    html = "<h1>Not here</h1><p>" + "sorry " * 1000
    async with serving(response(html, "text/html", status=404)) as server:
        answer = await fetch(server)
    assert answer.is_error
    assert answer.text.startswith(f"{server.url}/\n404 Not Found, text/html")
    assert "\n\n# Not here\n\nsorry" in answer.text
    assert len(answer.text) < MAX_ERROR_CHARS + 200
    for status, said in ((500, "500 Internal Server Error"), (999, "999,"), (304, "304 Not Modified")):
        async with serving(response(b"\0\0", "image/png", status=status)) as server:
            answer = await fetch(server)
            assert answer.is_error
            assert said in answer.text


async def test_a_redirect_is_said() -> None:
    """A model would cite a page that it has not read."""
    async with serving(response("there")) as there, serving(redirect(f"{there.url}/x")) as server:
        answer = await call(tool_for(there, server), inert_context(), url=f"{server.url}/a#b")
    assert answer.text.startswith(f"{there.url}/x (redirected from {server.url}/a)\n200 OK")


async def test_a_part_is_said_to_be_one_with_the_way_to_more() -> None:
    """A model would take a part for the whole."""
    async with serving(response("x" * 3000)) as server:
        answer = await fetch(server, maxBytes=1000)
        assert "1,000 bytes of 3,000" in answer.text
        assert "Cut at 1,000 bytes: maxBytes sets how much is taken, up to 5,242,880." in answer.text
        assert answer.text.endswith("\n\n" + "x" * 1000)
        answer = await fetch(server, maxBytes=CEILING_BYTES + 1)
        assert "maxBytes is at most 5,242,880; that was taken." in answer.text
        assert "Cut" not in answer.text
    async with serving(response(gzipped("hello " * 100)[:-9], content_encoding="gzip")) as server:
        assert "Not all of it came: its gzip data ends early." in (await fetch(server)).text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::ffff:10.0.0.1]/", "http://2852039166/"])
async def test_what_is_near_is_refused_with_the_way_to_allow_it(url: str) -> None:
    """A page could make a model read the user's own services."""
    answer = await call(web_fetch_tool(), inert_context(), url=url)
    assert answer.is_error
    assert answer.text.startswith("Nothing was fetched: webfetch may not connect to ")
    assert "native.webfetch.allow" in answer.text


async def test_progress_is_told_to_who_asks() -> None:
    """A client would show nothing of a long download."""
    notes: list[ProgressNote] = []
    async with serving(response(b"x" * 300_000, "text/plain")) as server:
        request = ToolCall("1", "webfetch", {"url": server.url}, notes.append)
        outcome = await tool_for(server).invoke(request, inert_context().with_cancel(CancelToken(), request.report))
    assert not outcome.is_error
    assert len(notes) > 1
    assert notes[-1] == ProgressNote(300_000, 300_000)


async def test_cancelling_ends_the_fetch() -> None:
    """A cancelled call would go on downloading."""
    asked = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.005)

    async with serving(answer) as server:
        ended = await cancelled(tool_for(server), inert_context(), asked, url=server.url)
        await eventually_async(lambda: server.open == 0)
    assert ended == Answer("webfetch was cancelled.", is_error=True)
