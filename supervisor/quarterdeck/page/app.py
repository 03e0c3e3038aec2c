"""The page as an ASGI application: who may ask, what each path shows, and what each form does.

Every request is judged first: its Host must be a name of this machine (DNS rebinding), its path must begin with the
page's secret, a form must come from the page itself and bring its token. The secret path keeps the cookie from other
servers on loopback, which share a browser's cookies with every port.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.common.events import Bus
from quarterdeck.daemon.control.answers import answer
from quarterdeck.daemon.control.protocol import Restart, Sleep, Wake
from quarterdeck.host.http.admission import LOOPBACK_NAMES, parse_authority
from quarterdeck.ledger.errors import LedgerError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.trust.judge.overview import State
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError

from .access import Access, Session
from .event_stream import EventStream, changes_of
from .state import MAX_ITEMS, DaemonState
from .views import Frame, attention_of, render

COOKIE: Final = "quarterdeck_page"

MAX_FORM_BYTES: Final = 64 * 1024
"""A form with `MAX_ITEMS` items has a fifth of that."""

FORM_S: Final = 10.0
"""Seconds for a form to arrive: a browser on this machine takes milliseconds."""

MAX_STREAMS: Final = 100
"""Pages that follow what happens at a time."""

SHOW_S: Final = 1.0
"""Seconds that a page waits for a server that was told to start or to stop; then it shows what it is doing."""

MAX_DIGITS: Final = 19
"""A call's number has fewer: SQLite's largest integer."""

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not `no-referrer`, with which browsers send forms without their origin.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

_STATIC: Final = Path(__file__).with_name("static")

_REQUESTS: Final[dict[str, type[Restart | Wake | Sleep]]] = {"restart": Restart, "wake": Wake, "sleep": Sleep}

Decide = Callable[[Sequence[Decision]], Awaitable[None]]
"""Records decisions, and has all decks act upon them."""

_log = logging.getLogger("quarterdeck.page")


class PageApp:
    """The application; `secret` is the first part of every path."""

    def __init__(
        self,
        state: DaemonState,
        access: Access,
        decide: Decide,
        secret: str,
        bus: Bus,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._state = state
        self._access = access
        self._decide = decide
        self._bus = bus
        self._clock = clock
        self._streams = 0
        self._root = f"/{secret}/"
        self._acting: set[asyncio.Task[object]] = set()
        routes: list[BaseRoute] = [
            Route("/open/{link}", self._open),
            Route("/enter", self._enter, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/events/{view}", self._events),
            Route("/now", self._now),
            Route("/", self._now),
            Route("/server", self._server),
            Route("/server/{what}", self._acted, methods=["POST"]),
            Route("/calls", self._calls),
            Route("/call", self._call),
            Route("/ledger", self._ledger),
            Route("/ledger/verify", self._verified, methods=["POST"]),
            Route("/review", self._review),
            Route("/review/server", self._review_server),
            Route("/review/decide", self._decided, methods=["POST"]),
        ]
        handlers = {HTTPException: self._failed, LedgerError: self._failed}
        self._app: ASGIApp = Starlette(routes=[Mount(f"/{secret}", routes=routes)], exception_handlers=handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; nothing of it reaches a path before it was judged."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *told]
            await send(message)

        request = Request(scope, receive)
        refusal = await self._refusal(request)
        await (refusal or self._app)(scope, request.receive, send_guarded)

    async def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that may not go on; leave its session in its state otherwise."""
        hosts = request.headers.getlist("host")
        found = parse_authority(hosts[0]) if len(hosts) == 1 else None
        if found is None or found.host not in LOOPBACK_NAMES:
            return Response("this Host header is not accepted", 421)
        path = request.url.path
        if not path.startswith(self._root) or request.method not in {"GET", "HEAD", "POST"}:
            return Response("nothing is here: quarterdeck ui opens the page", 404)
        path = path.removeprefix(self._root)
        if path.startswith(("open/", "static/")):
            return None if request.method != "POST" else Response(status_code=405)
        session = self._access.session(request.cookies.get(COOKIE, ""), self._clock())
        request.state.session = session
        if session is None and path != "enter":
            return self._message(None, "This page is closed", "Open it anew: quarterdeck ui", 403)
        if request.method == "POST":
            if request.headers.getlist("origin") != [f"http://{hosts[0]}"]:
                return self._message(session, "Not done", "The form came from another page.", 403)
            request.state.form = form = await _form_of(request)
            if form is None:
                return self._message(session, "Not done", "The form is too large, or no form.", 400)
            if session is not None and path != "enter" and not session.admits(path, form.get("token", [""])[0]):
                why = "its token is wrong: go back, reload the page and try again"
                text = f"The form was not accepted: {why}." if session.may_act else "This page may only look."
                return self._message(session, "Not done", text, 403)
        return None

    # Coming and going

    async def _open(self, request: Request) -> Response:
        cookie = self._access.open(request.path_params["link"], self._clock())
        if cookie is None:
            text = "A link opens the page once, within a minute. If you did not open it, someone else did: run "
            return self._message(None, "This link is used or too old", f"{text}quarterdeck ui again.", 403)
        return self._began(cookie)

    async def _enter(self, request: Request) -> Response:
        cookie = self._access.enter(request.state.form.get("secret", [""])[0], self._clock())
        if cookie is None:
            text = "quarterdeck token create NAME --scope read makes one that opens the page, to look."
            return self._message(None, "This token does not open the page", text, 403)
        return self._began(cookie)

    def _began(self, cookie: str) -> Response:
        went = RedirectResponse(f"{self._root}now", 303)
        went.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path=self._root)
        return went

    async def _failed(self, request: Request, error: Exception) -> Response:
        session = getattr(request.state, "session", None)
        if isinstance(error, HTTPException):
            return self._message(session, "Not found", str(error.detail), error.status_code)
        return self._message(session, "The ledger cannot be read", str(error), 503)

    async def _events(self, request: Request) -> Response:
        if self._streams >= MAX_STREAMS:
            return Response("too many pages follow what happens: reload this one", 503)
        is_open = partial(self._access.is_open, request.cookies[COOKIE])
        self._streams += 1
        return EventStream(changes_of(self._bus, request.path_params["view"], is_open), self._forget_stream)

    def _forget_stream(self) -> None:
        self._streams -= 1

    # Views

    async def _now(self, request: Request) -> Response:
        decks = self._state.decks()
        return await self._page(
            request,
            "now.html",
            "now",
            live=True,
            problem=self._state.problem,
            decks=decks,
            attention=attention_of(decks),
        )

    async def _review(self, request: Request) -> Response:
        matters = await self._state.matters()
        waiting = [each for each in matters if each.waiting]
        blocked = [each for each in matters if each.of(State.BLOCKED) and not each.waiting]
        return await self._page(request, "review.html", "review", live=True, servers=waiting, blocked=blocked)

    async def _review_server(self, request: Request) -> Response:
        query = request.query_params
        review = await self._state.review(query.get("of", ""), whole="whole" in query)
        if review is None:
            raise HTTPException(404, "No open deck and no record has this server.")
        return await self._page(request, "review_server.html", "review", review=review)

    async def _decided(self, request: Request) -> Response:
        session, form = request.state.session, request.state.form
        place, wanted = form.get("of", [""])[0], form.get("do", [""])[0]
        if wanted == "block-server":
            found = await self._state.matters_of(place)
            decisions = [Decision(found.scope, found.server, ItemKey(Subject.LAUNCH))] if found is not None else []
        else:
            decisions = await self._state.decisions(place, form.get("item", ()), approve=wanted == "approve")
        try:
            await self._decide(decisions)
            session.said = (
                f"{len(decisions)} {'approved' if wanted == 'approve' else 'blocked'}." if decisions else _STALE
            )
        except StaleDecisionError:
            session.said = _STALE
        except LedgerError as error:
            session.said = f"Nothing was recorded: {error}"
        # Back to what is left of the server, where the form was not taken.
        return RedirectResponse(f"{self._root}{'review' if decisions else f'review/server?of={place}'}", 303)

    async def _server(self, request: Request) -> Response:
        query = request.query_params
        detail = await self._state.detail(query.get("deck", ""), query.get("of", ""))
        if detail is None:
            raise HTTPException(404, "No open deck has this server.")
        return await self._page(request, "server.html", "now", detail=detail)

    async def _acted(self, request: Request) -> Response:
        """Restart, wake or stop a server."""
        form, wanted = request.state.form, _REQUESTS.get(request.path_params["what"])
        deck, place = form.get("deck", [""])[0], form.get("of", [""])[0]
        found = self._state.find(deck, place)
        if found is None or wanted is None:
            raise HTTPException(404, "No open deck has this server.")
        product, status = found
        task = asyncio.create_task(answer(product, wanted(status.server)))
        self._acting.add(task)
        task.add_done_callback(self._done)
        await asyncio.wait([task], timeout=SHOW_S)
        return RedirectResponse(f"{self._root}server?deck={deck}&of={place}", 303)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._acting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a server could not be restarted, woken or stopped", exc_info=error)

    async def _calls(self, request: Request) -> Response:
        wanted = {key: request.query_params.get(key, "") for key in ("server", "tool", "client")}
        calls = await self._state.calls(**wanted)
        return await self._page(request, "calls.html", "calls", live=True, calls=calls, wanted=wanted)

    async def _call(self, request: Request) -> Response:
        number = request.query_params.get("number", "")
        story = await self._state.story(int(number)) if number.isdecimal() and len(number) < MAX_DIGITS else None
        if story is None:
            raise HTTPException(404, "There is no such call, or it is not kept any more.")
        return await self._page(request, "call.html", "calls", story=story)

    async def _ledger(self, request: Request) -> Response:
        server, day = (request.query_params.get(key, "") for key in ("server", "day"))
        try:
            day = date.fromisoformat(day).isoformat() if day else ""
        except ValueError:
            raise HTTPException(400, "That is no day.") from None
        lines = await self._state.history(Selection(server=server or None, until=_end_of(day) if day else None))
        deck = await self._state.as_of(_end_of(day)) if day else ()
        return await self._page(request, "ledger.html", "ledger", lines=lines, deck=deck, day=day, server=server)

    async def _verified(self, request: Request) -> Response:
        found = await self._state.verify()
        tip = f"{found.tip.count:,} events, head {found.tip.count}:{found.tip.hash}"
        request.state.session.said = f"Intact: {tip}." if found.is_intact else f"Broken: {found.reason} ({tip})."
        return RedirectResponse(f"{self._root}ledger", 303)

    # Helpers

    async def _page(
        self, request: Request, template: str, view: str, *, live: bool = False, **values: object
    ) -> Response:
        session: Session = request.state.session
        waiting = sum(len(each.waiting) for each in await self._state.matters())
        said, session.said = session.said, ""
        frame = Frame(self._root, view, session.may_act, session.token_of, waiting, said, live)
        return HTMLResponse(await asyncio.to_thread(partial(render, template, frame, **values)))

    def _message(self, session: Session | None, title: str, text: str, status: int) -> Response:
        frame = Frame(self._root, "", session is not None and session.may_act, lambda _: "")
        return HTMLResponse(render("message.html", frame, title=title, text=text, is_closed=session is None), status)


def _end_of(day: str) -> str:
    """Return the last moment of a day, as the ledger writes times."""
    return f"{day}T23:59:59.999Z"


_STALE: Final = "Nothing was recorded: nothing was ticked, or what is offered has changed since. Look at it again."


async def _form_of(request: Request) -> dict[str, list[str]] | None:
    """Return the fields of a form; None if it is too large, too slow, or no form."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return None
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_FORM_BYTES:
                    return None
        return parse_qs(body.decode("ascii"), max_num_fields=MAX_ITEMS + 20)
    except (TimeoutError, ValueError):
        return None
