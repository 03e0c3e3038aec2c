"""A page of tasks: what servers say of each, within bounds."""

import msgspec
import pytest
from support.waiting import turns

from quarterdeck.bridge.tasks.page import MAX_TASK_BYTES, TaskPage
from quarterdeck.bridge.tasks.routes import TaskRoute
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

pytestmark = pytest.mark.anyio

ERA = "2025-11-25"


class Asked:
    """What a page asks for, answered by the test."""

    def __init__(self, *numbers: int, cursor: str = "") -> None:
        self.delivered: list[CallEnd] = []
        self.forgotten: list[int] = []
        self.cancelled: list[str] = []
        self.take: dict[int, Deliver] = {}
        routes = [TaskRoute(number, f"p{number}", "s", f"o{number}", "t") for number in numbers]
        page = TaskPage(
            routes,
            cursor=cursor,
            deliver=self.delivered.append,
            forget=lambda route: self.forgotten.append(route.number),
        )
        self.page = page.begin(self._ask)

    def _ask(self, route: TaskRoute, deliver: Deliver) -> PendingCall:
        self.take[route.number] = deliver
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self.cancelled.append(reason)
        return Delivery.UNKNOWN

    @property
    def result(self) -> dict[str, object]:
        """The page."""
        (end,) = self.delivered
        assert isinstance(end, WireResult)
        return msgspec.json.decode(end.body, type=dict[str, object])


async def test_a_page_has_its_tasks_in_order_whoever_answers_first() -> None:
    """A list would be another each time."""
    asked = Asked(1, 2, cursor="2")
    asked.take[2](WireResult(b'{"taskId":"p2","_meta":{"k":1}}', ERA))
    assert asked.delivered == []
    asked.take[1](WireResult(b'{"taskId":"p1"}', ERA))
    assert asked.result == {"tasks": [{"taskId": "p1"}, {"taskId": "p2"}], "nextCursor": "2"}


async def test_what_is_no_more_is_forgotten_and_what_does_not_answer_is_not_listed() -> None:
    """A list would hold what nobody can ask for, or wait for ever."""
    asked = Asked(1, 2, 3, 4)
    asked.take[1](ProtocolFault(FaultKind.TOOL_ERROR, "gone", code="task_lost"))
    asked.take[2](ProtocolFault(FaultKind.TOOL_ERROR, "no", code="reply_error", reply=ReplyError(-32602, "no")))
    asked.take[3](ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout"))
    asked.take[4](WireResult(b'{"taskId":"p4","statusMessage":"%b"}' % (b"x" * MAX_TASK_BYTES), ERA))
    assert asked.result == {"tasks": []}
    assert asked.forgotten == [1, 2]


async def test_nobody_has_no_tasks_and_is_told_so() -> None:
    """A client without tasks would wait for its list."""
    asked = Asked()
    await turns()
    assert asked.result == {"tasks": []}


async def test_a_page_that_is_given_up_asks_no_more() -> None:
    """Servers would work for nobody."""
    asked = Asked(1, 2)
    asked.take[1](WireResult(b'{"taskId":"p1"}', ERA))
    asked.page.cancel("enough")
    asked.take[2](WireResult(b'{"taskId":"p2"}', ERA))
    assert (asked.cancelled, asked.delivered) == (["enough"], [])
