"""One `serve` and one client of it for all tests of a module, each test with servers of its own."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.config.places import row, short_folder, write_config
from support.processes.commands import DEADLINE_S
from support.processes.kept import Kept
from support.processes.leftovers import no_leftovers
from support.serves.changing_server import Author, Connected, connected

PAUSE_S: Final = 0.03
"""Between two calls of the neighbour: often enough to be in the middle of whatever happens, and no load."""


@contextmanager
def open_folder() -> Iterator[Path]:
    """A place that any user may read, as a server does; nothing that ran meanwhile is left at the end."""
    with short_folder(0o755) as folder, no_leftovers(DEADLINE_S):
        yield folder


class Turncoat:
    """A server that will turn, under an id of which nothing is known yet."""

    def __init__(self, stage: "Stage", server: str, author: Author) -> None:
        self.id: Final = server
        self.author: Final = author
        self._stage = stage

    def name(self, tool: str) -> str:
        return f"{self.id}__{tool}"

    def configure(self, fields: dict[str, object]) -> None:
        self._stage.configure(self.id, fields)


class Stage:
    """A `serve` with a neighbour that nothing may disturb, and whatever servers the tests bring along."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[str, object] = {"calm": row("echo")}
        self._numbers = itertools.count(1)
        self._config = write_config(folder / "mcp.json", **self._rows)
        self._kept = Kept(lambda: connected(self._config, folder), Connected.tools)

    def configure(self, server: str, fields: dict[str, object]) -> None:
        self._rows[server] = fields
        write_config(self._config, **self._rows)

    @contextmanager
    def configured(self, server: str, fields: dict[str, object]) -> Iterator[None]:
        self.configure(server, fields)
        try:
            yield
        finally:
            del self._rows[server]
            write_config(self._config, **self._rows)

    async def client(self) -> Connected:
        """The client; another one, of another `serve`, when that of the last test is not answered any more."""
        return await self._kept.get()

    @contextmanager
    def turncoat(self, *options: str, **fields: object) -> Iterator[Turncoat]:
        server = f"turn{next(self._numbers)}"
        folder = self._folder / server
        folder.mkdir(mode=0o755)
        author = Author(folder)
        with self.configured(server, author.row(*options, **fields)):
            yield Turncoat(self, server, author)

    async def close(self) -> None:
        """End the `serve`, if one was needed."""
        await self._kept.close()


class neighbour:  # noqa: N801  # used as a statement
    """Call another server again and again, from the start of the block to its end: every call must succeed."""

    def __init__(self, client: Connected) -> None:
        self._client = client
        self._done = asyncio.Event()

    async def __aenter__(self) -> None:
        await self._client.until(lambda tools: "calm__echo" in tools, "the neighbour")
        self._task = asyncio.create_task(self._chat())

    async def __aexit__(self, *_: object) -> None:
        self._done.set()
        assert await self._task > 0

    async def _chat(self) -> int:
        calls = 0
        while not (calls and self._done.is_set()):
            assert await self._client.call("calm__echo", text=f"{calls}") == (f"{calls}", False)
            calls += 1
            await asyncio.sleep(PAUSE_S)
        return calls
