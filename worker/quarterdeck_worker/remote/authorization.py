"""Send the access token of a login with each request to a remote server, and a renewed one when it is refused.

The token goes to the origin of the configured URL and nowhere else.  A refused request was not carried out, so it is
sent once more with another token; what the server answers to that is passed on.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import httpx2

from quarterdeck_worker.access import Access

UNAUTHORIZED: Final = 401


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
        if response.status_code == UNAUTHORIZED and token and (token := await self._access.renewed(token)):
            _put(request, token)
            response = yield request
        await self._listen(response)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port  # which is None where it is the scheme's own


def _put(request: httpx2.Request, token: str) -> None:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
