"""What a worker says of a server that it let go, and what it is told when that takes too much."""

import anyio
import msgspec
import pytest
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.link.frames import MAX_START_BYTES, Condemn, ServerStart, Started
from quarterdeck_protocol.policy_values import Property, Tier
from quarterdeck_sandbox.policy.promises import PropertyFinding, Receipt, Strength

from .handles import EXITED, Desk, greeted

RECEIPT = Receipt(Tier.LANDLOCK, {Property.MEMORY: PropertyFinding("looks", Strength.PARTIAL)}, gaps=("memory: looks",))
START = ServerStart(7, 5, receipt=msgspec.json.encode(RECEIPT).decode(), gaps=RECEIPT.gaps)
BODY = msgspec.json.encode(START)


async def heard(desk: Desk) -> list[object]:
    await turns()
    words = list(desk.owner.heard)
    desk.worker.leaves()
    return words


async def test_a_start_reaches_the_owner_with_its_receipt() -> None:
    """`ps` would not know what confines a server, and nobody would hold it to its limits."""
    desk = await greeted()
    desk.worker.says(Started(), BODY)
    assert await heard(desk) == [(START, RECEIPT)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 2000,
        b'{"pid":"7","tree_pid":5}',
        b'{"pid":7,"tree_pid":5,"receipt":"{}"}',
        b'{"pid":7,"tree_pid":5,"receipt":"{\\"tier\\":\\"none\\",\\"findings\\":{}}"}',
        msgspec.json.encode(msgspec.structs.replace(START, program="x" * MAX_START_BYTES)),
    ],
)
async def test_a_start_that_is_none_is_a_violation(body: bytes) -> None:
    desk = await greeted()
    desk.worker.says(Started(), body)
    words = await heard(desk)
    assert [loss.code for loss in desk.owner.losses] == ["protocol_violation"]
    assert len(words) == 1
    assert desk.worker.kills == 1


async def test_a_server_starts_once() -> None:
    desk = await greeted()
    desk.worker.says(Started(), BODY)
    desk.worker.says(Started(), BODY)
    await heard(desk)
    assert [loss.code for loss in desk.owner.losses] == ["protocol_violation"]


async def test_an_excess_is_told_to_the_worker_and_nobody_else() -> None:
    """The tree would go on; or it would be dead without a dossier that names the limit."""
    desk = await greeted()
    desk.handle.condemn("memory_bytes", "600 MiB; the limit is 512 MiB")
    with anyio.fail_after(PATIENCE_S):
        order = await desk.worker.condemned.get()
    assert order == Condemn("memory_bytes", "600 MiB; the limit is 512 MiB")
    assert await heard(desk) == []


async def test_a_lost_worker_is_told_nothing() -> None:
    desk = await greeted()
    desk.handle.lose(EXITED)
    desk.handle.condemn("cpu_s", "too much")
    await heard(desk)
    assert desk.worker.condemned.empty()
