"""Serving by a lock: until a server offers something else."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from support.products import ProductEndpoint, ProductFleet, product_of

from quarterdeck.app import Product
from quarterdeck.cli.run.locked_serve import MAX_NAMED, serve_locked
from quarterdeck.cli.shared.exits import CommandError, ExitCode
from quarterdeck.ledger.events.chain import Head
from quarterdeck.trust.lock.ignores import Ignores
from quarterdeck.trust.lock.lockfile import DeckLock, listed_documents, lock_of
from quarterdeck_protocol.phases import EndpointPhase

pytestmark = pytest.mark.anyio

HEAD = Head(1, "ab" * 32)


@contextmanager
def locked_product(place: Path, *endpoints: ProductEndpoint) -> Iterator[tuple[Product, DeckLock]]:
    """A product of these servers, and the lock of what they list now."""
    documents = {
        each.config.id: listed_documents("", [tool.descriptor.definition or b"" for tool in each.tools()])
        for each in endpoints
    }
    with product_of(place, *endpoints) as product:
        yield product, lock_of(documents, Ignores(), HEAD)


def tell(product: Product) -> None:
    cast("ProductFleet", product.fleet).tell()


class Serving:
    """The work that a lock watches over."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self) -> None:
        """Serve until told otherwise."""
        self.has_begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def drift_of(product: Product, lock: DeckLock) -> CommandError:
    """The error that ends a serve which has drifted by now."""
    serving = Serving()
    async with asyncio.timeout(30):
        with pytest.raises(CommandError) as raised:
            await serve_locked(product, lock, serving())
    assert serving.was_cancelled or not serving.has_begun.is_set()
    return raised.value


async def test_what_is_as_it_was_locked_is_served_to_the_end(tmp_path: Path) -> None:
    """A locked serve would end for no reason, or never."""
    serving = Serving()
    with locked_product(tmp_path, ProductEndpoint("fs", "read")) as (product, lock):
        async with asyncio.timeout(30):
            work = asyncio.create_task(serve_locked(product, lock, serving()))
            await serving.has_begun.wait()
            tell(product)
            serving.may_end.set()
            await work
    assert not serving.was_cancelled


async def test_a_server_that_changes_while_it_is_served_ends_it(tmp_path: Path) -> None:
    """A rug pull would go on being served."""
    serving, server = Serving(), ProductEndpoint("fs", "read")
    with locked_product(tmp_path, server) as (product, lock):
        async with asyncio.timeout(30):
            work = asyncio.create_task(serve_locked(product, lock, serving()))
            await serving.has_begun.wait()
            server.offer("read", "write")
            tell(product)
            with pytest.raises(CommandError) as raised:
                await work
    assert serving.was_cancelled
    assert raised.value.code is ExitCode.DRIFTED
    assert raised.value.message == "what servers offer differs from deck.lock: fs write added"
    assert "quarterdeck lock --check" in (raised.value.remedy or "")


async def test_a_server_that_lacks_what_is_locked_has_drifted_even_when_it_lists_nothing(tmp_path: Path) -> None:
    """A server could hide a tool from review by leaving it out until later."""
    server = ProductEndpoint("fs", "read")
    with locked_product(tmp_path, server) as (product, lock):
        server.offer()
        assert "fs read missing" in (await drift_of(product, lock)).message


async def test_a_server_that_is_not_ready_has_not_drifted(tmp_path: Path) -> None:
    """A server that is down would end the serving of all others."""
    serving = Serving()
    down, early = ProductEndpoint("down", "a"), ProductEndpoint("early", "b")
    with locked_product(tmp_path, down, early) as (product, lock):
        down.phase = EndpointPhase.FAULTED
        early.has_listed = False
        early.offer()
        async with asyncio.timeout(30):
            work = asyncio.create_task(serve_locked(product, lock, serving()))
            await serving.has_begun.wait()
            tell(product)
            serving.may_end.set()
            await work


async def test_a_server_that_no_lock_names_is_drift(tmp_path: Path) -> None:
    """A server that was added later would be served unreviewed."""
    with product_of(tmp_path, ProductEndpoint("new", "read")) as product:
        error = await drift_of(product, lock_of({}, Ignores(), HEAD))
    assert error.message.endswith(": new added")


async def test_a_long_list_of_differences_is_cut(tmp_path: Path) -> None:
    """One line would fill the screen."""
    server = ProductEndpoint("fs")
    with locked_product(tmp_path, server) as (product, lock):
        server.offer(*(f"t{number}" for number in range(MAX_NAMED + 5)))
        message = (await drift_of(product, lock)).message
    assert message.endswith(" and 5 more")
    assert message.count("added") == MAX_NAMED


async def test_what_serving_raises_is_what_the_command_raises(tmp_path: Path) -> None:
    """A port that is taken would look like drift, or like success."""

    async def fail() -> None:
        raise LookupError("no port")

    with locked_product(tmp_path, ProductEndpoint("fs", "read")) as (product, lock):
        async with asyncio.timeout(30):
            with pytest.raises(LookupError, match="no port"):
                await serve_locked(product, lock, fail())
