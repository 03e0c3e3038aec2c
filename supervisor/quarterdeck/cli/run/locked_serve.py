"""Serve only what a `deck.lock` names, and end when a server offers anything else."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from quarterdeck.app import Product
from quarterdeck.cli.shared.exits import CommandError, ExitCode
from quarterdeck.cli.trust.views import describe_key
from quarterdeck.common.words import flat
from quarterdeck.trust.lock.lockfile import Drift, What, drift, listed_documents
from quarterdeck_protocol.phases import is_usable_phase

if TYPE_CHECKING:
    from quarterdeck.trust.lock.lockfile import DeckLock

MAX_NAMED = 8
"""Differences that the error names; `quarterdeck lock --check` lists them all."""


async def serve_locked(product: Product, lock: "DeckLock", serving: Coroutine[None, None, None]) -> None:
    """Carry `serving` through, unless a server offers what `lock` does not name, or lacks what it names.

    Raises:
        CommandError: one does; `serving` was cancelled.
    """
    task = asyncio.ensure_future(serving)
    watcher = asyncio.ensure_future(_first_drift(product, lock))
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _drifted(await watcher)
        await task
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _first_drift(product: Product, lock: "DeckLock") -> tuple[Drift, ...]:
    found: tuple[Drift, ...] = ()

    def has_drifted() -> bool:
        nonlocal found
        found = _drifts(product, lock)
        return bool(found)

    await product.until(has_drifted, None)
    return found


def _drifts(product: Product, lock: "DeckLock") -> tuple[Drift, ...]:
    """How the servers that have listed their tools differ from the lock."""
    present = {}
    for row in product.approvals.rows:
        endpoint = product.fleet.endpoint(row.id)
        if endpoint is None or not (is_usable_phase(endpoint.phase) and endpoint.has_listed):
            continue
        if product.approvals.is_judged(row.id):
            instructions = endpoint.card.instructions if endpoint.card is not None else ""
            present[row.id] = listed_documents(
                instructions, (tool.descriptor.definition or b"null" for tool in endpoint.tools())
            )
    return tuple(each for each in drift(lock, present) if each.what is not What.ABSENT)


def _drifted(found: tuple[Drift, ...]) -> CommandError:
    named = ", ".join(_in_words(each) for each in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return CommandError(
        ExitCode.DRIFTED,
        f"what servers offer differs from deck.lock: {named}{more}",
        "quarterdeck lock --check shows what differs; if it is right, approve what is held, then run quarterdeck lock",
    )


def _in_words(each: Drift) -> str:
    what = f" {describe_key(each.key)}" if each.key is not None else ""
    return f"{flat(each.server)}{what} {each.what.value}"
