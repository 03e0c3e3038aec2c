"""Keep the worker of a remote server in access tokens: before one ends, and when one is refused. `Access` is the seam
to the logins, which live above this room.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from quarterdeck_protocol.challenge import usable_scopes
from quarterdeck_protocol.faults import ProtocolFault

AGAIN_S: Final = 30.0
"""Seconds before a failed renewal is retried. A refused token is renewed only if it was good for as long: a server that
refuses every token must not cause a request loop at its issuer.
"""

LOCKED_S: Final = 300.0
"""Seconds before a keyring that did not answer is asked again: it may ask its user for a password each time."""

LEAST_S: Final = 10.0
"""Minimum seconds between renewals: tokens that expire at once must not cause a request loop."""

_log = logging.getLogger("quarterdeck.fleet")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token; `renew_in_s` is None if it is good until refused."""

    value: str = field(repr=False)
    renew_in_s: float | None = None


class Access(Protocol):
    """Access to one remote server, by our login there."""

    async def open(self) -> AccessToken | None:
        """Return the first token, or None without a login. Raise ProtocolFault if the login cannot be used."""
        ...

    async def renew(self, refused: str = "") -> AccessToken:
        """Return a token that outlasts `refused`, which the server refused; raise ProtocolFault if there is none."""
        ...

    async def widen(self, present: str, scopes: tuple[str, ...]) -> AccessToken | None:
        """Have a person log in with these additional scopes, which the server wants.

        Return the token of a login made since the present one, else None. Raise ProtocolFault if that login cannot be
        used.
        """
        ...


class AccessKeeper:
    """Keeps a worker in tokens; `give` hands it a token, or an empty one if there is none."""

    def __init__(self, server: str, access: Access, give: Callable[[str], object]) -> None:
        self._server = server
        self._access = access
        self._give = give
        self._told = asyncio.Event()
        self._is_refused = False
        self._wanted: tuple[str, ...] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, token: AccessToken) -> None:
        """Keep this token good, which the worker has."""
        self._task = asyncio.create_task(self._keep(token), name=f"{self._server}: access")

    def refused(self, scopes: tuple[str, ...] | None = None) -> None:
        """The server refused the token: see `Unauthorized`."""
        if scopes is None:
            self._is_refused = True
        else:
            self._wanted = usable_scopes((*(self._wanted or ()), *scopes))
        self._told.set()

    async def stop(self) -> None:
        """Let it end with the worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _keep(self, token: AccessToken) -> None:
        mended_at: float | None = None
        is_owed = False  # another token, to a worker that waits for it
        renew_at = _moment(token.renew_in_s)
        while True:
            is_due = await self._wait(renew_at)
            if (wanted := self._wanted) is not None:
                self._wanted = None
                found = await self._asked(self._access.widen(token.value, wanted))
                if isinstance(found, AccessToken):
                    token, renew_at = found, _moment(found.renew_in_s)
                self._give(token.value if isinstance(found, AccessToken) else "")
            is_owed |= self._is_refused
            self._is_refused = False
            if not is_owed and not is_due:
                continue
            if is_owed and mended_at is not None and monotonic() - mended_at < AGAIN_S:
                _log.warning("%s refuses a token that was just renewed", self._server)
                self._give("")
                is_owed = False
                continue
            renewed = await self._asked(self._access.renew(token.value if is_owed else ""))
            if not isinstance(renewed, AccessToken):
                renew_at = _moment(LOCKED_S if renewed == "keyring_unusable" else AGAIN_S)
                if is_owed and renewed != "login_failed":  # that may pass
                    self._give("")
                    is_owed = False
                continue
            if is_owed:
                mended_at = monotonic()
            if is_owed or renewed.value != token.value:
                self._give(renewed.value)
            is_owed = False
            token = renewed
            renew_at = _moment(None if renewed.renew_in_s is None else max(LEAST_S, renewed.renew_in_s))

    async def _asked(self, asking: Coroutine[None, None, AccessToken | None]) -> AccessToken | str | None:
        """Return the token, or the code of the fault that asking for it raised."""
        try:
            return await asking
        except ProtocolFault as fault:
            _log.warning("%s: %s: %s", self._server, fault, fault.remedy)
            return fault.code or ""
        except Exception:
            # Ours to mend.  Without this task its worker's refused requests would wait in vain, and the token end.
            _log.exception("%s: its login broke; it is tried again in %g s", self._server, AGAIN_S)
            return "broke"

    async def _wait(self, renew_at: float | None) -> bool:
        """Return True once the token is to be renewed, False if the server refused it before."""
        left_s = None if renew_at is None else max(0.0, renew_at - monotonic())
        try:
            async with asyncio.timeout(left_s):
                await self._told.wait()
        except TimeoutError:
            return True
        self._told.clear()
        return False


def _moment(in_s: float | None) -> float | None:
    return None if in_s is None else monotonic() + in_s
