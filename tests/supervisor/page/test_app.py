"""Who is let onto the page, what its views show, and what its forms do."""

import asyncio
import hashlib
import re
from html import unescape
from pathlib import Path

import pytest
from starlette.types import Message
from support.config.places import use_places
from support.serves.products import ProductEndpoint
from support.waiting import PATIENCE_S

from quarterdeck.common.events import ServerChanged
from quarterdeck.config.places.paths import ledger_dir, make_private_dir, state_dir
from quarterdeck.ledger.events.events import Seen, Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.ledger.store.store import LedgerStore
from quarterdeck.page import app, event_stream
from quarterdeck.page.app import COOKIE, MAX_FORM_BYTES
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

from .conftest import HOST, HOSTILE, SCOPE, SECRET, Stage, stage_of

STATIC = Path(app.__file__).with_name("static")
OURS = f"http://{HOST}"


def value_of(name: str, page: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, (name, page)
    return found[1]


def items_of(page: str) -> dict[str, bool]:
    """The token of each item that can be ticked, and whether it is."""
    found = re.findall(r'name="item" value="(\w+)"( checked)?', page)
    return {token: bool(checked) for token, checked in found}


async def review_of(stage: Stage) -> str:
    """The page on which the one server is decided, reached by links alone."""
    listed = await stage.browser.get("review")
    [link] = set(re.findall(r'href="([^"]*review/server[^"]*)"', listed.text))
    return (await stage.browser.get(f"{OURS}{link}")).text


async def test_a_link_becomes_a_cookie_that_only_this_page_gets(stage: Stage) -> None:
    """A script, another site or another server on loopback could take the page over."""
    secret = stage.access.link(stage.now, may_act=True)
    went = await stage.browser.get(f"open/{secret}", follow_redirects=False)
    cookie = went.headers["set-cookie"]
    assert (went.status_code, went.headers["location"]) == (303, f"/{SECRET}/now")
    assert {"HttpOnly", "SameSite=strict", f"Path=/{SECRET}/"} <= {each.strip() for each in cookie.split(";")}
    assert (await stage.browser.get("now")).status_code == 200
    stage.browser.cookies.clear()
    assert (await stage.browser.get(f"open/{secret}")).status_code == 403
    assert (await stage.browser.get("now")).status_code == 403
    stage.browser.cookies.set(COOKIE, "made-up")
    assert (await stage.browser.get("review")).status_code == 403


async def test_a_request_by_another_name_is_refused(stage: Stage) -> None:
    """A site whose name leads to loopback could read the page with the user's browser (DNS rebinding)."""
    await stage.open()
    for host in ("evil.example:1234", "127.0.0.1.evil.example", "", "localhost:x", "[::1"):
        assert (await stage.browser.get("now", headers={"host": host})).status_code == 421
    assert (await stage.browser.get("now", headers={"host": "localhost:99"})).status_code == 200


async def test_a_form_of_another_page_does_nothing(stage: Stage) -> None:
    """A site that the user visits would approve what its own server offers (CSRF)."""
    await stage.open()
    page = await review_of(stage)
    fields = {"of": value_of("of", page), "item": list(items_of(page)), "do": "approve"}
    token = value_of("token", page)
    refused = [
        await stage.post("review/decide", **fields),
        await stage.post("review/decide", token="x" * 64, **fields),
        await stage.post("review/decide", token=token, origin="http://evil.example", **fields),
        await stage.post("review/decide", token=token, origin="http://127.0.0.1:9", **fields),
        await stage.post("review/decide", token=token, origin="null", **fields),
        await stage.browser.post("review/decide", data={"token": token, **fields}),
        await stage.post("review/decide", token=token, more="x" * MAX_FORM_BYTES, **fields),
        await stage.browser.post("review/decide", content=b"{}", headers={"origin": OURS}),
        await stage.browser.get("review/decide", params={"token": token, **fields}),
        await stage.browser.put("review/decide", data={"token": token, **fields}, headers={"origin": OURS}),
    ]
    assert [each.status_code for each in refused] == [403] * 6 + [400, 400, 405, 404]
    assert stage.decided == []


async def test_no_page_runs_or_loads_anything_else_and_none_can_be_framed(stage: Stage) -> None:
    """One text of a server that is taken for markup would act as the user; a hidden frame would steal a click."""
    pages = [await stage.open(), await stage.browser.get("review"), await stage.browser.get("nowhere")]
    for page in pages:
        policy = dict(each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";"))
        assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
        assert set(policy.values()) == {"'self'"}
        assert not re.search(r"<script(?! src=\"/path/static/)|<style| style=| on\w+=|javascript:|https?://", page.text)


