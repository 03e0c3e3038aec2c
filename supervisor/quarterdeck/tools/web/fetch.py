"""One GET, bounded in every direction: its targets, its time, and the amount that is kept.

Fetches share nothing: no cookies, no connections; nothing is read from the environment: no proxies, no `.netrc`.
"""

import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio
import anyio.to_thread
import httpcore2
from httpx2 import URL, create_ssl_context

from quarterdeck.config.web_policy import FetchPolicy, allowed_by
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION

from .decoding import ACCEPTED, CodingError, Decoder, Media, decoder_for, parse_media
from .guarded_network import (
    Dial,
    GuardedNetwork,
    Meter,
    RefusedError,
    Resolve,
    SystemResolver,
    TooMuchError,
    dial,
    entry_for,
    judge_literal,
)
from .urls import UrlError, follow, parse_url, port_of, shown

MAX_REDIRECTS: Final = 5
MAX_HEADERS: Final = 200
MAX_HEAD_BYTES: Final = 256 * 1024  # of a response before its body; the library itself takes 100 KiB of headers
MAX_PIECES: Final = 64 * 1024  # of a body; each costs the event loop some 20 µs, and a server may send them of one byte
TELL_BYTES: Final = 64 * 1024  # between two notes of progress
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_HEADERS: Final = (
    ("User-Agent", f"{CLIENT_NAME}/{CLIENT_VERSION}"),
    ("Accept", "text/html, application/xhtml+xml, text/*, application/json, image/*;q=0.8, */*;q=0.5"),
    ("Accept-Encoding", ACCEPTED),
    ("Connection", "close"),
)

Tell = Callable[[float, float | None], None]
"""Takes the number of bytes so far, and of all bytes if known."""


class FetchError(Exception):
    """Nothing was fetched; the text has reason and remedy, for a model to read."""


class FetchRefusedError(FetchError):
    """The address at `spot`, host and port, may not be reached for `reason`."""

    def __init__(self, spot: str, error: RefusedError, asked: str = "") -> None:
        """`asked` is the URL that redirected there, if one did."""
        super().__init__(
            f"Nothing was fetched: webfetch may not connect to {spot}: {error}. Only the internet is open to it. "
            f'If your user wants this, they can add "{error.entry}" to native.webfetch.allow in their configuration '
            f"file.{f' {asked} redirected there.' if asked else ''}"
        )
        self.spot = spot
        self.refused = error


@dataclass(frozen=True, slots=True)
class Deadlines:
    """In seconds: for all of a fetch, and within it for each connection (name, address, TLS)."""

    total_s: float = 30.0
    connect_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response; its `body` is decoded, at most as long as was wanted, and `is_cut` where there was more.

    `trouble` says why not all of it came, and is empty when as much as was wanted did; `declared_bytes` is the
    announced length of a body without coding, None if none was.
    """

    asked_url: str
    url: str
    redirects: int
    status: int
    media: Media
    body: bytes
    is_cut: bool
    trouble: str
    declared_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Wish:
    """The wanted size of a body, the receiver of progress, and the scope of its time."""

    most_bytes: int
    most_image_bytes: int
    tell: Tell
    time: anyio.CancelScope


class Fetcher:
    """Fetches under one policy; may be used for many fetches at a time."""

    def __init__(
        self,
        policy: FetchPolicy | None = None,
        *,
        deadlines: Deadlines | None = None,
        resolve: Resolve | None = None,
        dial: Dial = dial,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """All parameters but `policy` and `deadlines` are for tests, and default to this machine's own."""
        self._policy = policy or FetchPolicy()
        self._allowed = allowed_by(self._policy)
        self._deadlines = deadlines or Deadlines()
        self._resolve = resolve or SystemResolver()
        self._dial = dial
        self._ssl_context = ssl_context

    async def fetch(self, url: str, most_bytes: int, most_image_bytes: int, tell: Tell) -> Fetched:
        """GET `url`, and its redirects: of the body at most so many bytes, decoded. Raise `FetchError` without a
        response.

        A response that was begun is returned with the part that came, even if the rest did not.
        """
        try:
            target = parse_url(url)
        except UrlError as error:
            raise FetchError(f"Nothing was fetched: {error}.") from None
        with anyio.move_on_after(self._deadlines.total_s) as time:
            return await self._follow(target, _Wish(most_bytes, most_image_bytes, tell, time))
        raise FetchError(
            f"Nothing was fetched: no answer from {shown(str(target))} within {self._deadlines.total_s:g} s."
        )

    async def _follow(self, url: URL, wish: _Wish) -> Fetched:
        first = str(url)
        for redirects in range(MAX_REDIRECTS + 1):
            try:
                answer = await self._get(url, wish)
                if isinstance(answer, Fetched):
                    return replace(answer, asked_url=first, redirects=redirects)
                url = follow(url, answer)
            except UrlError as error:
                raise FetchError(f"Nothing was fetched: {error}. {shown(first)} redirected there.") from None
            except FetchRefusedError as error:
                raise FetchRefusedError(error.spot, error.refused, shown(first) if redirects else "") from None
            except FetchError as error:
                if not redirects:
                    raise
                raise FetchError(f"{error} {shown(first)} redirected there.") from None
        raise FetchError(f"Nothing was fetched: {shown(first)} redirects more than {MAX_REDIRECTS} times.")

    async def _get(self, url: URL, wish: _Wish) -> Fetched | str:
        """Return the response, or the location that it redirects to."""
        meter = Meter(MAX_HEAD_BYTES)
        try:
            if (
                self._policy.proxy is not None
            ):  # its targets are judged if they are visible; else the network judges all
                judge_literal(url.host, port_of(url), self._allowed)
            async with (
                GuardedNetwork(
                    self._allowed, meter, resolve=self._resolve, dial=self._dial, judges=self._policy.proxy is None
                ) as network,
                await self._pool(network, url) as pool,
                pool.stream(
                    "GET",
                    httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                    headers=[("Host", url.netloc.decode("ascii")), *_HEADERS],
                    extensions={"timeout": {"connect": self._deadlines.connect_s}},
                ) as response,
            ):
                head = _head(response)
                if response.status in _REDIRECTS and "location" in head:
                    return head["location"]
                return await _receive(url, response, head, wish, meter)
        except RefusedError as error:
            raise FetchRefusedError(_spot(url), error) from None
        except TooMuchError:
            raise FetchError(f"Nothing was fetched: {_spot(url)} sends headers without end.") from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProxyError) as error:
            raise FetchError(f"Nothing was fetched: {_spot(url)} cannot be reached: {error}.") from None
        except (httpcore2.ProtocolError, CodingError) as error:
            raise FetchError(f"Nothing was fetched: {_spot(url)} gave an invalid response: {_plain(error)}.") from None

    async def _pool(self, network: GuardedNetwork, url: URL) -> httpcore2.AsyncConnectionPool:
        if self._ssl_context is None and "https" in (url.scheme, (self._policy.proxy or "").partition(":")[0]):
            # It reads some hundred certificates.
            self._ssl_context = await anyio.to_thread.run_sync(create_ssl_context)
        if self._policy.proxy is None:
            return httpcore2.AsyncConnectionPool(ssl_context=self._ssl_context, network_backend=network)
        return httpcore2.AsyncHTTPProxy(self._policy.proxy, ssl_context=self._ssl_context, network_backend=network)


