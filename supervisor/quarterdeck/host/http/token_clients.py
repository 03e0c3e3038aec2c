"""Clients by the tokens that they show: who they are, how often they may ask, which sessions are theirs, and their end.

A session belongs to the token that opened it: shown with another it is unknown.  When a token is revoked or expires,
its requests under way and its sessions end, within `LOOK_S`.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Final, Protocol

import anyio
import msgspec
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.common.in_flight import who_of
from quarterdeck.common.tool_names import Profile
from quarterdeck.host.mcp_server import CLIENT
from quarterdeck_protocol.tools import Client

from .admission import PATH, UNKNOWN, HttpAnswer, unauthorized
from .grants import NO_GRANTS, Bucket, Grant, Grants, GrantState

LOOK_S: Final = 0.5
"""Between two looks at whether the tokens of what is open still open it."""

MAX_SESSIONS: Final = 4096
"""Sessions whose owner is known: many times as many as are open at once."""

SESSION_HEADER: Final = b"mcp-session-id"

SESSIONS: Final = "quarterdeck.sessions"
"""In the state of a request's scope: the app that has the session which it opens or names."""

ENDED: Final = {
    GrantState.EXPIRED: "this token has expired: ask its owner for another, made by `quarterdeck token create`",
    GrantState.REVOKED: "this token was revoked: ask its owner for another, made by `quarterdeck token create`",
}
"""Said to whoever shows such a token; nobody can who was not given it."""

ENDING_S: Final = 2.0
"""For a session to end when its token has."""


_log = logging.getLogger("quarterdeck.http")


