"""Keep one server's resource subscriptions and log level in step with its clients, over the server's restarts.

Legacy servers get requests; one of 2026-07-28 listens for all resources at once, and gets the level with each request.
"""

import asyncio
import logging
from functools import partial
from typing import Final

import msgspec

from quarterdeck.fleet.core.offerset import has_capability, subscribes, uri_problem
from quarterdeck.fleet.core.subscriptions import Subscriptions
from quarterdeck.fleet.workers.handle import WorkerHandle
from quarterdeck.fleet.workers.requests import ask, not_made, refuse
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.link.frames import Forward, Listen, Reply, ServerCard
from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.offers import RawRequest, ResourceUpdated
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, WireResult

from .news import TakeNews
from .questions import BeginRound

LISTEN_AGAIN_S: Final = 1.0
"""Seconds before a worker that takes no more is told again what to listen for."""

LISTENING_S: Final = 5.0
"""Seconds that a server of 2026-07-28 may take to say that it listens; a subscription stands then in any case."""

SUBSCRIBE: Final = "resources/subscribe"

_log = logging.getLogger("quarterdeck.fleet")


class Standing:
    """The subscriptions and level of one generation of a server; `wishes` is the same object in the next one."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self.wishes = Subscriptions()
        self._handle: WorkerHandle | None = None
        self._card = ServerCard(era="")
        self._listen: asyncio.Handle | None = None
        self._fresh: list[_Awaited] = []
        self._asked: list[_Awaited] = []
        self._count = 0
        self._told_level = ""
        self._is_telling_level = False

    def greeted(self, handle: WorkerHandle, card: ServerCard) -> None:
        """The server is there."""
        self._handle, self._card = handle, card

    def subscribe(self, request: RawRequest, deliver: Deliver, begin: BeginRound) -> PendingCall:
        """Subscribe to a resource of a greeted server; see `LiveEndpoint.forward`. A legacy one is asked by `begin`."""
        server = self._config.id
        try:
            uri = _params.decode(request.params).uri
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return refuse(deliver, not_made(server, "the params name no URI", "bad_arguments"))
        if problem := uri_problem(uri):
            return refuse(deliver, not_made(server, problem, "bad_arguments"))
        if is_modern(self._card.era) and not subscribes(self._card.capabilities):
            return refuse(deliver, _unable(server))
        if problem := self.wishes.add(request.client, uri):
            return refuse(deliver, not_made(server, problem, "busy"))
        if is_modern(self._card.era):
            awaited = _Awaited(deliver, WireResult(b"{}", self._card.era))
            self._fresh.append(awaited)
            self._listen_soon()
            return awaited
        asked = msgspec.structs.replace(request, method=SUBSCRIBE)
        return begin(asked, partial(self._subscribed, request.client, uri, deliver))

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `LiveEndpoint`."""
        if self.wishes.remove(client, uri):
            self._let_go(uri)

    def leave(self, client: Client) -> None:
        """See `LiveEndpoint`."""
        for uri in self.wishes.leave(client):
            self._let_go(uri)

    def set_level(self, client: Client, level: str) -> None:
        """See `LiveEndpoint`."""
        self.wishes.set_level(client, level)
        self._tell_level()

    async def renew(self, tell: TakeNews) -> None:
        """Ask a started server again for what clients want, and tell them of changes: some may have been missed."""
        handle, uris = self._handle, self.wishes.uris
        if handle is None:
            return
        self._tell_level()
        if is_modern(self._card.era):
            if uris:
                self._listen_now()
        else:
            for uri in uris:
                body = msgspec.json.encode({"uri": uri})
                try:
                    await ask(handle, Forward(handle.next_id(), self._config.call_timeout_s, SUBSCRIBE), body)
                except ProtocolFault as fault:
                    _log.info("%s does not tell any more when %s changes: %s", self._config.id, uri[:200], fault)
        for uri in uris:
            if holders := self.wishes.holders_of(uri):
                tell(ResourceUpdated(self._config.id, uri, holders))

    def listening(self, count: int) -> None:
        """Confirm their subscriptions to clients once the server listens for this number of resources."""
        if count == self._count:
            taken, self._asked = self._asked, []
            for awaited in taken:
                awaited.end()

    def stop(self) -> None:
        """The server is asked no more."""
        self._handle = None
        for awaited in (*self._fresh, *self._asked):
            awaited.end()
        self._fresh, self._asked = [], []
        if self._listen is not None:
            self._listen.cancel()
            self._listen = None

    def _tell_level(self) -> None:
        """Send the server the lowest level, once it has answered the last: clients may change it without end."""
        level, handle = self.wishes.level, self._handle
        if handle is None or self._is_telling_level or level in ("", self._told_level):
            return
        if is_modern(self._card.era) or not has_capability(self._card.capabilities, "logging"):
            return
        frame = Forward(handle.next_id(), self._config.call_timeout_s, "logging/setLevel")
        if handle.ask(frame, msgspec.json.encode({"level": level}), self._level_was_told) is None:
            self._told_level, self._is_telling_level = level, True

    def _level_was_told(self, _: Reply, __: bytes) -> None:
        self._is_telling_level = False
        self._tell_level()

    def _subscribed(self, client: Client, uri: str, deliver: Deliver, end: CallEnd) -> None:
        if isinstance(end, ProtocolFault):
            self.wishes.remove(client, uri)
        deliver(end)

    def _let_go(self, uri: str) -> None:
        if is_modern(self._card.era):
            self._listen_soon()
        else:
            self._tell("resources/unsubscribe", {"uri": uri})

    def _tell(self, method: str, params: dict[str, str]) -> None:
        handle = self._handle
        if handle is not None:
            frame = Forward(handle.next_id(), self._config.call_timeout_s, method)
            handle.ask(frame, msgspec.json.encode(params), _ignore)

    def _listen_soon(self, after_s: float = 0.0) -> None:
        """Listen once for all changes within this turn of the loop."""
        if self._listen is None and self._handle is not None:
            self._listen = asyncio.get_running_loop().call_later(after_s, self._listen_now)

    def _listen_now(self) -> None:
        self._listen = None
        if self._handle is None:
            return
        uris = self.wishes.uris
        if self._handle.post(Listen(), msgspec.json.encode(uris)):
            self._count, self._asked, self._fresh = len(uris), self._asked + self._fresh, []
        else:
            self._listen_soon(LISTEN_AGAIN_S)


class _Awaited:
    """A subscription that stands once its server says that it listens, or has had time to; see `PendingCall`."""

    def __init__(self, deliver: Deliver, end: CallEnd) -> None:
        self._deliver: Deliver | None = deliver
        self._end = end
        self._deadline = asyncio.get_running_loop().call_later(LISTENING_S, self.end)

    def end(self) -> None:
        """Confirm the subscription."""
        self._deadline.cancel()
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(self._end)

    def cancel(self, reason: str = "") -> Delivery:  # noqa: ARG002 - the server listens for all its clients at once
        """See `PendingCall`."""
        self._deadline.cancel()
        self._deliver = None
        return Delivery.UNKNOWN


def _ignore(_: Reply, __: bytes) -> None: ...


def _unable(server: str) -> ProtocolFault:
    why = f"{server} does not tell when a resource changes"
    fault = ProtocolFault(
        FaultKind.TOOL_ERROR,
        why,
        code="reply_error",
        delivery=Delivery.NOT_SENT,
        reply=ReplyError(METHOD_NOT_FOUND, why),
    )
    fault.server = server
    return fault


class _Uri(msgspec.Struct):
    uri: str


_params: Final = msgspec.json.Decoder(_Uri)
