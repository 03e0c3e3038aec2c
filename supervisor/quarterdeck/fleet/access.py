"""Keep the worker of a remote server in access tokens while it runs: before one ends, and when one is refused.

Above it the session of the worker; below it whoever has the login, which is above this room: `Access` is the seam.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from quarterdeck_protocol.challenge import usable_scopes
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import ProtocolFault

AGAIN_S: Final = 30.0
"""Until a renewal that failed is tried again; also how long a renewed token must have been good for, if it is refused,
to be renewed once more: a server that refuses every token would have its issuer asked without end."""

LOCKED_S: Final = 300.0
"""Until a keyring that did not answer is asked again: it may ask its user for a password each time."""

LEAST_S: Final = 10.0
"""Between two renewals: an issuer whose tokens end at once would be asked without end."""

_log = logging.getLogger("quarterdeck.fleet")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token; `renew_in_s` is None for one that is good until it is refused."""

    value: str = field(repr=False)
    renew_in_s: float | None = None


class Access(Protocol):
    """Access to one remote server, by our login there."""

    async def open(self) -> AccessToken | None:
        """The token to begin with; None where there is no login.

        Raises:
            ProtocolFault: there is one, and it cannot be used.
        """
        ...

    async def renew(self, refused: str = "") -> AccessToken:
        """A token that is good for longer, and is not this one, which the server refused.

        Raises:
            ProtocolFault: there is none.
        """
        ...

    async def widen(self, present: str, scopes: tuple[str, ...]) -> AccessToken | None:
        """Have a person look at a login with these scopes beside, which the server wants.

        A token of another login than the present one, where somebody has logged in since; else None.

        Raises:
            ProtocolFault: there is one, and it cannot be used.
        """
        ...


MakeAccess = Callable[[ServerConfig], Access | None]
"""Makes the access to a server; None for one that needs none."""


class AccessKeeper:
    """See the module; `give` hands a token to the worker, and an empty one where there is none."""

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
        """What came of asking for a token; the code of the fault where there is none."""
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
        """Wait until the server refuses a token, or one is to be renewed; whether it is."""
        left_s = None if renew_at is None else max(0.0, renew_at - monotonic())
        try:
            async with asyncio.timeout(left_s):
                await self._told.wait()
        except TimeoutError:
            return True
        self._told.clear()
        return False


def _moment(in_s: float | None) -> float | None:
    """When that is, monotonic."""
    return None if in_s is None else monotonic() + in_s
