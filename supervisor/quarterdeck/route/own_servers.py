"""Which process of a row takes a request: the deck's own, one of the client or its session, or one of its era.

The deck's own server is listed and judged.  Another one of the row is asked only for definitions that are identical to
the judged ones: one approval holds for all.

With `"scope": "session"` or `"client"` no call reaches the deck's own server.  Otherwise that server serves all
sessions until it asks a question.  From then on it serves the session that it asked first, and each other session has
its own server.  A server that speaks both eras is called in the client's era.  Its process speaks the era of its first
client; calls of the other era go to another process, or to another connection of a remote server.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from quarterdeck.common.watchers import wait_until
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.core.member import LOGIN_FAULTS
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.session_servers import NEWER, SessionServer, SessionServers, session_of_user
from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import SUBJECTS, offered_document, tool_document
from quarterdeck.trust.judge.held_messages import HELD_CODES
from quarterdeck_protocol.configs import Revision, ServerScope, StdioServerConfig
from quarterdeck_protocol.contract import RemoteTool, is_usable_phase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.client.greeting import LISTS, UNSUPPORTED_REVISION
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import CallEnd, Client

from .server_call import ServerCall

if TYPE_CHECKING:
    from .deck_server import DeckServer

ASK_ERA_S: Final = 5.0
"""Seconds that a server may take to report whether it speaks 2026-07-28."""

ANOTHER_ERA: Final = frozenset({INVALID_REQUEST, UNSUPPORTED_REVISION})
"""Error codes of a server on a legacy connection that knows the modern era; any other answer means that it does not."""

PERSONAL_FAULTS: Final = LOGIN_FAULTS | {"missing_client_secret"}
"""Codes of failed starts that a client's caller is told as they are: they say what this client lacks."""

MAX_LEVELS: Final = 4_096
"""Clients whose level is known, as of any server."""

MAX_CHECKED: Final = 1_000
"""Things of one session's server whose comparison is remembered; clients make URIs up."""

_UNLISTED: Final = frozenset({Subject.RESOURCE, Subject.TEMPLATE})


