"""Answer on the control socket while a `serve` runs: one request on each connection.

The directory (0700) and the socket (0600) are their user's alone; another user's process is refused where the system
tells the user, and so is one without the key (a file, 0600).
"""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from quarterdeck.common.local_socket import MAX_KEY_BYTES, make_key, peer_of
from quarterdeck.config.places.paths import RUNTIME_DIR_VARIABLE, writing_below
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.running_product import Product
from quarterdeck_protocol.identity import CLIENT_VERSION

from .protocol import (
    KEY_NAME,
    MAX_REQUEST_BYTES,
    SOCKET_NAME,
    Answer,
    BadLineError,
    Refusal,
    Refused,
    Request,
    decode_request,
    encode,
)

MAX_CLIENTS: Final = 32
"""Commands that are answered at one time; more are refused."""

REQUEST_S: Final = 5.0
"""Seconds from connecting to a whole request: commands send it at once."""

SEND_S: Final = 30.0
"""Seconds to take an answer, which may be a large result."""

AnswerRequest = Callable[[Request], Awaitable[Answer]]
"""Answers one request; cancelling it cancels what it does."""

_log = logging.getLogger("quarterdeck.control")


@asynccontextmanager
async def open_control(product: Product, deck: str = "", *, is_found: bool = True) -> AsyncIterator[None]:
    """Answer commands about `product`, which is the daemon's `deck` of this name; drop pending requests at the end.
    Commands find it by its configuration if `is_found`, else only by its directory. Raise UnsafePathError if the socket
    cannot be made.
    """

    async def answer_request(request: Request) -> Answer:
        # Imported with the first command: no client waits for it.
        from .answers import answer

        return await answer(product, request)

    async with answering(product.directory, answer_request):
        settings = product.settings
        if not is_found:
            yield
            return
        native = settings.native.fingerprint if settings.native is not None else ""
        product.directory.announce(settings.config_paths, CLIENT_VERSION, native, settings.command, deck)
        yield


@asynccontextmanager
async def answering(directory: RuntimeDirectory, answer_request: AnswerRequest) -> AsyncIterator[None]:
    """Answer commands that know the directory; drop pending requests at the end. Raise UnsafePathError if the socket
    cannot be made.
    """
    with writing_below(directory.path, RUNTIME_DIR_VARIABLE):
        key = make_key(directory.path / KEY_NAME).encode()
        made = await anyio.create_unix_listener(directory.socket_path(SOCKET_NAME), mode=0o600)
    async with made as listener:
        # No task group around the body: it would wrap the body's own errors.
        serving = asyncio.create_task(listener.serve(_RequestHandler(answer_request, key).attend))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


class _RequestHandler:
    """Answers one request a connection."""

    def __init__(self, answer_request: AnswerRequest, key: bytes) -> None:
        self._answer = answer_request
        self._key = key
        self._clients = 0

    async def attend(self, stream: SocketStream) -> None:
        self._clients += 1
        try:
            async with stream:
                reply = await self._reply(stream)
                if reply is not None:
                    with anyio.move_on_after(SEND_S):
                        await stream.send(encode(reply))
                    if isinstance(reply, Refused):
                        await _let_finish(stream)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError):
            pass  # the client has left
        except Exception:
            _log.exception("a command could not be answered")
        finally:
            self._clients -= 1

    async def _reply(self, stream: SocketStream) -> Answer | None:
        """Return the answer to the client's one request, or None when it has left."""
        if (refusal := self._refusal(stream)) is not None:
            return refusal
        try:
            with anyio.fail_after(REQUEST_S):
                lines = BufferedByteReceiveStream(stream)
                if not await self._is_key(lines):
                    return Refused(Refusal.BAD_REQUEST, _WITHOUT_KEY)
                line = await lines.receive_until(b"\n", MAX_REQUEST_BYTES)
            request = decode_request(line)
        except (anyio.IncompleteRead, anyio.EndOfStream):
            return None
        except TimeoutError:
            return Refused(Refusal.BAD_REQUEST, f"no request came within {REQUEST_S:g} s")
        except anyio.DelimiterNotFound:
            return Refused(Refusal.BAD_REQUEST, f"the request is longer than {MAX_REQUEST_BYTES:,} bytes")
        except BadLineError as error:
            return Refused(Refusal.BAD_REQUEST, f"{error} (this serve is quarterdeck {CLIENT_VERSION})")
        reply: Answer | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_left, stream, tasks.cancel_scope)
            try:
                reply = await self._answer(request)
            except Exception:
                _log.exception("a command could not be answered")
                reply = Refused(Refusal.INTERNAL, "the request failed in an unforeseen way: see the log of serve")
            tasks.cancel_scope.cancel()
        return reply

    async def _is_key(self, lines: BufferedByteReceiveStream) -> bool:
        try:
            said = await lines.receive_until(b"\n", MAX_KEY_BYTES)
        except anyio.DelimiterNotFound:
            return False
        return hmac.compare_digest(said, self._key)

    def _refusal(self, stream: SocketStream) -> Refused | None:
        if not peer_of(stream.extra(SocketAttribute.raw_socket)).is_ours:  # noqa: S610 - no Django
            return Refused(Refusal.BAD_REQUEST, "this socket belongs to another user")
        if self._clients > MAX_CLIENTS:
            return Refused(Refusal.BUSY, f"more than {MAX_CLIENTS} commands are being answered: try again")
        return None


_WITHOUT_KEY: Final = f"the line of {KEY_NAME}, which is beside this socket, has to come first: see its serve's version"


async def _let_finish(stream: SocketStream) -> None:
    """Read and drop the rest: closing a socket that has unread bytes discards our answer."""
    await stream.send_eof()
    with anyio.move_on_after(REQUEST_S), suppress(anyio.EndOfStream):
        while True:
            await stream.receive()


async def _cancel_when_left(stream: SocketStream, scope: anyio.CancelScope) -> None:
    """Cancel the request when its client leaves or sends a second one."""
    try:
        await stream.receive(1)
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()
