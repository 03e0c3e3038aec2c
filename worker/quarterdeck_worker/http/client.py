"""The HTTP client of one remote server: the row's headers, TLS and proxy, our login's token, guarded addresses."""

from ssl import SSLContext
from typing import Final

import httpx2

from quarterdeck_protocol.challenge import INSUFFICIENT_SCOPE, read_challenge
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_protocol.tls import CertificateFileError, tls_context
from quarterdeck_worker.server import Access, ServerFault

from .bodies import CODINGS
from .internet_only import InternetOnlyTransport

CONNECT_S: Final = 15.0
"""To reach a host; what the server then does with a request has the call's own deadline."""

READ_S: Final = 3600.0
"""Longer than any call's usual deadline: the link's clock decides, not the HTTP client's."""

HTTP_ERRORS: Final = (httpx2.HTTPError, httpx2.StreamError, OSError)
"""Errors of a request without an answer, or with one that broke off."""

MAX_REDIRECTS: Final = 20  # of one request


class HttpClient:
    """Sends requests to one server.  `close` it.  Raises ServerFault for unusable certificates."""

    def __init__(
        self, server: RemoteServer, access: Access, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._access = access
        self._origin = _origin(httpx2.URL(server.url))
        tls = _tls_of(server)
        if transport is None and server.internet_only and not server.proxy:
            transport = InternetOnlyTransport(tls)  # a proxy resolves names itself, so no address could be checked
        self._client = httpx2.AsyncClient(
            headers={"Accept-Encoding": ", ".join(CODINGS), **server.headers},
            timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
            auth=httpx2.Auth(),  # else a user and password in the URL would take the place of the row's headers
            verify=tls,
            transport=transport,
            proxy=server.proxy or None,
            trust_env=False,  # what our own environment says is not the row's word
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(
        self, method: str, url: str, headers: dict[str, str] | list[tuple[bytes, bytes]], content: bytes | None = None
    ) -> httpx2.Response:
        """Send a request; returns the head of its answer, whose body is the caller's to read and to close.

        The access token goes to the server's origin alone.  A refused request was not carried out, so it is sent once
        more with another token, if there is one; what the server answers to that is returned.  So is one that was
        refused for lack of a scope: a person may have logged in for it since.  Redirects within the origin are
        followed, as the SDK does; any other is returned.

        Raises:
            httpx2.RequestError: there is no answer.
        """
        request = self._client.build_request(method, url, headers=headers, content=content)
        token, may_renew, redirects = self._access.token, True, 0
        while True:
            if not (token and _origin(request.url) == self._origin):
                token = ""
            elif token:
                request.headers["Authorization"] = f"Bearer {token}"
            response = await self._client.send(request, stream=True)
            wanted = wanted_scopes(response)
            try:
                if (response.status_code == 401 or wanted is not None) and token and may_renew:
                    may_renew = False
                    if token := await self._access.renewed(token, wanted):
                        await response.aclose()
                        continue
                following = _within_origin(response)
                if following is None or redirects == MAX_REDIRECTS:
                    return response
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()
            request, redirects = following, redirects + 1


def wanted_scopes(response: httpx2.Response) -> tuple[str, ...] | None:
    """Return the scopes for lack of which a request was refused, as far as named; None if it was not for that."""
    if response.status_code != 403:
        return None
    challenge = read_challenge(response.headers.get("www-authenticate", ""))
    return challenge.scopes if challenge.error == INSUFFICIENT_SCOPE else None


def _within_origin(response: httpx2.Response) -> httpx2.Request | None:
    """Return the request that follows a redirect: with its method, within the origin, and with no user of the server's
    choice.

    From http to https on the default ports of one host is within it, too.
    """
    following = response.next_request
    if following is None:
        return None
    sent, found = response.request.url, following.url
    is_upgrade = (sent.scheme, sent.port, found.scheme, found.port) == ("http", None, "https", None)
    is_within = _origin(sent) == _origin(found) or (is_upgrade and sent.host == found.host)
    has_own_user = bool(found.userinfo) and found.userinfo != sent.userinfo
    return following if is_within and not has_own_user and following.method == response.request.method else None


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port  # which is None where it is the scheme's own


def _tls_of(server: RemoteServer) -> SSLContext:
    url = httpx2.URL(server.url)
    # No redirect leads from there to https: see `_within_origin`.  Without authorities, TLS would accept nobody.
    never_encrypts = url.scheme == "http" and url.port is not None
    try:
        return tls_context(
            server.ca_file,
            server.client_cert,
            server.client_key,
            with_system=False if never_encrypts else None,
        )
    except CertificateFileError as error:
        cause = RemoteCause.of(error.__cause__)
        fault = FaultRecord(FaultKind.TRANSPORT, str(error), "config_invalid", Delivery.NOT_SENT, cause)
        raise ServerFault(fault) from error
