"""A registry over HTTP, or a file in its place: what is asked of it, and what can be wrong with its answer."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from support.servers.web_servers import Answer, Request, redirect, response, serving, zeros_gzipped

from quarterdeck.config.load.own_keys import RegistryWish
from quarterdeck.registry.catalog import MAX_ANSWER_BYTES, Catalog, RegistryError

pytestmark = pytest.mark.process

OFFICIAL = "io.modelcontextprotocol.registry/official"


def entry(name: str, version: str = "1.0.0", *, is_latest: bool = True, status: str = "active") -> dict[str, object]:
    told = {"name": name, "description": f"About {name}", "version": version}
    return {"server": told, "_meta": {OFFICIAL: {"status": status, "isLatest": is_latest}}}


def json_response(value: object, status: int = 200) -> bytes:
    return response(json.dumps(value), content_type="application/json", status=status)


def page(*entries: object, cursor: str = "") -> bytes:
    return json_response({"servers": entries, "metadata": {"nextCursor": cursor, "count": len(entries)}})


async def refused(answer: Answer | bytes, *, finds: bool = False) -> str:
    """What a registry that answers so is said to do wrong, with what to do."""
    async with serving(answer) as server:
        catalog = Catalog(RegistryWish(server.url))
        with pytest.raises(RegistryError) as raised:
            await (catalog.find("a/b") if finds else catalog.search("x", 5))
    assert raised.value.remedy
    assert "\x1b" not in raised.value.message
    return raised.value.message.replace(server.url, "URL")


async def test_a_search_follows_the_cursor_and_asks_for_the_latest_versions() -> None:
    """A user would see the first page alone, or every version of a server."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(page(entry("a/two")) if "cursor=" in request.target else page(entry("a/one"), cursor="next/one"))

    async with serving(answer) as server:
        found = await Catalog(RegistryWish(server.url)).search("a b", 5)
    assert [each.server.name for each in found.entries] == ["a/one", "a/two"]
    assert not found.has_more
    assert [request.target for request in server.requests] == [
        "/v0.1/servers?search=a+b&version=latest&limit=100",
        "/v0.1/servers?search=a+b&version=latest&limit=100&cursor=next%2Fone",
    ]


async def test_pages_without_an_end_are_not_followed_for_ever() -> None:
    """A hostile registry would keep the command for as long as it likes."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(page(cursor=f"{len(server.requests)}"))

    async with serving(answer) as server:
        found = await Catalog(RegistryWish(server.url)).search("x", 5)
    assert (found.entries, found.has_more) == ((), True)
    assert len(server.requests) == 20


async def test_a_registry_that_takes_its_time_is_not_asked_for_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty pages of half a minute each would keep a user waiting for ten."""
    monkeypatch.setattr("quarterdeck.registry.catalog.SEARCH_S", -1.0)
    async with serving(page(entry("a/one"), cursor="more")) as server:
        found = await Catalog(RegistryWish(server.url)).search("x", 5)
    assert (len(found.entries), found.has_more, len(server.requests)) == (1, True, 1)


async def test_a_search_ends_where_enough_is_found_and_says_that_there_is_more() -> None:
    """A user would take the first servers for all of them."""
    many = [entry(f"a/{number}") for number in range(9)]
    async with serving(page(*many, entry("a/gone", status="deleted"), cursor="more")) as server:
        found = await Catalog(RegistryWish(server.url)).search("a", 3)
    assert ([each.server.name for each in found.entries], found.has_more) == (["a/0", "a/1", "a/2"], True)
    assert len(server.requests) == 1


