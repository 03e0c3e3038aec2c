"""Carry out the requests of a login: to judged addresses only, without a redirect, bounded in size and time.

A server says where its authorization server is, and so could have us ask what only this machine reaches.  As for
`webfetch`, only the internet is open; of what is nearer, the host alone that the user's own row names.
"""

import ssl
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import httpcore2
from httpx2 import URL, create_ssl_context

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
)
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION

from .http_messages import Conversation, HttpAnswer, HttpRequest, UnavailableError, UnsafeError, told

MAX_BODY_BYTES: Final = 64 * 1024
"""Metadata of real servers has some 4 KiB; two tokens of the largest size fit."""

MAX_HEAD_BYTES: Final = 256 * 1024
"""As of `webfetch`."""

ANSWER_S: Final = 20.0
"""For a whole request: a person waits, or calls do."""

CONNECT_S: Final = 10.0

MAX_REQUESTS: Final = 16
"""Of one conversation; the longest makes some ten."""

T = TypeVar("T")


class GuardedHttp:
    """See the module; what is asked on behalf of one row."""

    def __init__(
        self,
        row_url: str,
        *,
        resolve: Resolve | None = None,
        dial: Dial = dial,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """For the row of this URL; all else is for tests and defaults to this machine's own."""
        self._allowed = _allowed_by(row_url)
        self._resolve = resolve or SystemResolver()
        self._dial = dial
        self._ssl_context = ssl_context

    async def converse(self, conversation: Conversation[T]) -> T:
        """What comes of a conversation.

        Raises:
            LoginError: the conversation's, or somebody cannot be asked.
        """
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
        """The answer to one request, whatever its status; a redirect is one.

        Raises:
            UnsafeError: it leads where it may not.
            UnavailableError: there is no answer.
        """
        url = URL(request.url)
        where = told(str(url.copy_with(query=None)))
        try:
            with anyio.fail_after(ANSWER_S):
                return await self._ask(request, url)
        except RefusedError as error:
            raise UnsafeError(
                f"{where} leads to an address that a server may not send us to: {error}. Only the host of the server's "
                "own row may be on this machine or in a private network"
            ) from None
        except TooMuchError:
            raise UnsafeError(f"{where} answered with more than {MAX_BODY_BYTES:,} bytes") from None
        except TimeoutError:
            raise UnavailableError(f"{where} did not answer within {ANSWER_S:g} s") from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, CodingError) as error:
            raise UnavailableError(f"{where} cannot be asked: {told(str(error))}") from None

    async def _ask(self, request: HttpRequest, url: URL) -> HttpAnswer:
        meter = Meter(MAX_HEAD_BYTES)
        if self._ssl_context is None and url.scheme == "https":
            self._ssl_context = await anyio.to_thread.run_sync(create_ssl_context)
        headers = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": f"{CLIENT_NAME}/{CLIENT_VERSION}",
            "Accept-Encoding": "identity",
            "Connection": "close",
            **request.headers,
            **({"Content-Length": str(len(request.body))} if request.method == "POST" else {}),
        }
        async with (
            GuardedNetwork(self._allowed, meter, resolve=self._resolve, dial=self._dial) as network,
            httpcore2.AsyncConnectionPool(ssl_context=self._ssl_context, network_backend=network) as pool,
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


async def _read(response: httpcore2.Response, encoding: str) -> bytes:
    """The whole body, decoded.

    Raises:
        TooMuchError: it is longer than any that is meant to be read.
    """
    decoder, body = decoder_for(encoding), bytearray()
    async for piece in response.aiter_stream():
        body += decoder.feed(piece, MAX_BODY_BYTES + 1 - len(body))
        if len(body) > MAX_BODY_BYTES:
            raise TooMuchError
    return bytes(body)


def _allowed_by(row_url: str) -> tuple[Allowed, ...]:
    try:
        return (parse_allowed(URL(row_url).host),)
    except ValueError:
        return ()
