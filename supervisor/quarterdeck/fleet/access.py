"""Keep the worker of a remote server in access tokens while it runs: before one ends, and when one is refused.

Above it the session of the worker; below it whoever has the login, which is above this room: `Access` is the seam.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import ProtocolFault

AGAIN_S: Final = 30.0
"""Until a renewal that failed is tried again; also how long a renewed token must have been good for, if it is refused,
to be renewed once more: a server that refuses every token would have its issuer asked without end."""

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


MakeAccess = Callable[[ServerConfig], Access | None]
"""Makes the access to a server; None for one that needs none."""


class AccessKeeper:
    """See the module; `give` hands a token to the worker, and an empty one where there is none."""

    def __init__(self, server: str, access: Access, give: Callable[[str], object]) -> None:
        self._server = server
        self._access = access
        self._give = give
        self._is_refused = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, token: AccessToken) -> None:
        """Keep this token good, which the worker has."""
        self._task = asyncio.create_task(self._keep(token), name=f"{self._server}: access")

    def refused(self) -> None:
        """The server refused the token."""
        self._is_refused.set()

    async def stop(self) -> None:
        """Let it end with the worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _keep(self, token: AccessToken) -> None:
        mended_at: float | None = None
        is_owed = False  # another token, to a worker that waits for it
        while True:
            is_owed |= await self._wait(token.renew_in_s)
            if is_owed and mended_at is not None and monotonic() - mended_at < AGAIN_S:
                _log.warning("%s refuses a token that was just renewed", self._server)
                self._give("")
                is_owed = False
                continue
            try:
                renewed = await self._access.renew(token.value if is_owed else "")
            except ProtocolFault as fault:
                _log.warning("%s: %s: %s", self._server, fault, fault.remedy)
                token = AccessToken(token.value, AGAIN_S)
                if is_owed and fault.code != "login_failed":  # that may pass
                    self._give("")
                    is_owed = False
                continue
            if is_owed:
                mended_at = monotonic()
            if is_owed or renewed.value != token.value:
                self._give(renewed.value)
            is_owed = False
            soon = renewed.renew_in_s is not None and renewed.renew_in_s < LEAST_S
            token = AccessToken(renewed.value, LEAST_S) if soon else renewed

    async def _wait(self, renew_in_s: float | None) -> bool:
        """Wait until a token is to be renewed; whether it was refused."""
        try:
            async with asyncio.timeout(renew_in_s):
                await self._is_refused.wait()
        except TimeoutError:
            return False
        self._is_refused.clear()
        return True
