"""Waiting for the first of several things."""

import anyio
import pytest
from support.waiting import PATIENCE_S

from quarterdeck_worker.server import first_of

pytestmark = pytest.mark.anyio


async def test_the_first_ends_the_wait_and_the_others_are_called_off() -> None:
    """Whoever waits for a death or a hang-up would wait for both."""
    ended: list[str] = []
    happened = anyio.Event()

    async def never() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("called off")

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first_of, never, happened.wait, never)
            await anyio.wait_all_tasks_blocked()
            assert ended == []
            happened.set()
    assert ended == ["called off"] * 2


async def test_what_has_happened_already_needs_no_wait() -> None:
    """A server that died before we looked would look alive."""
    happened = anyio.Event()
    happened.set()
    with anyio.fail_after(PATIENCE_S):
        await first_of(anyio.sleep_forever, happened.wait)


async def test_giving_up_the_wait_gives_up_all_of_it() -> None:
    """A closed session would leave its watchers behind."""
    with anyio.move_on_after(0) as scope:
        await first_of(anyio.sleep_forever, anyio.sleep_forever)
    assert scope.cancelled_caught
