"""A read stream that tells its end, and is otherwise the stream itself."""

import anyio
import pytest

from quarterdeck_worker.remote.end_notice import EndNotice

pytestmark = pytest.mark.anyio


async def test_the_end_of_a_stream_is_told_after_its_last_item() -> None:
    """A lost remote server would look ready for ever, or be called lost before its last words were heard."""
    send, receive = anyio.create_memory_object_stream[int](2)
    await send.send(1)
    await send.send(2)
    send.close()
    async with EndNotice(receive) as notice:
        assert await anext(notice) == 1
        assert not notice.ended.is_set()
        assert [item async for item in notice] == [2]
        assert notice.ended.is_set()


async def test_all_else_is_the_streams_own() -> None:
    """The SDK would not find what it needs of a stream, and closing would leave it open."""
    send, receive = anyio.create_memory_object_stream[int](1)
    notice = EndNotice(receive)
    send.send_nowait(7)
    assert await notice.receive() == 7
    assert notice.statistics().open_receive_streams == 1
    async with notice:
        pass
    assert notice.statistics().open_receive_streams == 0
    assert not notice.ended.is_set()
    send.close()
