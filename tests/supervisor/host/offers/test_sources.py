"""What one client may list and call: order, and who answers."""

import asyncio
import logging

from support.tools.tool_boxes import LiveBox, NativeBox, answer

from quarterdeck.host.offers.sources import SessionSource, source_without_native
from quarterdeck_protocol.tools import CancelToken, RawCall, ToolCall, ToolOutcome


async def call(box, name, value=None):
    return await box.runner.run(ToolCall("1", name, value), CancelToken())


def names(box):
    return [descriptor.name for descriptor in box.descriptors()]


async def test_native_tools_come_first_and_the_grafted_ones_follow_as_they_are_now():
    """A client would see an old list, or an order that changes with each server."""
    live, native = LiveBox(), NativeBox()
    native.native("read", None)
    native.native("bash", None)
    box = SessionSource(native, live)
    live.graft("b__t")
    live.graft("a__t")
    assert names(box) == ["read", "bash", "b__t", "a__t"]
    assert box.native_names == {"read", "bash"}


async def test_calls_go_to_whom_the_name_belongs():
    """A server could answer in a native tool's place."""
    live, native = LiveBox(), NativeBox()

    def saying(text):
        async def run(call, cancel):
            return ToolOutcome(call.id, text)

        return run

    native.native("read", saying("ours"))
    for name in ("s__t", "plain", "read"):
        live.native(name, saying("theirs"))
    box = SessionSource(native, live)
    assert (await call(box, "read")).output == "ours"
    assert (await call(box, "s__t")).output == "theirs"
    assert (await call(box, "plain")).output == "theirs"
    assert (await call(box, "reed")).is_error
    assert (await call(box, "s__u")).is_error


async def test_a_grafted_tool_with_a_native_name_is_left_out_with_one_warning(caplog):
    """It could pass for ours; and a log line for each list would fill a disk."""
    live, native = LiveBox(), NativeBox()
    native.native("read", None)
    live.graft("read", answer({"content": []}))
    box = SessionSource(native, live)
    with caplog.at_level(logging.WARNING):
        assert names(box) == ["read"]
        assert names(box) == ["read"]
    assert box.descriptors()[0].definition is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "read" in caplog.text
    assert box.begin(RawCall("read", b"{}"), lambda _: None) is None
    assert live.begun == []


async def test_servers_tools_keep_their_raw_calls_and_their_news():
    """Every call of a server's tool would be built anew, and no client would hear of changes."""
    live, native, heard = LiveBox(), NativeBox(), []
    box = SessionSource(native, live)
    live.graft("s__t", answer({"content": []}))
    ended = asyncio.get_running_loop().create_future()
    assert box.begin(RawCall("s__t", b'{"a":1}', b"{}"), ended.set_result) is not None
    await ended
    assert (live.begun[0].arguments, live.begun[0].meta) == (b'{"a":1}', b"{}")
    forget = box.watch(lambda: heard.append(1))
    live.tell()
    forget()
    live.tell()
    assert heard == [1]


async def test_a_static_box_beside_has_neither_raw_calls_nor_news():
    """An embedding program's own box would be called by methods that it lacks."""
    box = SessionSource(NativeBox(), NativeBox())
    assert box.begin(RawCall("s__t", b"{}"), lambda _: None) is None
    box.watch(lambda: None)()


async def test_a_source_without_native_native_tools_says_why_and_goes_on():
    """A model would take a broken workspace for a slip of its own."""
    live = LiveBox()
    live.graft("s__t")

    async def run(call, cancel):
        return ToolOutcome(call.id, "theirs")

    live.native("s__n", run)
    box = source_without_native("the workspace is gone", live)
    assert (names(box), box.native_names, box.problem) == (["s__t", "s__n"], frozenset(), "the workspace is gone")
    assert (await call(box, "read")).output == "read was not run: there are no native tools: the workspace is gone"
    assert (await call(box, "s__n")).output == "theirs"