def _head(response: httpcore2.Response) -> dict[str, str]:
    """Return the headers by name in lower case, of several the first. Raise `RemoteProtocolError` for too many."""
    if len(response.headers) > MAX_HEADERS:
        raise httpcore2.RemoteProtocolError(f"more than {MAX_HEADERS} headers")
    head: dict[str, str] = {}
    for name, value in response.headers:
        head.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "replace"))
    return head


async def _receive(url: URL, response: httpcore2.Response, head: dict[str, str], wish: _Wish, meter: Meter) -> Fetched:
    media = parse_media(head.get("content-type", ""))
    encoding = head.get("content-encoding", "")
    length = head.get("content-length", "")
    declared = int(length) if length.isascii() and length.isdecimal() and len(length) < 16 and not encoding else None
    most_bytes = wish.most_image_bytes if media.is_image else wish.most_bytes
    # Framing and coding cost less than the body itself, in any that is meant to be read.
    meter.left_bytes = 2 * most_bytes + MAX_HEAD_BYTES
    body = bytearray()
    # What has come is kept when the time is up.
    deadline, wish.time.deadline = wish.time.deadline, math.inf
    trouble = "it did not come to its end in time"
    with anyio.CancelScope(deadline=deadline):
        trouble = await _read_body(
            response, decoder_for(encoding), most_bytes, body, lambda read: wish.tell(read, declared)
        )
    if trouble and not body:
        raise FetchError(f"Nothing was fetched: {shown(str(url))} has no body that can be read: {trouble}.")
    wish.tell(len(body), declared)
    return Fetched(
        asked_url=str(url),
        url=str(url),
        redirects=0,
        status=response.status,
        media=media,
        body=bytes(body[:most_bytes]),
        is_cut=len(body) > most_bytes,
        trouble=trouble,
        declared_bytes=declared,
    )


async def _read_body(
    response: httpcore2.Response, decoder: Decoder, most: int, body: bytearray, tell: Callable[[int], None]
) -> str:
    """Fill `body` with at most `most` bytes, and one more if there are more. Return why the rest did not come."""
    told = pieces = 0
    try:
        async for piece in response.aiter_stream():
            body += decoder.feed(piece, most + 1 - len(body))
            pieces += 1
            if len(body) > most:
                return ""
            if pieces > MAX_PIECES:
                return "the server sends it in too many pieces"
            if len(body) - told >= TELL_BYTES:
                told = len(body)
                tell(told)
    except (httpcore2.NetworkError, httpcore2.ProtocolError, CodingError) as error:
        return _plain(error)
    except TooMuchError:
        return "the server sends too much around it"
    return "" if decoder.is_whole else "its gzip data ends early"


def _plain(error: Exception) -> str:
    text = str(error)
    return "it sends too much before its body, or behind" if "buffer too long" in text else text


def _spot(url: URL) -> str:
    return entry_for(url.host, port_of(url))