class OwnServers:
    """The processes of one row."""

    def __init__(self, server: "DeckServer", fleet: SupervisedFleet, sessions: SessionServers) -> None:
        self._server = server
        self._config = server.config
        self._fleet = fleet
        self._sessions = sessions
        self._levels: dict[str, str] = {}
        self.is_scoped: Final = server.config.scope is not ServerScope.DECK
        self._is_of_user: Final = server.config.scope is ServerScope.CLIENT
        self._whose: Final = "client" if self._is_of_user else "session"
        self._lacks_newer = False
        self._replaced: ServerEndpointImpl | None = None
        self._restart: asyncio.Task[None] | None = None

    def queue_of(self, client: Client, known: CallQueue) -> CallQueue:
        """In which queue a call of this client waits for its turn, of a server whose own is `known`."""
        if self._has_own(client, known):
            return self._sessions.queue(self._config.id, self._session_of(client))
        return known

    def endpoints(self) -> tuple[ServerEndpointImpl, ...]:
        """Those of all sessions."""
        return self._sessions.endpoints(self._config.id)

    def endpoints_of(self, client: Client) -> Iterator[ServerEndpointImpl]:
        """Those that a client's requests go to."""
        if not self.is_scoped and (endpoint := self._server.endpoint) is not None:
            yield endpoint
        if (own := self._sessions.endpoint(self._config.id, self._session_of(client))) is not None:
            yield own

    def set_level(self, client: Client, level: str) -> None:
        """Remember from which level on a client wants log lines, for a server that is started later."""
        if client.key in self._levels or len(self._levels) < MAX_LEVELS:
            self._levels[client.key] = level

    def leave(self, client: Client) -> None:
        """A client has left."""
        if not client.part:
            self._levels.pop(client.key, None)

    def start(self, call: ServerCall, endpoint: ServerEndpointImpl, known: CallQueue) -> None:
        """Begin a call that the deck's own endpoint could take, on the server that is to take it."""
        if self._must_settle_era(endpoint, call):
            call.wait(partial(self._with_era, endpoint, call), partial(self._server.start_on, call))
            return
        own = self._own_for(endpoint, call)
        if own is None:
            known.is_used = True
            call.begin_on(endpoint)
            return
        if isinstance(own, ProtocolFault):
            call.fail(own)
            return
        match self._find_own(own, endpoint, call.wish.key):
            case ProtocolFault() as fault if self.is_scoped:
                call.fail(fault)
            case ProtocolFault():
                call.begin_on(endpoint)
            case None:
                find = partial(self._awaited_own, own, endpoint, call.wish.key, call.patience_s)
                call.wait(find, partial(self._start_own, call))
            case found:
                self._start_own(call, found)

    def _start_own(self, call: ServerCall, endpoint: ServerEndpointImpl) -> None:
        if (level := self._levels.get(call.request.client.key)) is not None:
            endpoint.set_level(call.request.client, level)
        call.begin_on(endpoint)

    # Choice of the server

    @property
    def _known(self) -> CallQueue:
        """The knowledge about the deck's own server, common to all decks that share it."""
        return self._fleet.queue(self._config.id)

    def _session_of(self, client: Client) -> str:
        """Return the key of this client's server: its user, session, or program if its token has no sessions."""
        if not self._is_of_user:
            return client.key if self.is_scoped or self._sessions.is_open(client.key) else client.address
        user = session_of_user(client)
        asked = self._sessions.asked(self._config.id, user)
        return user if asked is None or asked.key == client.key else f"{user} {client.key}"

    def _has_own(self, client: Client, known: CallQueue) -> bool:
        """Return whether this client's calls go to its session's own server."""
        if self.is_scoped:
            return True
        asked = known.asked
        if asked is None or self._session_of(asked) == (session := self._session_of(client)):
            return False
        # Clients that are refused their own server share the deck's, as all clients did before it asked.
        return self._sessions.has(self._config.id, session) or self._sessions.refusal(self._config, client) is None

    def _own_for(self, endpoint: ServerEndpointImpl, call: ServerCall) -> SessionServer | ProtocolFault | None:
        """Return the session's server for a call, or why there is none; None for the deck's own server."""
        session = self._session_of(call.request.client)
        if not call.is_subscription and (other := self._in_other_era(endpoint, call, session)) is not None:
            return other
        if not self._has_own(call.request.client, self._known):
            return None
        if call.is_subscription and not self.is_scoped and not self._sessions.has(self._config.id, session):
            return None  # a subscription alone starts no server
        return self._sessions.get(self._config, call.request.client, session)

    def _find_own(
        self, own: SessionServer, judged: ServerEndpointImpl, key: ItemKey | None
    ) -> ServerEndpointImpl | ProtocolFault | None:
        """Where what `key` names may be used, or why not; None while the session's server is being started."""
        if own.is_coming:
            return None
        endpoint, server = own.endpoint, self._config.id
        if endpoint is None or not is_usable_phase(endpoint.phase):
            last = own.last_fault
            why = f"{server} of this {self._whose} is not ready" + (f": {last}" if last else "")
            code: str | None = "not_connected"
            remedy = None
            if self._is_of_user and last is not None and last.code in PERSONAL_FAULTS:
                code, remedy = last.code, last.remedy_for(None)
            said = FaultKind.NOT_CONNECTED, why, last
            failed = ProtocolFault(*said, code=code, delivery=Delivery.NOT_SENT, remedy=remedy)
            failed.client = own.client.user if self._is_of_user else ""
            return failed
        if key is not None and (fault := self._compared(own, judged, endpoint, key)) is not None:
            return fault
        return endpoint

    def _compared(
        self, own: SessionServer, judged: ServerEndpointImpl, endpoint: ServerEndpointImpl, key: ItemKey
    ) -> ProtocolFault | None:
        """Why a session's server may not be asked for this: it defines it otherwise than what was judged."""
        lists = _list(judged, key), _list(endpoint, key)
        before = own.checked.get(key)
        if before is not None and before[0] is lists[0] and before[1] is lists[1]:
            return None
        approved, found = _form(lists[0], key), _form(lists[1], key)
        if approved != found and self._is_of_user:
            # Some servers name their home in what they list, and each client's is another.
            found = _form(lists[1], key, (endpoint.home, judged.home))
        # A URI that neither lists is one of a template, or of a link: there is nothing to compare.
        if approved != found or (approved is None and key.subject not in _UNLISTED):
            what = f"the {key.subject} {key.name!r}"
            why = f"{self._config.id} of this {self._whose} defines {what} otherwise than what was approved"
            return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, HELD_CODES[key.subject][0])
        if len(own.checked) >= MAX_CHECKED:
            own.checked.clear()
        own.checked[key] = lists
        return None

    async def _awaited_own(
        self, own: SessionServer, judged: ServerEndpointImpl, key: ItemKey | None, wait_s: float
    ) -> ServerEndpointImpl | ProtocolFault:
        await wait_until(own.watch, lambda: not own.is_coming, wait_s)
        found = self._find_own(own, judged, key)
        if not self.is_scoped and (found is None or isinstance(found, ProtocolFault)):
            return judged
        if found is not None:
            return found
        why = f"{self._config.id} of this {self._whose} is still being started: call again"
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")

    # Choice of the era

    def _may_choose(self, endpoint: ServerEndpointImpl) -> bool:
        """Return whether we may choose a server's era; tasks stay in the era in which they began."""
        is_free = self._config.protocol is None and not self.is_scoped and not self._server.task_support()
        return is_free and endpoint.card is not None

    def _must_settle_era(self, endpoint: ServerEndpointImpl, call: ServerCall) -> bool:
        """Return whether a call has to wait until the process speaks its client's era, if it can."""
        if not call.request.is_modern or not isinstance(self._config, StdioServerConfig):
            return False
        if not self._may_choose(endpoint):
            return False
        known = self._known
        if is_modern(_era(endpoint)) or known.prefers_newer:
            return endpoint is self._replaced
        return known.speaks_newer is None or (known.speaks_newer and not known.is_used)

    async def _with_era(self, old: ServerEndpointImpl, call: ServerCall) -> ServerEndpointImpl | ProtocolFault:
        """Find out whether a process speaks the modern era, and switch it if no client has called it yet."""
        known, server = self._known, self._server
        if known.speaks_newer is None:
            known.speaks_newer = await _speaks_newer(old)
        if known.speaks_newer and not known.is_used and not known.prefers_newer:
            known.prefers_newer, self._replaced = True, old
            self._restart = asyncio.create_task(self._fleet.restart(self._config.id))
        if old is self._replaced:
            wait_s = self._config.connect_timeout_s if call.left_s is None else call.left_s
            await server.until(
                lambda: server.endpoint is not old and server.find(call.tool, call.other) is not None, wait_s
            )
        return server.find(call.tool, call.other) or server.not_ready()

    def _in_other_era(self, endpoint: ServerEndpointImpl, call: ServerCall, session: str) -> SessionServer | None:
        """Return the server in the era of a call's client; None if the deck's own server speaks or bridges it."""
        if not self._may_choose(endpoint):
            return None
        is_newer, known = is_modern(_era(endpoint)), self._known
        if is_newer or not call.request.is_modern:
            can_be_asked = call.request.answerer is not None
            if call.request.is_modern or not is_newer or not known.prefers_newer or not can_be_asked:
                return None
            older = self._config.model_copy(update={"protocol": Revision.R2025_11_25})
            return _usable(self._sessions.get(self._config, call.request.client, session, older))
        is_stdio = isinstance(self._config, StdioServerConfig)
        if self._lacks_newer or (is_stdio and not known.speaks_newer):
            return None
        newer = self._config.model_copy(update={"protocol": NEWER})
        client = Client(NEWER, f"{NEWER} {self._config.id}")
        found = _usable(self._sessions.get(self._config, client, config=newer))
        if found is None:
            # Tried once: otherwise each call would ask a server that lacks the era.
            self._lacks_newer = True
            self._sessions.ended(client.key)
            return None
        found.follow_lists(self._take_lists_again)
        return found

    def _take_lists_again(self) -> None:
        """Take the lists of the deck's own server again after a server in another era announced a change."""
        if (endpoint := self._server.endpoint) is not None:
            for listing in LISTS:
                endpoint.on_list_changed(listing)