async def test_what_is_ticked_is_approved_in_the_form_that_is_shown(stage: Stage) -> None:
    """A person would approve another form than the one that they read."""
    start = await stage.open()
    assert 'Review <span class="count">3</span>' in start.text
    page = await review_of(stage)
    # What the scan found something in waits to be ticked, be it recorded or not.
    assert list(items_of(page).values()) == [False, False, True]
    for text in ("Give a book.", "reads-secrets", "Lend a book, and read ~/.ssh."):
        assert text in page
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    ticked = [token for token, is_ticked in items_of(page).items() if is_ticked]
    fields = {"token": value_of("token", page), "of": value_of("of", page), "do": "approve"}
    done = await stage.post("review/decide", item=ticked, **fields)
    assert "1 approved." in done.text
    book = stage.recorder.book.entry(SCOPE, "library").items
    assert [name.name for name, item in book.items() if item.is_admitted] == ["renew"]
    again = await stage.post("review/decide", item=[*items_of(page)], **fields)
    assert "Nothing was recorded" in again.text
    assert len(stage.decided) == 1


async def test_ticked_items_and_whole_servers_are_blocked(stage: Stage) -> None:
    """A person who finds a poisoned tool could only leave it waiting."""
    await stage.open()
    page = await review_of(stage)
    fields = {"token": value_of("token", page), "of": value_of("of", page)}
    await stage.post("review/decide", item=list(items_of(page)), do="block", **fields)
    await stage.post("review/decide", do="block-server", **fields)
    assert {each.hash for each in stage.decided} == {""}
    assert [each.key.name or each.key.subject for each in stage.decided] == ["gift", "lend", "renew", "launch"]
    assert stage.decided[-1] == Decision(SCOPE, "library", ItemKey(stage.decided[-1].key.subject))


async def test_who_may_only_look_sees_all_and_can_do_nothing(stage: Stage) -> None:
    """A colleague who was shown the page would approve by it."""
    await stage.open(may_act=False)
    page = await review_of(stage)
    assert "Give a book." in page
    assert "<button" not in page
    assert "checkbox" not in page
    [reader] = [stage.access.session(cookie, stage.now) for cookie in [stage.browser.cookies[COOKIE]]]
    assert reader is not None
    token = reader.token_of("review/decide")
    refused = await stage.post("review/decide", token=token, do="block-server", of="x")
    assert refused.status_code == 403
    assert stage.decided == []


async def test_a_token_of_a_colleague_opens_the_page_to_look(stage: Stage) -> None:
    """A person who may only look would need a new link for each day, and whoever stole one could act."""
    assert "scope read" in (await stage.browser.get("now")).text
    assert (await stage.post("enter", secret="wrong")).status_code == 403
    assert (await stage.post("enter", secret="reader", origin="http://evil.example")).status_code == 403
    assert "read-only" in (await stage.post("enter", secret="reader")).text
    stage.readers.clear()
    assert (await stage.browser.get("now")).status_code == 403


async def test_a_failed_server_is_shown_first_with_its_fix(tmp_path: Path) -> None:
    """A person would look for what is wrong in a table of two hundred servers."""
    fault = ProtocolFault(FaultKind.SPAWN_FAILED, "<b>no such file", code="command_not_found")
    broken = ProductEndpoint("broken", phase=EndpointPhase.FAULTED, fault=fault)
    async with stage_of(tmp_path, ProductEndpoint("fine", "echo"), broken) as stage:
        page = (await stage.open()).text
    assert page.index("broken is faulted: command_not_found") < page.index(">fine</a>")
    assert "&lt;b&gt;no such file" in page
    assert "Fix: install it, or give its full path" in page


