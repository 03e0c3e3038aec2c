"""Import modules beside a running event loop, one at a time in the whole process.

Two imports at once in two threads can each wait for a module that the other is importing (packages such as `mcp` import
each other in circles): Python ends one of them with `_DeadlockError`. So every import that runs in a thread goes
through here, and so does a late one of the loop's own thread that may meet one.
"""

import asyncio
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Final

_turn: Final = RLock()
"""Reentrant: a module may import another one in turn while it is imported itself."""


def import_in_turn(name: str) -> ModuleType:
    """Import a module, after every other import in turn. Blocking."""
    with _turn:
        return import_module(name)


async def imported(name: str) -> None:
    """Import a module in a thread, after every other import in turn; the event loop goes on meanwhile."""
    await asyncio.to_thread(import_in_turn, name)
