"""Logins that calls bring about: their clients send a person to the authorization server, on terms approved before.

One for each kept login at a time, whichever decks have its server: every call that wants it waits for the same one, and
it ends with the last of them.
Nobody approves anything by it: where no terms are approved, or others are wanted, a person has to use the command.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import cancelled, carried_through
from quarterdeck_protocol.configs import RemoteServerConfig
from quarterdeck_protocol.secrets import origin_of

from .access import Admits, guarded_http
from .http_messages import LoginError
from .store import LoginStore, LoginStoreError
from .terms import Grant, Terms

if TYPE_CHECKING:
    from .guarded_http import GuardedHttp
    from .redirect_listener import RedirectListener

ID_BYTES: Final = 16
"""Random bytes in the id by which a client knows a login."""

DECLINED_S: Final = 600.0
"""For so long a client that declined is not asked again: an agent would have its person asked at each of its calls."""

MAX_DECLINED: Final = 256
"""Remembered clients that declined; the earliest is forgotten."""

DONE: Final = ""
"""The result of a login that succeeded."""

_log = logging.getLogger("quarterdeck.login")


class LoginPlace(msgspec.Struct, frozen=True):
    """A server where a user can log in; `name` is its `login_name`, `approved` returns the approved terms or None."""

    config: RemoteServerConfig
    name: str
    approved: Callable[[], Awaitable[Terms | None]]
    admits: Admits


class OpenLogin:
    """One login in progress.

    Attributes:
        id: names it for clients.
        issuer: origin of the authorization server.
        url: page where the user logs in.
        ended: its result: `DONE`, or why it failed.
        waiting: number of calls that wait for it.
        starts: starts the server, for each deck whose calls have waited.
    """

    def __init__(self, server: str) -> None:
        self.id: Final = secrets.token_hex(ID_BYTES)
        self.server: Final = server
        self.issuer = ""
        self.url = ""
        self.ended: asyncio.Task[str]
        self.waiting = 0
        self.starts: Final[dict[LoginBroker, Callable[[], Awaitable[None]]]] = {}
        self._is_shown = asyncio.Event()

    async def is_shown(self) -> bool:
        """Wait until there is a page to open. Return whether there is."""
        showing = asyncio.create_task(self._is_shown.wait())
        try:
            await asyncio.wait((showing, self.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            showing.cancel()
        return bool(self.url)

    def show(self, url: str, issuer: str) -> None:
        """Publish the page to open."""
        self.url, self.issuer = url, issuer
        self._is_shown.set()


class LoginBroker:
    """Logins of one deck; `clock` in seconds.

    Attributes:
        find: returns the server of an id; None if no user logs in there.
        start: starts a server with its new login, and waits for it.
        under_way: the logins of all decks of this process, by name; None for a single deck.
    """

    def __init__(
        self,
        find: Callable[[str], LoginPlace | None],
        start: Callable[[str], Awaitable[None]],
        *,
        store: LoginStore | None = None,
        make_http: "Callable[[RemoteServerConfig], GuardedHttp] | None" = None,
        clock: Callable[[], float] = monotonic,
        under_way: dict[str, OpenLogin] | None = None,
    ) -> None:
        self._find = find
        self._start = start
        self._store = store
        self._make_http = make_http or guarded_http
        self._clock = clock
        self._open: Final = under_way if under_way is not None else {}
        self._declined: dict[tuple[str, str], float] = {}

    def may_ask(self, server: str, client: str) -> bool:
        """Return whether a client may be asked for a login: it has not just declined."""
        at = self._declined.get((server, client))
        return at is None or self._clock() - at >= DECLINED_S

    def declined(self, server: str, client: str) -> None:
        """Note that a client, or its user, has declined."""
        self._declined.pop((server, client), None)
        if len(self._declined) >= MAX_DECLINED:
            del self._declined[next(iter(self._declined))]
        self._declined[server, client] = self._clock()

    @asynccontextmanager
    async def joined(self, server: str) -> AsyncIterator[OpenLogin | None]:
        """Yield the login at a server, begun if necessary; None if it is impossible, with the reason in the log.

        It ends with the last block that waits for it.
        """
        place = self._find(server)
        if place is None:
            yield None
            return
        login = self._open.get(place.name)
        if login is None or login.ended.done():
            login = self._open[place.name] = OpenLogin(server)
            login.ended = asyncio.create_task(self._ended(login, place), name=f"{server}: login")
        login.starts[self] = partial(self._start, server)
        login.waiting += 1
        try:
            yield login if await login.is_shown() else None
        finally:
            login.waiting -= 1
            if not login.waiting:
                if self._open.get(place.name) is login:
                    del self._open[place.name]
                await cancelled(login.ended)  # its listener is closed, whatever happens

    async def close(self) -> None:
        """End all logins that no other deck waits for."""
        ours = [each for each in self._open.values() if each.starts.pop(self, None) is not None]
        if ended := [each.ended for each in ours if not each.starts]:
            await cancelled(*ended)

    async def _ended(self, login: OpenLogin, place: LoginPlace) -> str:
        try:
            return await self._log_in(login, place)
        except (LoginError, LoginStoreError, OSError) as error:
            _log.warning("%s: the login that a client was asked for did not come about: %s", login.server, error)
            return str(error)
        except Exception:
            # Ours to mend; whoever waits is told all the same.
            _log.exception("%s: the login that a client was asked for broke", login.server)
            return "it broke; the log says how"

    async def _log_in(self, login: OpenLogin, place: LoginPlace) -> str:
        """Return `OpenLogin.ended`; may raise LoginError, LoginStoreError, or OSError if the row's port is taken."""
        config = place.config
        approved = await place.approved()
        if approved is None:
            return "no login was approved before"
        store = self._store or LoginStore()
        await asyncio.to_thread(store.check, place.name)  # before a person is bothered
        # What speaks HTTP is loaded when it is first needed: most servers, and most starts, never do.
        await imported("quarterdeck.login.person")
        from .discovery import discover
        from .person import log_in
        from .token_requests import revoke

        http = self._make_http(config)
        found = await http.converse(discover(config, approved.issuer, approved.scopes))
        if not await place.admits(found.terms):
            return "it would be for something else than what was approved"

        async def show(url: str, _: "RedirectListener") -> None:
            login.show(url, origin_of(found.terms.issuer))

        grant = await log_in(config, found, http, show)
        if not await place.admits(grant.terms):  # where the server was asked for no scopes, it chose them
            with suppress(LoginError):
                await http.converse(revoke(grant))
            return "it gives more than what was approved"
        await carried_through(lambda: asyncio.to_thread(_keep, store, place.name, grant))
        self._declined = {key: at for key, at in self._declined.items() if key[0] != login.server}
        started: set[LoginBroker] = set()
        while late := login.starts.keys() - started:  # a deck may come while another's server starts
            started |= late
            await asyncio.gather(*(login.starts[each]() for each in late))
        return DONE


def _keep(store: LoginStore, name: str, grant: Grant) -> None:
    with store.locked(name):
        store.save(name, grant)
