"""A grafted tool as a card."""

import pytest

from quarterdeck.embedding.ledger.capability import BridgeCapability, bridge_box_to_capabilities
from quarterdeck.tools.context import inert_context
from quarterdeck.tools.results import TextContentBlock
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome, WireResult

pytestmark = pytest.mark.anyio

DESCRIPTOR = ToolDescriptor("fs__read", "Reads.", {"type": "object"}, b'{"name": "read"}')


class Box:
    """One tool, which answers what it is told to."""

    def __init__(self, output: object = None, *, is_error: bool = False, wire: WireResult | None = None) -> None:
        self.outcome = ToolOutcome("1", output, is_error, wire)
        self.calls: list[tuple[ToolCall, CancelToken]] = []

    def descriptors(self) -> tuple[ToolDescriptor, ...]:
        """The one."""
        return (DESCRIPTOR,)

    @property
    def runner(self) -> "Box":
        """The box itself."""
        return self

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Answer."""
        self.calls.append((call, cancel))
        return self.outcome


def capability(box: Box) -> BridgeCapability:
    [only] = bridge_box_to_capabilities(box)
    return only


def test_a_grafted_tool_looks_like_any_card() -> None:
    """A deck could not hold native and grafted tools side by side."""
    card = capability(Box())
    assert (card.name, card.label, card.description) == ("fs__read", "fs__read", "Reads.")
    assert (card.parameters, card.read_only, card.hints) == ({"type": "object"}, False, None)
    assert card.definition == DESCRIPTOR.definition


async def test_a_call_goes_to_its_box_under_the_qualified_name_with_all_that_belongs_to_it() -> None:
    """A call would reach no server, could not be stopped, or would be silent on its way."""
    box, context = Box("hello"), inert_context()
    token, notes = CancelToken(), []
    call = ToolCall("9", "fs__read", {"path": "x"}, notes.append)
    await capability(box).run({"path": "x"}, context.for_call(call, token))
    [(made, cancel)] = box.calls
    assert (made.name, made.input, made.report, cancel) == ("fs__read", {"path": "x"}, notes.append, token)


@pytest.mark.parametrize(
    ("output", "text"),
    [("as it is", "as it is"), (None, ""), ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}'), ("", ""), ("é", "é"), (5, "5")],
)
async def test_an_answer_is_one_text(output: object, text: str) -> None:
    """A model would be shown a Python repr, or nothing."""
    result = await capability(Box(output)).run({}, inert_context())
    assert result.content == (TextContentBlock(text),)


async def test_an_error_stays_one_and_the_servers_own_form_goes_along() -> None:
    """A failure would look like a success, and an image like text."""
    wire = WireResult(b"{}", "2025-11-25", is_error=True)
    result = await capability(Box("no", is_error=True, wire=wire)).run({}, inert_context())
    assert result.is_error
    assert result.wire is wire
