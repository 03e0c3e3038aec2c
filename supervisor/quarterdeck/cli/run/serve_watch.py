"""Watch a running `serve`: its servers' states, its configuration files, its lock."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.output import describe_key
from quarterdeck.common.run_options import of_run
from quarterdeck.common.words import flat
from quarterdeck.running_product import Product
from quarterdeck.trust.judge.documents import documents_of
from quarterdeck.trust.server_state import lists_of
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, is_usable_phase
from quarterdeck_protocol.faults import ProtocolFault

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings
    from quarterdeck.trust.lock.lockfile import DeckLock

_log = logging.getLogger("quarterdeck.serve")
_config_log = logging.getLogger("quarterdeck.config")


@contextmanager
def changes_logged(product: Product) -> Iterator[None]:
    """Log each change of a server's phase or number of tools inside the block, and each broken row once."""
    # The server of a `run` has no row in which keys could be written.
    said: Callable[[ProtocolFault], ProtocolFault] = of_run if product.settings.command else lambda fault: fault
    seen: dict[str, tuple[EndpointPhase, ProtocolFault | None, int, bool]] = {}

    def look(server: str) -> None:
        if (status := product.status_of(server)) is None:
            seen.pop(server, None)
            return
        now = (status.phase, status.fault, status.tool_count, status.is_asleep)
        if seen.get(server) != now:
            seen[server] = now
            _log_status(status, said)

    for server in product.status():
        look(server)
    unwatch = product.approvals.watch_each(look)
    try:
        yield
    finally:
        unwatch()


def _log_status(status: EndpointStatus, said: Callable[[ProtocolFault], ProtocolFault]) -> None:
    if status.phase is EndpointPhase.READY:
        restarts = f", restarts: {status.restarts}" if status.restarts else ""
        # None before its first list has come, which is the next change.
        tools = f", tools: {status.tool_count}" if status.tool_count else ""
        _log.info("%s is ready (pid %s%s%s)", status.server, status.pid, tools, restarts)
    elif status.phase is EndpointPhase.FAULTED and status.fault is not None:
        fault, server = said(status.fault), status.server
        code, remedy = fault.code or fault.kind, fault.remedy_for(server)
        _log.warning("%s is faulted: %s (%s): %s", server, fault.message, code, remedy or "")
    elif status.is_asleep:
        why = f": it could not be started: {said(status.fault)}" if status.fault is not None else ""
        _log.info("%s is asleep%s", status.server, why)


@asynccontextmanager
async def following(
    product: Product, read: Callable[["Settings"], "Settings"], withhold: Callable[[Collection[str]], None]
) -> AsyncIterator[None]:
    """Reload the configuration after each change of its files, inside the block.

    `read` returns the present state for the running settings, in a thread; `withhold` keeps secrets out of the log.
    """

    async def follow() -> None:
        if not product.settings.candidates:
            return
        from quarterdeck.config.file_watch import changes_of

        try:
            async with aclosing(changes_of(product.settings.candidates)) as changes:
                await reload(product, read, withhold)  # what changed since they were read
                async for _ in changes:
                    await reload(product, read, withhold)
        except Exception:
            _config_log.exception("the configuration files are no longer watched: restart this to apply changes")

    product.on_withheld = withhold
    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reload(
    product: Product, read: Callable[["Settings"], "Settings"], withhold: Callable[[Collection[str]], None]
) -> None:
    """Apply the files as they are now, each row separately; see `following`."""
    from quarterdeck.config.load.file import ConfigFileError

    old = product.settings
    try:
        new = await asyncio.to_thread(read, old)
    except (ConfigFileError, CommandError) as error:
        _config_log.error("the changed configuration cannot be read, the old one stays: %s", error)
        return
    if _FOLLOWED(old) == _FOLLOWED(new):
        return
    # A secret that was taken out may still be said by a server that has it.
    withhold({*product.secrets, *new.secrets})
    for warning in new.warnings:
        if warning not in old.warnings:
            _config_log.warning("%s", warning)
    for trouble in new.troubles:
        if trouble not in old.troubles:
            _config_log.error("%s; %s", trouble.message, trouble.meanwhile)
    if old.troubles and not new.troubles:
        _config_log.info("the whole configuration can be used again")
    _config_log.info("the configuration changed: %s", _summary(old, new))
    # What was the user's word when something was started is kept from it for as long as it runs.
    trusted = tuple(dict.fromkeys((*new.trusted, *old.trusted)))
    await product.reload(replace(new, settle_s=old.settle_s, names=old.names, open_port=old.open_port, trusted=trusted))


_FOLLOWED: Final = attrgetter(
    *("servers", "broken", "native", "origins", "overrides", "groups", "max_result_tokens", "troubles")
)
"""What is compared of settings, to follow a change."""


def _summary(old: "Settings", new: "Settings") -> str:
    before = {config.id: config for config in old.servers}
    after = {config.id: config for config in new.servers}
    parts = {
        "added": [server for server in after if server not in before],
        "removed": [server for server in before if server not in after],
        "changed": [server for server in after if server in before and after[server] != before[server]],
    }
    said = [f"{what}: {', '.join(servers)}" for what, servers in parts.items() if servers]
    return "; ".join(said) or "no server is added, removed or changed"


MAX_NAMED = 8
"""Differences that the error names; `quarterdeck lock --check` lists them all."""


async def serve_locked(product: Product, lock: "DeckLock", serving: Coroutine[None, None, None]) -> None:
    """Run `serving`; cancel it and raise CommandError if a server offers what `lock` does not name, or lacks what it
    names.
    """
    task = asyncio.ensure_future(serving)
    watcher = asyncio.ensure_future(_first_drift(product, lock))
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise await watcher
        await task
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _first_drift(product: Product, lock: "DeckLock") -> CommandError:
    found: CommandError | None = None
    changed = {row.id for row in product.approvals.rows}

    def has_drifted() -> bool:
        nonlocal found
        servers = frozenset(changed)
        changed.clear()
        found = drifted(product, lock, servers)
        return found is not None

    unwatch = product.approvals.watch_each(changed.add)
    try:
        await product.until(has_drifted, None)
    finally:
        unwatch()
    assert found is not None
    return found


def drifted(product: Product, lock: "DeckLock", servers: Collection[str] | None = None) -> CommandError | None:
    """Return the error of servers whose offer differs from the lock, or None.

    `servers` limits the look, as each hashes what a server lists; None is for all.
    """
    from quarterdeck.trust.lock.lockfile import LockChange, drift

    present = {}
    for row in product.approvals.rows:
        endpoint = product.fleet.endpoint(row.id) if servers is None or row.id in servers else None
        if endpoint is None or not (is_usable_phase(endpoint.phase) and endpoint.has_listed):
            continue
        if product.approvals.is_judged(row.id):
            present[row.id] = documents_of(lists_of(endpoint), str(product.settings.paths_of(row.id).home))
    found = [each for each in drift(lock, present) if each.what is not LockChange.ABSENT]
    if not found:
        return None
    items = (f" {describe_key(each.key)}" if each.key is not None else "" for each in found)
    told = [f"{flat(each.server)}{item} {each.what.value}" for each, item in zip(found, items, strict=True)]
    named = ", ".join(told[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return CommandError(
        ExitCode.DRIFTED,
        f"what servers offer differs from deck.lock: {named}{more}",
        "quarterdeck lock --check shows what differs; if it is right, approve what is held, then run quarterdeck lock",
    )
