"""Tell an open page that what it shows has changed, as server-sent events.

An event has no content: a page fetches itself again, at most twice a second, however much happens.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck.common.events import Bus, CallEnded, Event, ServerChanged, TrustChanged
from quarterdeck.common.shielding import cancelled

LOOK_S: Final = 0.25
"""Between two looks at what has happened: half of what a person takes for at once."""

GAP_S: Final = 0.5
"""At least so long between two changes that a page is told."""

AGE_S: Final = 5.0
"""A page without news is told to look, for memory and times change without any."""

SEND_S: Final = 15.0
"""Seconds that a browser may take to read; then its stream is closed."""

BOUND: Final = 256
"""Events that wait for a look; of more, all count as changed."""

WANTED: Final[dict[str, tuple[type[Event], ...]]] = {
    "now": (ServerChanged, TrustChanged),
    "review": (TrustChanged,),
    "calls": (CallEnded,),
}

CHANGED: Final = b"event: changed\ndata: \n\n"


async def changes_of(bus: Bus, view: str, is_open: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """Yield an event whenever what a view shows has changed, or may have, while its session is open."""
    wanted = WANTED.get(view, ())
    with bus.subscribe(BOUND) as heard:
        yield b": open\n\n"
        quiet_s, dropped = 0.0, 0
        while is_open():
            await asyncio.sleep(LOOK_S)
            quiet_s += LOOK_S
            is_news = any(isinstance(each, wanted) for each in heard.take()) or heard.dropped > dropped
            dropped = heard.dropped
            if is_news or quiet_s >= AGE_S:
                yield CHANGED
                quiet_s = 0.0
                await asyncio.sleep(GAP_S - LOOK_S)


class EventStream(Response):
    """A stream of events; it ends with them, with its client, or when that does not read; `ended` is called then."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], ended: Callable[[], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._events = events
        self._ended = ended

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_until_left(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(sending, leaving)
            await self._events.aclose()
            self._ended()

    async def _send(self, send: Send) -> None:
        try:
            async for each in self._events:
                async with asyncio.timeout(SEND_S):
                    await send({"type": "http.response.body", "body": each, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # uvicorn closes what has no end


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
