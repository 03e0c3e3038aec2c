"""Send the access token of a login with each request to a remote server, and a renewed one when it is refused.

The token goes to the origin of the configured URL and nowhere else.  A refused request was not carried out, so it is
sent once more with another token; what the server answers to that is passed on.  So is one that was refused for want of
a scope: a person may have logged in for it since.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import httpx2

from quarterdeck_protocol.challenge import INSUFFICIENT_SCOPE, read_challenge
from quarterdeck_worker.access import Access

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403


class BearerAuth(httpx2.Auth):
    """See the module."""

    def __init__(self, url: str, access: Access, listen: Callable[[httpx2.Response], Awaitable[None]]) -> None:
        """Authorize requests to the origin of `url`; `listen` is told of each answer that is passed on."""
        self._origin = _origin(httpx2.URL(url))
        self._access = access
        self._listen = listen

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See `Auth`."""
        token = self._access.token if _origin(request.url) == self._origin else ""
        _put(request, token)
        response = yield request
        wanted = wanted_scopes(response)
        is_refused = response.status_code == UNAUTHORIZED or wanted is not None
        if is_refused and token and (token := await self._access.renewed(token, wanted)):
            _put(request, token)
            response = yield request
        await self._listen(response)


def wanted_scopes(response: httpx2.Response) -> tuple[str, ...] | None:
    """The scopes for want of which a request was refused, as far as they are named; None where it was not for that."""
    if response.status_code != FORBIDDEN:
        return None
    challenge = read_challenge(response.headers.get("www-authenticate", ""))
    return challenge.scopes if challenge.error == INSUFFICIENT_SCOPE else None


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port  # which is None where it is the scheme's own


def _put(request: httpx2.Request, token: str) -> None:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
