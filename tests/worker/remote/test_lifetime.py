"""What is sent for a call ends with it."""

import anyio
import pytest

from quarterdeck_worker.remote.lifetime import Lifetime, OverError, current

pytestmark = pytest.mark.anyio


async def test_what_waits_for_a_call_ends_with_it_and_only_that() -> None:
    """Connections of calls that were given up would pile up until there are none left."""
    ended: list[str] = []

    async def wait(life: Lifetime, name: str) -> None:
        try:
            with life.bounds():
                await anyio.sleep_forever()
        except OverError:
            ended.append(name)

    async with anyio.create_task_group() as tasks:
        with Lifetime() as other:
            tasks.start_soon(wait, other, "other")
            with Lifetime() as life:
                tasks.start_soon(wait, life, "one")
                tasks.start_soon(wait, life, "two")
                await anyio.wait_all_tasks_blocked()
                assert ended == []
            await anyio.wait_all_tasks_blocked()
            assert sorted(ended) == ["one", "two"]
    with pytest.raises(OverError), life.bounds():
        raise AssertionError("nothing is begun for a call that is over")


async def test_what_a_call_has_done_in_other_tasks_is_its_own() -> None:
    """The client's tasks, which send, would not know for whom."""
    found: list[Lifetime] = []

    async def look() -> None:
        found.append(current())

    async def call() -> None:
        with Lifetime() as life:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(look)
            found.append(life)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
    await look()
    assert found[0] is found[1]
    assert found[2] is not found[0], "nothing is sent for a call here"
    with found[2].bounds():
        pass


async def test_a_deadline_of_whoever_waits_is_still_its_own() -> None:
    """A cancelled caller would be told that its call ended, and go on."""
    with anyio.move_on_after(0) as scope:
        with Lifetime().bounds():
            await anyio.sleep_forever()
    assert scope.cancelled_caught