class GrantedTools:
    """What one grant allows, as a client carries it."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    @property
    def max_result_bytes(self) -> int | None:
        """See `Allowance`."""
        return self._grant.max_result_bytes

    @property
    def words(self) -> str:
        """See `Allowance`."""
        return f"the token {self._grant.name!r}"

    def allows(self, name: str, listing: str = "tools") -> bool:  # noqa: ARG002 - its patterns are of any list
        """See `Allowance`."""
        profile = self._grant.profile
        return self._grant.allows(name, _names_of(profile) if profile else ())

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        return self._grant.allows_some_of(server)


@cache
def _names_of(profile: str) -> Collection[str]:
    from quarterdeck.tools.catalogue import cards_for_profile

    return frozenset(str(card.id) for card in cards_for_profile(Profile(profile)))


class CallsPast(Protocol):
    """Has requests under way that do not come to the app."""

    def end_calls(self, who: str, why: str) -> None:
        """End those of one client, and tell it why."""
        ...


class TokenClients:
    """Knows the clients of one HTTP server by their tokens, and what they have open there."""

    def __init__(self, current: Callable[[], Grants] = lambda: NO_GRANTS, now: Callable[[], float] = time.time) -> None:
        """Nobody is there yet.

        Args:
            current: the grants of the moment; cheap to ask.
            now: the time, by which they end.
        """
        self._current = current
        self._now = now
        self._clients: dict[str, tuple[Grant, Client]] = {}
        self._buckets: dict[str, Bucket] = {}
        self._owners: OrderedDict[str, tuple[str, ASGIApp]] = OrderedDict()
        self._under_way: dict[str, set[_Request]] = {}
        self.past: Final[set[CallsPast]] = set()
        """Have the requests that `wrap` does not see; they are ended with their token, too."""

    def identify(self, token: str) -> Client | str:
        """See `Tokens`."""
        grants = self._current()
        grant = grants.find(token) if grants.key else None
        if grant is None:
            return UNKNOWN
        if (state := grant.state(self._now())) is not GrantState.LIVE:
            return ENDED[state]
        client = grant.client
        known = self._clients.get(client.key)
        if known is None or known[0] != grant:
            allowance = GrantedTools(grant) if grant.is_limited else None
            known = self._clients[client.key] = grant, msgspec.structs.replace(client, allowance=allowance)
        return known[1]

    def wait_s(self, client: Client) -> float:
        """See `Tokens`."""
        grant, _ = self._clients.get(client.key, (None, None))
        if grant is None or grant.rate is None:
            return 0.0
        now = time.monotonic()
        return self._buckets.setdefault(client.key, Bucket(grant.rate, now)).take(now)

    def decks_of(self, client: Client) -> tuple[str, ...]:
        """See `Tokens`."""
        grant, _ = self._clients.get(client.key, (None, None))
        return grant.decks if grant is not None else ()

    def groups_of(self, client: Client) -> tuple[str, ...]:
        """See `Tokens`."""
        grant, _ = self._clients.get(who_of(client.key), (None, None))
        return grant.groups if grant is not None else ()

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """The app, for requests whose scope's state says who their client is.

        It leaves in the state, under `SESSIONS`, what has the sessions that it opens.
        """
        return partial(self._serve, app)

    def forget(self, sessions: ASGIApp) -> None:
        """What had these sessions has ended."""
        for session in [session for session, (_, theirs) in self._owners.items() if theirs is sessions]:
            del self._owners[session]

    async def watch(self) -> None:
        """End what is open of tokens that open nothing any more; ends by cancellation."""
        while True:
            await anyio.sleep(LOOK_S)
            for who in tuple(self._clients):
                if why := self._why_ended(who):
                    await self._end(who, why)

    def _why_ended(self, who: str) -> str:
        """Why a token that was shown opens nothing any more; empty when it does."""
        digest = self._clients[who][0].digest
        grant = next((each for each in self._current().grants if each.digest == digest), None)
        if grant is None:
            return UNKNOWN
        state = grant.state(self._now())
        return ENDED.get(state, "")

    async def _end(self, who: str, why: str) -> None:
        for request in self._under_way.get(who, ()):
            request.end(why)
        for past in self.past:
            past.end_calls(who, why)
        for session, app in [(session, app) for session, (owner, app) in self._owners.items() if owner == who]:
            self._owners.pop(session, None)
            try:
                # As its client would.
                with anyio.move_on_after(ENDING_S):
                    await app(_deletion(session, self._clients[who][1]), _nothing, _unheard)
            except Exception:
                _log.exception("a session could not be ended with its token; it is idle from here on")
        del self._clients[who]
        self._buckets.pop(who, None)

    async def _serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        client: Client = scope["state"][CLIENT]
        who = who_of(client.key)
        session = next((value.decode("latin-1") for name, value in scope["headers"] if name == SESSION_HEADER), "")
        if session and session in self._owners and self._owners[session][0] != who:
            # As of one that does not exist: what others have open is nobody's to learn.
            error = {"code": -32600, "message": "Session not found"}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 404)(scope, receive, send)
            return
        if session in self._owners:
            self._owners.move_to_end(session)
        request = _Request(send)
        self._under_way.setdefault(who, set()).add(request)
        try:
            with request.scope:
                await app(scope, receive, partial(self._pass_on, request, who, session, scope))
            await request.tell_end(scope, receive)
        finally:
            self._under_way[who].discard(request)
            if not self._under_way[who]:
                del self._under_way[who]

    async def _pass_on(self, request: "_Request", who: str, session: str, scope: Scope, message: Message) -> None:
        if message["type"] == "http.response.start":
            opened = next((value for name, value in message.get("headers", ()) if name == SESSION_HEADER), b"")
            if message["status"] == 404:
                self._owners.pop(session, None)
            elif opened and not session and message["status"] < 300:
                self._owners[opened.decode("latin-1")] = who, scope["state"][SESSIONS]
                if len(self._owners) > MAX_SESSIONS:
                    self._owners.popitem(last=False)
        await request.send(message)


class _Request:
    """One request under way, which may be ended from outside."""

    def __init__(self, send: Send) -> None:
        self.scope = anyio.CancelScope()
        self._send = send
        self._has_begun = False
        self._is_whole = False
        self._why = ""

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        self._has_begun = True
        self._is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    def end(self, why: str) -> None:
        """Cancel it, because of this."""
        self._why = why
        self.scope.cancel()

    async def tell_end(self, scope: Scope, receive: Receive) -> None:
        """Where it was ended, tell the client, as far as its response allows."""
        if not self._why or self._is_whole:
            return
        if self._has_begun:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await answer(unauthorized(self._why, "invalid_token"))(scope, receive, self._send)


def answer(verdict: HttpAnswer) -> Response:
    """The response that an answer in place of the protocol's is."""
    response: Response = Response(status_code=verdict.status)
    if verdict.error:
        response = JSONResponse({"error": verdict.error}, verdict.status)
    response.raw_headers.extend(verdict.headers)
    return response


def _deletion(session: str, client: Client) -> Scope:
    """The request by which a client ends its session."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "DELETE",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(SESSION_HEADER, session.encode("latin-1")), (b"accept", b"application/json, text/event-stream")],
        "client": None,
        "server": None,
        "state": {CLIENT: client},
    }


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(_: Message) -> None:
    pass