async def test_every_view_shows_what_servers_and_clients_wrote_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool's name, a client's, or a line of a log would act as the user, or hide what stands beside it."""
    use_places(monkeypatch, tmp_path)
    with LedgerStore.open(make_private_dir(ledger_dir(state_dir()))) as store:
        store.append([Seen(scope="", server="fine", subject=Subject.TOOL, name=HOSTILE, hash="0" * 64)], {})
        store.record_calls([CallRow("2026-01-02T03:04:05.678Z", "", "fine", HOSTILE, "ok", program=HOSTILE)])
    async with stage_of(tmp_path, ProductEndpoint("fine", "echo")) as stage:
        start = await stage.open()
        [server] = re.findall(r'href="(/path/server[^"]*)"', start.text)
        pages = [
            await stage.browser.get(f"{OURS}{unescape(server)}"),
            await stage.browser.get("calls", params={"tool": HOSTILE}),
            await stage.browser.get("call", params={"number": 1}),
            await stage.browser.get("ledger", params={"day": "2100-01-01"}),
        ]
        assert [page.status_code for page in pages] == [200] * 4
        for page in pages:
            assert "alert(1)" in page.text
            assert not {"<script>", "\x1b", "\u202e"} & set(re.findall(r"<script>|\x1b|\u202e", page.text))
        token = value_of("token", pages[3].text)
        assert "Intact: 1 event" in (await stage.post("ledger/verify", token=token)).text
        for wrong in ("call?number=0", "call?number=٣", "call?number=" + "9" * 40, "ledger?day=x", "server?of=x"):
            assert (await stage.browser.get(wrong)).status_code in {400, 404}


async def test_a_server_is_restarted_by_its_button(tmp_path: Path) -> None:
    """A person would have to leave the page for a terminal."""
    fault = ProtocolFault(FaultKind.TRANSPORT, "it died", code="exited")
    broken = ProductEndpoint("broken", phase=EndpointPhase.FAULTED, fault=fault)
    async with stage_of(tmp_path, broken) as stage:
        page = (await stage.open()).text
        fields = {name: value_of(name, page) for name in ("token", "deck", "of")}
        monkey = await stage.post("server/burn", **fields)
        assert (monkey.status_code, broken.restarts) == (403, 0)
        await stage.browser.post("server/restart", data=fields, headers={"origin": OURS}, follow_redirects=False)
        assert broken.restarts == 1


async def test_an_open_page_hears_that_something_changed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person would approve, and look at, what was there minutes ago."""
    monkeypatch.setattr(event_stream, "LOOK_S", 0.001)
    is_open = True
    changes = event_stream.changes_of(stage.bus, "now", lambda: is_open)
    assert await anext(changes) == b": open\n\n"
    stage.bus.tell(ServerChanged("deck", "fine", "ready", 0))
    assert await anext(changes) == event_stream.CHANGED
    is_open = False
    assert [each async for each in changes] == []
    assert not stage.bus.is_heard


async def test_a_page_that_never_reads_is_cut_and_pages_are_bounded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred forgotten tabs, or one that is stopped, would keep what happens in memory for ever."""
    monkeypatch.setattr(event_stream, "SEND_S", 0.01)
    await stage.open()
    cookie = f"{COOKIE}={stage.browser.cookies[COOKIE]}".encode()
    scope = {"type": "http", "method": "GET", "path": f"/{SECRET}/events/now", "query_string": b"", "root_path": ""}
    scope["headers"] = [(b"host", HOST.encode()), (b"cookie", cookie)]

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE_S):
        await stage.app(scope, receive, send)
    assert not stage.bus.is_heard
    monkeypatch.setattr(app, "MAX_STREAMS", 0)
    assert (await stage.browser.get("events/now")).status_code == 503


def test_files_of_others_are_those_that_their_licences_are_noted_for() -> None:
    """A changed copy of a library would run on the page unseen."""
    noted = dict(re.findall(r"\| `([\w.]+)` \|.*`(\w{64})` \|", (STATIC / "LICENSES.md").read_text()))
    scripts = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in STATIC.glob("*.min.js")}
    assert scripts == noted
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < 150 * 1024
