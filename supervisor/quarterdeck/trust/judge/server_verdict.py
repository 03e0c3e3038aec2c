"""What is trusted of one server at one moment, as one value: a call is admitted by it, and passes nothing of trust.

Pure.  `approvals` makes the value; whoever routes calls asks it with the state of the server's process.
"""

from enum import Enum, auto

from msgspec import Struct

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, Entry, ItemKey
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.names import did_you_mean

from .held_messages import MAX_NAME_CHARS, item_held
from .offers import Offer, last_verdict
from .requests import Wish, refused
from .server_rows import ServerRow
from .verdicts import Verdict


class Admission(Enum):
    """Whether a request may be made."""

    NOW = auto()
    LATER = auto()
    """It is not known yet, and will be soon."""
    NOT_READY = auto()
    """Its server does not run, and is not being started."""


class ServerVerdict(Struct, frozen=True, eq=False):
    """What is trusted of one server.

    Attributes:
        launch_fault: why it is not started; None if it may be.
        book: what the ledger knows, of it too.
        judged: the endpoint whose lists the offer is from; None before the first of this process.
        is_judged: whether none of its lists wait for a judgement.
    """

    row: ServerRow
    launch_fault: ProtocolFault | None
    offer: Offer
    book: Book
    judged: ServerEndpointImpl | None
    is_judged: bool

    @property
    def entry(self) -> Entry:
        """What the ledger knows of it."""
        return self.book.entry(self.row.scope, self.row.id)

    def allows_now(self, tool: str | None, endpoint: ServerEndpointImpl) -> bool:
        """Whether a tool may be called on a ready endpoint: it is trusted in the list that this has; False for None."""
        return self.judged is endpoint and tool in self.offer.names and self.launch_fault is None

    def refusal(self, tool: str) -> ProtocolFault | None:
        """Why a call of this tool is not made by what is trusted; None when that does not forbid it."""
        if self.launch_fault is not None:
            return self.launch_fault
        key = ItemKey(Subject.TOOL, tool)
        verdict = self.offer.held.get(key, Verdict.ADMITTED)
        if self.judged is None and tool not in self.offer.names:
            verdict = last_verdict(self.entry, key)
        return item_held(self.row, key, verdict) if verdict is not Verdict.ADMITTED else None

    def admits(self, wish: Wish, endpoint: ServerEndpointImpl | None, *, is_coming: bool) -> Admission | ProtocolFault:
        """Whether a request may be made now, or why not; `endpoint` is the ready server's, `is_coming` if starting."""
        if self.launch_fault is not None:
            return self.launch_fault
        if wish.key is not None and wish.key.subject is Subject.TOOL:
            tool = wish.key.name
            if endpoint is not None and self.allows_now(tool, endpoint):
                return Admission.NOW
            return self._admits_call(tool, endpoint, is_coming=is_coming)
        if endpoint is None:
            return Admission.LATER if is_coming else Admission.NOT_READY
        if self.judged is not endpoint:
            return Admission.LATER
        fault = refused(wish, self.row, self.offer, self.entry)
        if fault is None:
            return Admission.NOW
        return fault if self.is_judged else Admission.LATER  # a person may just have approved it

    def _admits_call(
        self, tool: str, endpoint: ServerEndpointImpl | None, *, is_coming: bool
    ) -> Admission | ProtocolFault:
        fault = self.refusal(tool)
        if not is_coming and endpoint is None:
            return fault or Admission.NOT_READY
        if not is_coming and not self.is_judged:
            return Admission.LATER  # a person may just have approved it
        if fault is not None:
            return fault
        lacks = self.judged is not None and tool not in self.offer.names
        return self.unknown_tool(tool) if lacks or not is_coming else Admission.LATER

    def unknown_tool(self, tool: str) -> ProtocolFault:
        """The fault of a call of what the server does not offer."""
        hint = did_you_mean(tool, self.offer.names)
        message = f"{self.row.id} offers no tool {tool[:MAX_NAME_CHARS]!r}{hint}"
        return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "unknown_tool")
