"""Learn that a transport's read stream has ended."""

from typing import Any, Self

import anyio


class EndNotice:
    """A read stream that says when it ends; the SDK's session keeps that to itself."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.ended = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self.ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._stream.__aexit__(*exc)
