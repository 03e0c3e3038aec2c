"""The runtime contract: values that nobody can change, and a switch that tells everyone once."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from quarterdeck_protocol import tools


class _Runner:
    async def run(self, call: tools.ToolCall, cancel: tools.CancelToken) -> tools.ToolOutcome:
        return tools.ToolOutcome(call.id, call.input, is_error=cancel.cancelled)


class _StaticBox:
    def descriptors(self) -> Sequence[tools.ToolDescriptor]:
        return ()

    @property
    def runner(self) -> tools.ToolRunner:
        return _Runner()


class _LiveBox(_StaticBox):
    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return callback


class _Source(tools.ToolSource):
    def descriptors(self) -> Sequence[tools.ToolDescriptor]:
        return ()

    async def run(self, call: tools.ToolCall, cancel: tools.CancelToken) -> tools.ToolOutcome:
        return tools.ToolOutcome(call.id, "source")


def test_a_native_tool_has_no_definition_and_its_outcome_no_wire() -> None:
    """The host projects `output` when there is nothing of a server's to pass on."""
    assert tools.ToolDescriptor("t", "d", {}).definition is None
    assert tools.ToolOutcome("1", "text").wire is None
    assert not tools.ToolOutcome("1", "text").is_error


def test_any_box_is_a_source_and_is_watched_only_when_it_can_be() -> None:
    """An embedding program's own box would be called by methods that it lacks, or its changes never be told."""
    static, live, callback = tools.as_source(_StaticBox()), tools.as_source(_LiveBox()), list
    assert (static.can_change, live.can_change) == (False, True)
    assert live.watch(callback) is callback
    static.watch(callback)()
    assert static.begin(tools.RawCall("t", b"{}"), lambda _: None) is None


async def test_a_source_of_its_own_stays_what_it_is_and_runs_its_calls() -> None:
    """What it can do would be lost behind a wrapper; a foreign box's tools would run nowhere."""
    source, call = _Source(), tools.ToolCall("1", "t", {})
    assert tools.as_source(source) is source
    assert (await source.runner.run(call, tools.CancelToken())).output == "source"
    box: tools.ToolBox = _StaticBox()
    assert (await tools.as_source(box).runner.run(call, tools.CancelToken())).output == {}


def test_a_cancelled_token_says_so_and_stays_so() -> None:
    """A tool may poll it."""
    token = tools.CancelToken()
    assert not token.cancelled
    token.cancel()
    token.cancel()
    assert token.cancelled


def test_callbacks_run_once_in_order_of_registration() -> None:
    """What was started last must not be told first."""
    token = tools.CancelToken()
    heard: list[str] = []
    for name in "abc":
        token.on_cancel(partial(heard.append, name))
    token.cancel()
    token.cancel()
    assert heard == ["a", "b", "c"]


def test_a_callback_that_comes_late_runs_at_once() -> None:
    """A call that begins after the cancellation must not run on."""
    token, heard = tools.CancelToken(), []
    token.cancel()
    forget = token.on_cancel(lambda: heard.append("late"))
    assert heard == ["late"]
    forget()


def test_the_same_callback_twice_is_two_registrations() -> None:
    """Two calls may share a function; ending one must not deafen the other."""
    token, heard = tools.CancelToken(), []

    def tell() -> None:
        heard.append("x")

    forget = token.on_cancel(tell)
    token.on_cancel(tell)
    forget()
    forget()
    token.cancel()
    assert heard == ["x"]


def test_a_callback_that_raises_keeps_nobody_else_from_hearing() -> None:
    """One broken callback must not leave a process running."""
    token, heard = tools.CancelToken(), []

    def fail() -> None:
        raise RuntimeError("broken")

    token.on_cancel(fail)
    token.on_cancel(lambda: heard.append("x"))
    with pytest.raises(ExceptionGroup) as caught:
        token.cancel()
    assert heard == ["x"]
    assert [str(error) for error in caught.value.exceptions] == ["broken"]
    token.cancel()


def test_callbacks_may_cancel_register_and_forget_while_they_run() -> None:
    """Cancelling one thing often ends another."""
    token, heard = tools.CancelToken(), []

    def first() -> None:
        heard.append("first")
        token.cancel()
        forget()
        token.on_cancel(lambda: heard.append("new"))

    token.on_cancel(first)
    forget = token.on_cancel(lambda: heard.append("second"))
    token.cancel()
    assert heard == ["first", "second", "new"]
