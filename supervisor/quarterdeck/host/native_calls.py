"""Run what no server answers: a native tool, or a search among tools; each ends as a server's call does."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

import msgspec

from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.tools import CallEnd, CancelToken, Deliver, ToolBox, ToolCall, WireResult

from .results import bad_result, outcome_result, text_result

_log = logging.getLogger("quarterdeck.host")


class RunningCall:
    """Work of this process that ends as a call does; a `PendingCall`."""

    def __init__(
        self,
        name: str,
        work: Callable[[CancelToken], Awaitable[CallEnd]],
        deliver: Deliver,
        note: Callable[[float, CallEnd | None], None],
    ) -> None:
        """Begin it in a task of its own.

        Args:
            name: of what is called, for the log.
            work: gives the end; its token is switched when the call is given up, and its task cancelled.
            deliver: takes the end.
            note: then takes how long it took, seconds, and the end; None if the call was given up.
        """
        self._note = note
        self._began = monotonic()
        self._name = name
        self._deliver: Deliver | None = deliver
        self._token = CancelToken()
        self._task = asyncio.get_running_loop().create_task(self._run(work), name=f"call of {name}")

    def cancel(self, reason: str = "") -> Delivery:  # noqa: ARG002 - a native tool is told no reason
        """See `PendingCall`."""
        if self._deliver is not None:
            self._note(monotonic() - self._began, None)
        self._deliver = None
        self._token.cancel()
        self._task.cancel()
        return Delivery.UNKNOWN

    async def _run(self, work: Callable[[CancelToken], Awaitable[CallEnd]]) -> None:
        try:
            end = await work(self._token)
        except ProtocolFault as fault:
            end = fault
        except BodyError as error:
            end = bad_result(error)
        except Exception as error:
            _log.exception("the tool %s raised", self._name)
            end = wire_of(text_result(str(error) or type(error).__name__, is_error=True))
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(end)
            self._note(monotonic() - self._began, end)


async def native_end(box: ToolBox, call: ToolCall, token: CancelToken, *, takes_structures: bool = True) -> WireResult:
    """Run a native tool, to a result as a server's would be.

    Args:
        box: has the tool.
        call: what is called, and with what.
        token: switched when the call is given up.
        takes_structures: whether the revision that the client speaks knows structured content.
    """
    outcome = await box.runner.run(call, token)
    era = outcome.wire.era if outcome.wire is not None else Revision.R2025_11_25
    return wire_of(outcome_result(outcome, is_modern=True, takes_structures=takes_structures), era)


def wire_of(result: dict[str, object], era: str = Revision.R2025_11_25) -> WireResult:
    """A result that was made here, as one that came from a server."""
    try:
        body = msgspec.json.encode(result)
    except OverflowError:  # an integer of more than 64 bits
        body = json.dumps(result, ensure_ascii=False).encode()
    return WireResult(body, era, result.get("isError") is True)