def _usable(own: SessionServer | ProtocolFault) -> SessionServer | None:
    """Return a server that is ready or starting; None for any other."""
    if isinstance(own, ProtocolFault):
        return None
    is_ready = own.endpoint is not None and is_usable_phase(own.endpoint.phase)
    return own if own.is_coming or is_ready else None


def _era(endpoint: ServerEndpointImpl) -> str:
    return endpoint.card.era if endpoint.card is not None else ""


async def _speaks_newer(endpoint: ServerEndpointImpl) -> bool:
    """Return whether a legacy process shows that it knows the modern era."""
    ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
    endpoint.ask_era(lambda end: None if ended.done() else ended.set_result(end), ASK_ERA_S)
    end = await ended
    return isinstance(end, ProtocolFault) and end.reply is not None and end.reply.code in ANOTHER_ERA


def _list(endpoint: ServerEndpointImpl, key: ItemKey) -> tuple[RemoteTool, ...] | tuple[Offered, ...]:
    """The list in which this stands, or could."""
    listing = next(listing for listing, subject in SUBJECTS.items() if subject is key.subject)
    return endpoint.offered() if listing is Listing.TOOLS else endpoint.offers(listing)


def _form(
    listed: tuple[RemoteTool, ...] | tuple[Offered, ...], key: ItemKey, homes: tuple[str, str] = ("", "")
) -> str | None:
    """The hash of what a list has of this name, None for nothing; the first of two `homes` is taken for the second."""
    for each in listed:
        if key.name != (each.ref.name if isinstance(each, RemoteTool) else each.key):
            continue
        document = tool_document(each) if isinstance(each, RemoteTool) else offered_document(each)
        own, judged = (home.removesuffix("home").encode() for home in homes)
        return hash_of(document.body.replace(own, judged)) if own and judged else document.hash
    return None