async def test_one_server_is_found_by_its_whole_name() -> None:
    """A slash in a name would lead to another page of the registry."""
    async with serving(json_response(entry("a/b"))) as server:
        for base in ("", "/sub/v0.1", "/v0/"):
            found = await Catalog(RegistryWish(server.url + base)).find("a/b")
            assert found is not None
    assert [request.target for request in server.requests] == [
        "/v0.1/servers/a%2Fb/versions/latest",
        "/sub/v0.1/servers/a%2Fb/versions/latest",
        "/v0/servers/a%2Fb/versions/latest",
    ]
    async with serving(json_response({"error": "Server not found"}, status=404)) as server:
        assert await Catalog(RegistryWish(server.url)).find("a/b") is None


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (response("<!doctype html><p>Sign in</p>", content_type="text/html"), "a web page answers in its place"),
        (response("<html>not found</html>", content_type="text/html", status=404), "it answers 404"),
        (response("\x1b[31mno", content_type="application/json"), "its answer is no JSON"),
        (response(""), "its answer is empty"),
        (json_response({"hello": 1}), "not a list of servers"),
        (json_response([1]), "not a list of servers"),
        (json_response({"error": "x"}, status=400), "it answers 400"),
        (json_response({"error": "x"}, status=404), "no list of servers there"),
        (response("", status=429), "asked too often"),
        (response("oops", status=503), "out of order: it answers 503"),
        (response(zeros_gzipped(1 << 25), content_encoding="gzip"), f"larger than {MAX_ANSWER_BYTES:,} bytes"),
        (redirect("/elsewhere", status=302), "redirects more than"),
        (redirect("http://127.0.0.1:9/"), "leads to 127.0.0.1:9, which may not be reached: 127.0.0.1 is this machine"),
        (redirect("http://169.254.169.254/latest/meta-data"), "169.254.169.254:80, which may not be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "did not come whole"),
        (b"garbage\r\n\r\n", "invalid response"),
        (b"", "cannot be asked"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_whatever_answers_in_a_registrys_place_is_said(answer: bytes, says: str) -> None:
    """A user behind a proxy would be told that there is no such server."""
    assert says in await refused(answer)


async def test_an_answer_about_another_server_is_refused() -> None:
    """A registry would have another package added under the name that was asked for."""
    assert "another server than the one" in await refused(json_response(entry("a/c")), finds=True)
    assert "does not describe a server" in await refused(json_response({"server": {"name": "x"}}), finds=True)


async def test_a_registry_that_is_not_there_is_said_with_what_to_do() -> None:
    """A user without a network would see a traceback, or wait."""
    async with serving(b"") as server:
        pass
    with pytest.raises(RegistryError, match="cannot be reached") as raised:
        await Catalog(RegistryWish(server.url)).search("x", 5)
    assert "--registry FILE" in raised.value.remedy


async def test_a_file_that_never_ends_is_none(tmp_path: Path) -> None:
    """The command would wait for ever for whoever writes into a pipe."""
    os.mkfifo(tmp_path / "registry.json")
    for path in (tmp_path / "registry.json", tmp_path, Path("/dev/zero")):
        with pytest.raises(RegistryError, match="is no registry: is not a regular file"):
            await Catalog(RegistryWish(str(path))).find("a/b")


async def test_a_file_stands_for_a_registry(tmp_path: Path) -> None:
    """Nobody could look for servers, or try this, without a network."""
    path = tmp_path / "registry.json"
    old, new = entry("a/b", "1.0.0", is_latest=False), entry("a/b", "2.0.0")
    path.write_text(json.dumps({"servers": [old, new, entry("a/other"), entry("a/gone", status="deleted"), 1]}))
    catalog = Catalog(RegistryWish(str(path)))
    found = await catalog.search("ABOUT", 5)
    assert [(each.server.name, each.server.version) for each in found.entries] == [
        ("a/b", "2.0.0"),
        ("a/other", "1.0.0"),
    ]
    assert found.unread == 1
    assert (await catalog.search("nothing", 5)).entries == ()
    one = await catalog.find("a/b")
    assert one is not None
    assert one.server.version == "2.0.0"
    assert await catalog.find("a/c") is None


@pytest.mark.parametrize(
    ("text", "says"), [(None, "there is no file"), ("no", "is no registry"), ("[]", "is no registry")]
)
async def test_a_file_that_is_none_is_said(tmp_path: Path, text: str | None, says: str) -> None:
    """A mistyped path would be an empty registry."""
    path = tmp_path / "registry.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RegistryError, match=says):
        await Catalog(RegistryWish(str(path))).search("x", 5)
