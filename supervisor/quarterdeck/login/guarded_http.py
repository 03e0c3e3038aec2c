"""Carry out the requests of a login: to judged addresses only, without a redirect, bounded in size and time.

A server says where its authorization server is, and so could have us ask what only this machine reaches.  As for
`webfetch`, only the internet is open; of what is nearer, the hosts alone that the user's own row names.

A row's proxy carries all of it, and resolves the names: of these nothing can be judged here, only addresses in numbers.
The row's client certificate is for the server's own origin, and shown to nobody else.  The server is known by `ca_file`
alone, as by its worker; all others by that or by the system's authorities.
"""

import ssl
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import httpcore2
from httpx2 import URL, Proxy

from quarterdeck.config.web_policy import Allowed, parse_allowed
from quarterdeck.tools.web.decoding import CodingError, decoder_for
from quarterdeck.tools.web.guarded_network import (
    Dial,
    GuardedNetwork,
    Meter,
    RefusedError,
    Resolve,
    SystemResolver,
    TooMuchError,
    dial,
    judge_literal,
)
from quarterdeck.tools.web.urls import port_of
from quarterdeck_protocol.configs import RemoteServerConfig
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.secrets import origin_of
from quarterdeck_protocol.tls import CertificateFileError, tls_context

from .http_messages import Conversation, HttpAnswer, HttpRequest, UnavailableError, UnsafeError, told

MAX_BODY_BYTES: Final = 64 * 1024
"""Metadata of real servers has some 4 KiB; two tokens of the largest size fit."""

MAX_HEAD_BYTES: Final = 256 * 1024
"""As of `webfetch`."""

ANSWER_S: Final = 20.0
"""For a whole request: a person waits, or calls do."""

CONNECT_S: Final = 10.0

MAX_REQUESTS: Final = 16
"""Requests of one conversation; the longest makes some ten."""

T = TypeVar("T")


class GuardedHttp:
    """HTTP for the logins of one row; `resolve` and `dial` default to this machine's own."""

    def __init__(self, row: RemoteServerConfig, *, resolve: Resolve | None = None, dial: Dial = dial) -> None:
        self._row = row
        self._proxy = Proxy(row.proxy) if row.proxy else None
        self._allowed = _allowed_by(row)
        self._resolve = resolve or SystemResolver()
        self._dial = dial
        self._tls: dict[bool, ssl.SSLContext] = {}

    async def converse(self, conversation: Conversation[T]) -> T:
        """Return the result of a conversation; raise its LoginError, or one if a server cannot be asked."""
        answer: HttpAnswer | None = None
        for _ in range(MAX_REQUESTS):
            try:
                request = next(conversation) if answer is None else conversation.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            answer = await self.ask(request)
        conversation.close()
        raise UnsafeError(f"a login does not come to its end after {MAX_REQUESTS} requests")

    async def ask(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to one request, whatever its status; redirects are not followed.

        Raise UnsafeError for a forbidden address, UnavailableError if there is no answer.
        """
        url = URL(request.url)
        where = told(str(url.copy_with(query=None)))
        try:
            with anyio.fail_after(ANSWER_S):
                return await self._ask(request, url)
        except RefusedError as error:
            raise UnsafeError(
                f"{where} leads to an address that a server may not send us to: {error}. Only the hosts of the row's "
                "url and of its auth.issuer may be on this machine or in a private network"
            ) from None
        except TooMuchError:
            raise UnsafeError(f"{where} answered with more than {MAX_BODY_BYTES:,} bytes") from None
        except TimeoutError:
            raise UnavailableError(f"{where} did not answer within {ANSWER_S:g} s") from None
        except CertificateFileError as error:
            raise UnavailableError(f"{where} is not asked: {error}") from None
        except (
            *(httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProxyError, httpcore2.ProtocolError),
            CodingError,
        ) as error:
            by = " through the proxy of its row" if self._proxy is not None else ""
            raise UnavailableError(f"{where} cannot be asked{by}: {told(str(error))}") from None

    async def _ask(self, request: HttpRequest, url: URL) -> HttpAnswer:
        meter = Meter(MAX_HEAD_BYTES)
        if self._proxy is not None:
            judge_literal(url.host, port_of(url), self._allowed)
        judges = self._proxy is None  # else all that is connected to is the user's own proxy
        headers = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": f"{CLIENT_NAME}/{CLIENT_VERSION}",
            "Accept-Encoding": "identity",
            "Connection": "close",
            **request.headers,
            **({"Content-Length": str(len(request.body))} if request.method == "POST" else {}),
        }
        async with (
            GuardedNetwork(self._allowed, meter, resolve=self._resolve, dial=self._dial, judges=judges) as network,
            await self._pool(network, url) as pool,
            pool.stream(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=list(headers.items()),
                content=request.body,
                extensions={"timeout": {"connect": CONNECT_S}},
            ) as response,
        ):
            head: dict[str, str] = {}
            for name, value in response.headers:
                head.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
            if not request.needs_body:
                return HttpAnswer(response.status, head)
            meter.left_bytes = 2 * MAX_BODY_BYTES + MAX_HEAD_BYTES
            return HttpAnswer(response.status, head, await _read(response, head.get("content-encoding", "")))

    async def _pool(self, network: GuardedNetwork, url: URL) -> httpcore2.AsyncConnectionPool:
        is_own = origin_of(str(url)) == origin_of(str(URL(self._row.url)))
        tls = await self._tls_for(is_own=is_own) if url.scheme == "https" else None
        if (proxy := self._proxy) is None:
            return httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=network)
        at = httpcore2.URL(scheme=proxy.url.raw_scheme, host=proxy.url.raw_host, port=proxy.url.port, target="/")
        return httpcore2.AsyncHTTPProxy(
            at,
            proxy_auth=proxy.raw_auth,
            ssl_context=tls,
            proxy_ssl_context=await self._tls_for(is_own=False) if proxy.url.scheme == "https" else None,
            network_backend=network,
        )

    async def _tls_for(self, *, is_own: bool) -> ssl.SSLContext:
        """Return TLS for the server's own origin, or for all others. May raise CertificateFileError."""
        row, ca_file = self._row, self._row.ca_file or ""
        if is_own not in self._tls:
            shown = (row.client_cert or "", row.client_key or "") if is_own else ()
            # In a thread: it may read some hundred certificates.
            make = partial(tls_context, ca_file, *shown, with_system=None if is_own else True)
            self._tls[is_own] = await anyio.to_thread.run_sync(make)
        return self._tls[is_own]


async def _read(response: httpcore2.Response, encoding: str) -> bytes:
    decoder, body = decoder_for(encoding), bytearray()
    async for piece in response.aiter_stream():
        body += decoder.feed(piece, MAX_BODY_BYTES + 1 - len(body))
        if len(body) > MAX_BODY_BYTES:
            raise TooMuchError
    return bytes(body)


def _allowed_by(row: RemoteServerConfig) -> tuple[Allowed, ...]:
    if row.internet_only:
        return ()
    allowed = []
    for named in filter(None, (row.url, row.auth.issuer)):
        with suppress(ValueError):
            allowed.append(parse_allowed(URL(named).host))
    return tuple(allowed)
