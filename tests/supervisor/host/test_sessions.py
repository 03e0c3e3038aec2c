"""Who is live, and hears of changes."""

from contextlib import AsyncExitStack

import anyio
import pytest
from support.boxes import LiveBox

from quarterdeck.host import sessions
from quarterdeck.host.sessions import Sessions

pytestmark = pytest.mark.anyio


class FakeConnection:
    """What ends with a client."""

    def __init__(self):
        self.exit_stack = AsyncExitStack()


class FakeSession:
    """Counts what it was told; one that hangs is told for ever."""

    def __init__(self, connection, *, hangs=False):
        self._connection = connection
        self._hangs = hangs
        self.told = 0
        self.was_told = anyio.Event()

    async def send_tool_list_changed(self):
        """Count."""
        if self._hangs:
            await anyio.sleep_forever()
        self.told += 1
        self.was_told.set()


@pytest.fixture
def quick(monkeypatch):
    """Deadlines of a test."""
    monkeypatch.setattr(sessions, "DEBOUNCE_S", 0.01)
    monkeypatch.setattr(sessions, "TELL_S", 0.01)


async def test_one_client_that_hangs_keeps_no_other_waiting(quick):
    """A laptop that sleeps must not make the deck stale for all."""
    box, live = LiveBox(), Sessions()
    good = FakeSession(FakeConnection())
    live.admit(FakeSession(FakeConnection(), hangs=True))
    live.admit(good)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.tell_changes, box)
            await anyio.wait_all_tasks_blocked()
            for expected in (1, 2):
                box.tell()
                await good.was_told.wait()
                good.was_told = anyio.Event()
                assert good.told == expected
            tasks.cancel_scope.cancel()
    assert box.watchers == 0


async def test_a_connection_is_told_once_however_often_it_was_admitted_and_never_after_its_end(quick):
    """A client that repeats itself hears no echo, and a dead one costs nothing."""
    box, live = LiveBox(), Sessions()
    connection, other = FakeConnection(), FakeSession(FakeConnection())
    first, second = FakeSession(connection), FakeSession(connection)
    for session in (first, second, other):
        live.admit(session)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.tell_changes, box)
            await anyio.wait_all_tasks_blocked()
            box.tell()
            await second.was_told.wait()
            await connection.exit_stack.aclose()
            await other.was_told.wait()
            other.was_told = anyio.Event()
            box.tell()
            await other.was_told.wait()
            tasks.cancel_scope.cancel()
    assert (first.told, second.told, other.told) == (0, 1, 2)
