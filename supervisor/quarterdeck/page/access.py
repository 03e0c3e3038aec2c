"""Who may open the page: one-time links that become sessions, and the token of each form. Pure.

Secrets are kept only as hashes, by which they are looked up: the time of a lookup tells nothing about them.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

LINK_S: Final = 60.0
"""Seconds in which a link can be opened, once."""

MAX_LINKS: Final = 16
"""Unopened links at a time; one more makes the oldest useless."""

SESSION_S: Final = 12 * 3600.0
"""Seconds that a session lasts without a request: a working day."""

MAX_SESSIONS: Final = 32
"""Browsers at a time; one more ends the session that was used longest ago, if possible of one that only looks."""


class Session(msgspec.Struct):
    """One browser.

    Attributes:
        form_key: makes its forms' tokens.
        may_act: whether it may decide and restart, not only look.
        seen: when it was used last, in monotonic seconds.
        token: the bearer token that it lasts as long as; empty for a link's.
        said: the outcome of its last form, shown with the next page.
    """

    form_key: str
    may_act: bool
    seen: float
    token: str = ""
    said: str = ""

    def token_of(self, action: str) -> str:
        """Return the token of the form that posts to `action`."""
        return hmac.new(self.form_key.encode(), action.encode(), hashlib.sha256).hexdigest()

    def admits(self, action: str, token: str) -> bool:
        """Return whether this session may post this form."""
        return self.may_act and hmac.compare_digest(self.token_of(action).encode(), token.encode())


class Access:
    """The links and sessions of one page. `make` returns a new secret of 256 bits, `may_look` whether a bearer token
    opens the page, to look, at present. `now` is monotonic seconds.
    """

    def __init__(self, make: Callable[[], str], may_look: Callable[[str], bool] = lambda _: False) -> None:
        self._make = make
        self._may_look = may_look
        self._links: dict[str, tuple[float, bool]] = {}
        self._sessions: dict[str, Session] = {}

    def link(self, now: float, *, may_act: bool) -> str:
        """Return the secret of a new link."""
        self._links = {key: each for key, each in self._links.items() if now < each[0]}
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        secret = self._make()
        self._links[_hash(secret)] = (now + LINK_S, may_act)
        return secret

    def open(self, secret: str, now: float) -> str | None:
        """Return the cookie of a new session, None for a link that is used, old or unknown; either way it is used."""
        until, may_act = self._links.pop(_hash(secret), (now, False))
        return self._begin(now, may_act=may_act) if now < until else None

    def enter(self, token: str, now: float) -> str | None:
        """Return the cookie of a new session that may look while this token may; None if it may not."""
        return self._begin(now, may_act=False, token=token) if self._may_look(token) else None

    def _begin(self, now: float, *, may_act: bool, token: str = "") -> str:
        while len(self._sessions) >= MAX_SESSIONS:
            # A token opens as many as its holder likes: they must not end those of who acts.
            key, _ = min(self._sessions.items(), key=lambda each: (each[1].may_act, each[1].seen))
            del self._sessions[key]
        cookie = self._make()
        self._sessions[_hash(cookie)] = Session(self._make(), may_act, now, token)
        return cookie

    def session(self, cookie: str, now: float) -> Session | None:
        """Return the session of this cookie, None if it has ended or never was; it is used by that."""
        session = self._sessions.get(_hash(cookie))
        if session is None or now - session.seen > SESSION_S or not self.is_open(cookie):
            self.leave(cookie)
            return None
        session.seen = now
        return session

    def is_open(self, cookie: str) -> bool:
        """Return whether the session of this cookie lasts; it is not used by that."""
        session = self._sessions.get(_hash(cookie))
        return session is not None and (not session.token or self._may_look(session.token))

    def leave(self, cookie: str) -> None:
        """End the session of this cookie."""
        self._sessions.pop(_hash(cookie), None)

    def is_used(self, now: float, within_s: float) -> bool:
        """Return whether a link can still be opened, or a session was used within so many seconds."""
        links = any(now < until for until, _ in self._links.values())
        return links or any(now - each.seen < within_s for each in self._sessions.values())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
