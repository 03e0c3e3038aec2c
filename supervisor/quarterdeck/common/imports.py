"""Import modules while an event loop runs, one at a time in the whole process.

Packages such as `mcp` have circular imports: two threads that import at once can each wait for the other's module, and
Python ends one with `_DeadlockError`. So all imports in threads, and late ones on the loop's thread, pass here.
"""

import asyncio
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Final

_turn: Final = RLock()
"""Reentrant: a module may import another one here while it is imported itself."""


def import_in_turn(name: str) -> ModuleType:
    """Import a module after all earlier imports. Blocking."""
    with _turn:
        return import_module(name)


async def imported(name: str) -> None:
    """Import a module in a thread, after all earlier imports, while the event loop continues."""
    await asyncio.to_thread(import_in_turn, name)
