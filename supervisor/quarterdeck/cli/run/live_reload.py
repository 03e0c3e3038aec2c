"""Have a `serve` follow its configuration files: what changed in them is applied while it runs, or refused whole."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from quarterdeck.app import Product
from quarterdeck.cli.shared.exits import CommandError
from quarterdeck.cli.shared.source import Source, read_settings
from quarterdeck.config.load.origin import Standing

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings

_log = logging.getLogger("quarterdeck.config")


@asynccontextmanager
async def following(product: Product, source: Source) -> AsyncIterator[None]:
    """Reload the configuration of `source` after each change of its files, inside the block."""
    task = asyncio.create_task(_follow(product, source))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(product: Product, source: Source) -> None:
    if not product.settings.candidates:
        return
    from quarterdeck.config.file_watch import changes_of

    try:
        async with aclosing(changes_of(product.settings.candidates)) as changes:
            await reload(product, source)  # what changed since they were read
            async for _ in changes:
                await reload(product, source)
    except Exception:
        _log.exception("the configuration files are no longer watched: restart this to apply changes")


async def reload(product: Product, source: Source) -> None:
    """Apply what the files say now; where anything in them is newly broken, nothing of it."""
    from quarterdeck.cli.shared.log_setup import set_up_logging
    from quarterdeck.config.load.file import ConfigFileError

    old = product.settings
    try:
        new = await asyncio.to_thread(read_settings, source)
    except (ConfigFileError, CommandError) as error:
        _log.error("the changed configuration is refused, the old one stays: %s", error)
        return
    problems = _new_problems(old, new)
    if problems:
        _log.error("the changed configuration is refused, the old one stays: %s", "; ".join(problems))
        return
    if _is_same(old, new):
        return
    # A secret that was taken out may still be said by a server that has it.
    set_up_logging(source.log_level, source.log_format, {*old.secrets, *new.secrets})
    for warning in new.warnings:
        if warning not in old.warnings:
            _log.warning("%s", warning)
    _log.info("the configuration changed: %s", _summary(old, new))
    # What was the user's word when something was started is kept from it for as long as it runs.
    trusted = tuple(dict.fromkeys((*new.trusted, *old.trusted)))
    await product.reload(replace(new, settle_s=old.settle_s, names=old.names, open_port=old.open_port, trusted=trusted))


def _new_problems(old: "Settings", new: "Settings") -> list[str]:
    """What is broken now and was not, and files of which nothing can be used any more.

    Of the user's own word alone: whoever can write into a project could else keep running what the user took away.
    """
    known = {row.message for row in old.broken}
    problems = [
        row.message
        for row in new.broken
        if row.message not in known and new.origin(row.id).standing is not Standing.PROJECT
    ]
    return problems + [problem for problem in new.unread if problem not in old.unread]


def _is_same(old: "Settings", new: "Settings") -> bool:
    return (old.servers, old.broken, old.native, old.origins) == (new.servers, new.broken, new.native, new.origins)


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
