"""The sans-IO session between supervisor and worker; the same code at both ends.

It owes: the handshake (one-time token, versions), correlation, credit, deadlines, heartbeats, limits.  It owns no
socket and no clock: every entry takes `now` (monotonic seconds) and returns what happened; what is to be sent is
taken with `take`.  The caller's duties, after any entry: send what `take` gives, arm a timer for `wake_at`, and
call `tick` when it rings, after the channel was drained, so that a beat that waits in it is not called missing.

What a peer does against the rules is a `Violated` value, never an exception.  After it, or a `Silent`, the link is
dead: nothing is sent, nothing comes, and requests without a reply end with it (`cancel` tells which were never sent).
What *we* do against the rules (a reply to nothing, a frame of the other side) is a `LinkMisuseError`: our bug.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from math import inf
from typing import ClassVar, Final, get_args

import msgspec

from quarterdeck_protocol.faults import sayable
from quarterdeck_protocol.limits import UNIT_BYTES, Backlog, BeatRate, Wait, units
from quarterdeck_protocol.moments import last_moment

from . import events, frames
from .events import CARRIERS
from .frame_bytes import WireError, decode, encode

PAUSE_S: Final = 1.0
"""A timer that rings later than this was not late for a busy loop: somebody had stopped the process, or the machine."""


class Link:
    """One session; see the module."""

    def __init__(
        self,
        side: events.Side,
        *,
        token: bytes,
        version: str,
        now: float,
        terms: events.LinkTerms | None = None,
        pid: int = 0,
    ) -> None:
        """Start the session; a worker's Hello is ready to be taken.

        `token` is the one-time secret that the worker was spawned with; one shorter than 16 bytes is a
        `LinkMisuseError`. `now` is infinite for a peer that does not exist yet, whose time begins with `expect`.
        `version` and `terms` must be the same at both ends; `pid` is a worker's own.
        """
        if len(token) < events.MIN_TOKEN_BYTES:
            raise events.LinkMisuseError(f"a token of {len(token)} bytes; {events.MIN_TOKEN_BYTES} are needed")
        self.side = side
        self._peer = side.peer
        self._receives: frozenset[type] = frozenset()  # what costs the peer credit, once it has greeted
        self._sends = events.RECEIVES[side.peer]
        self._token = token
        self._version = version
        self._pid = pid
        self._terms = terms = terms or events.LinkTerms()
        # Looked up for every frame.
        self._wire, self._max_requests, self._backstop_s = terms.wire, terms.max_requests, terms.backstop_s
        self.ready: list[list[bytes]] = []
        """The messages to send; to be read only."""
        self._credit = self._granted = terms.window_units  # what we may still send, and what the peer may
        self._low_credit = terms.window_units // 2
        self.owes_credit = False
        """Whether the credit to send back to the peer is worth a message; to be read only."""
        self._backlog = Backlog()
        # What an end does that owes a reply, and one that owes none.
        self._beat_s = {owes: terms.beat_of(side, owes=owes) for owes in (False, True)}
        self._patience_s = {owes: terms.patience_with(side.peer, owes=owes) for owes in (False, True)}
        self._peers_beat_s = terms.beat_of(side.peer, owes=True)
        self._rhythm = BeatRate(self._peers_beat_s, now)
        self.next_id: Final = count(1).__next__
        """A fresh request id."""
        self._asked: dict[int, Wait] = {}
        self._serving: dict[int, Wait] = {}
        self.soonest = inf
        """No deadline of a request, ours or the peer's, passes before it; it may be early, since a reply costs no
        search. To be read only."""
        self.soonest_s: Final = min(self._patience_s[True], self._beat_s[True])
        """How long after a request, ours or the peer's, `tick` may be due for its sake, whatever its deadline."""
        self._waited_s = self._excused_s = 0.0
        self._sent_at = self._heard_at = self._asked_at = now
        self.is_open = False
        """Whether the handshake is done and nobody broke a rule; to be read only."""
        self._is_dead = False
        if side is events.Side.WORKER:
            self.ready.append(encode(frames.Hello(frames.LINK_VERSION, version, token, pid)))

    # What the layer above does

    @property
    def in_flight(self) -> int:
        """Our requests without a reply."""
        return len(self._asked)

    @property
    def wake_at(self) -> float:
        """When `tick` must be called at the latest, monotonic seconds."""
        if self._is_dead:
            return inf
        if not self.is_open:
            return self._heard_at + self._terms.greet_s + self._excused_s
        return min(self._beat_at, self._silent_at, self.soonest)

    @property
    def _beat_at(self) -> float:
        if self.side is events.Side.SUPERVISOR or self._serving:
            return self._sent_at + self._beat_s[bool(self._serving)]
        quiet_s = self._beat_s[False]
        return last_moment(self._sent_at + quiet_s, self._pid, quiet_s)

    @property
    def _silent_at(self) -> float:
        """When the peer's silence is too long; of one that owes us a reply, counted from when it came to owe it."""
        if not self._asked:
            return self._heard_at + self._patience_s[False] + self._excused_s
        return max(self._heard_at, self._asked_at) + self._patience_s[True] + self._excused_s

    def request(
        self, frame: frames.Request, body: bytes, now: float, requester: events.Requester | None = None
    ) -> events.Refusal | None:
        """Send a request, or queue it for credit. None if taken: then it ends once, in a `Replied` or `Overdue`, with
        its `requester`.

        Time spent in the queue is taken off the `timeout_s` that the peer is told.

        Raises:
            LinkMisuseError: the id is in use, or the timeout no positive finite number of seconds.
        """
        request_id, timeout_s, asked = frame.request_id, frame.timeout_s, self._asked
        if request_id in asked:
            raise events.LinkMisuseError(f"request {request_id} is under way already")
        if not 0 < timeout_s < inf:
            raise events.LinkMisuseError(events.wrong_timeout(frame))
        if not self.is_open:
            return events.Refusal.DEAD
        if len(asked) >= self._max_requests or (self._credit <= 0 and not self._has_room(frame)):
            return events.Refusal.BUSY
        if not self._send(frame, body):
            return events.Refusal.UNSENDABLE
        if not asked:
            self._asked_at = now
        at = now + timeout_s + self._backstop_s
        asked[request_id] = Wait(at, requester)
        if at < self.soonest:
            self.soonest = at
        return None

    def cancel(self, request_id: int, reason: str = "") -> bool:
        """Give up a request, whose reply is swallowed; True if the peer will never see it. The second time changes
        nothing.
        """
        wait = self._asked.get(request_id)
        if wait is None or wait.is_given_up:
            return False
        if self._backlog.withdraw(request_id):
            del self._asked[request_id]
            return True
        wait.is_given_up = True
        if not self._is_dead:
            self._send(frames.Cancel(request_id, sayable(reason, events.MAX_REASON_CHARS)))
        return False

    def awaited(self) -> dict[int, events.Requester]:
        """Return the requesters that still await a reply by the ids of their requests, the oldest first."""
        waits = self._asked.items()
        return {key: wait.requester for key, wait in waits if wait.requester is not None and not wait.is_given_up}

    def reply(self, frame: frames.Reply, body: bytes = b"") -> None:
        """Answer a request of the peer's, once.

        Raises:
            LinkMisuseError: the peer asked nothing by this id, or has its reply; or no message can carry this one.
        """
        if frame.request_id not in self._serving:
            raise events.LinkMisuseError(f"no request {frame.request_id} awaits a reply")
        if not self._is_dead and not self._send(frame, body):
            raise events.LinkMisuseError(f"no message can hold the reply to {frame.request_id}")
        del self._serving[frame.request_id]

    def serves(self, request_id: int) -> bool:
        """Whether a request of the peer's still awaits our reply."""
        return request_id in self._serving

    def post(self, frame: frames.News | frames.Told, body: bytes = b"") -> bool:
        """Send what has no reply; False when it was dropped: too much waits already, or no message can carry it."""
        return self.is_open and (self._credit > 0 or self._has_room(frame)) and self._send(frame, body)

    def pause(self, now: float) -> None:
        """Put off the deadlines of requests, at both ends, while a person is asked something."""
        for wait in self._pausable():
            wait.pause(now)

    def resume(self, now: float) -> None:
        """Count again."""
        for wait in self._pausable():
            wait.resume(now)
            self.soonest = min(self.soonest, wait.at)

    def take(self, now: float) -> list[list[bytes]]:
        """The messages to send, in order; each is the parts of one."""
        if self.owes_credit:
            self.ready.append(encode(frames.Credit(self._terms.window_units - self._granted)))
            self._granted = self._terms.window_units
            self.owes_credit = False
        if not self.ready:
            return []
        self._sent_at = now
        ready, self.ready = self.ready, []
        return ready

    # What the channel and the timer do

    def receive(self, parts: Sequence[bytes], now: float) -> list[events.LinkEvent]:
        """Take one message of the peer's."""
        self._heard_at, self._excused_s = now, 0.0
        try:
            frame, body = decode(parts, self._wire)
        except WireError as error:
            return self._violation(str(error))
        kind = type(frame)
        if kind not in self._receives:
            return self._receive_free(frame, body, now)
        if body and kind not in CARRIERS:
            return self._violation(events.why_wrong(frame, body, self.side))
        # With any credit left, one frame of any size may come.
        granted = self._granted - 1 - len(body) // UNIT_BYTES
        if granted <= self._low_credit:
            if self._granted <= 0:
                return self._violation("it sent more than its credit")
            self.owes_credit = True
        self._granted = granted
        return self._TAKE[kind](self, frame, body, now)

    def expect(self, now: float, waited_s: float = 0.0) -> None:
        """The peer has only now begun to exist: its time to greet us counts from here; `waited_s` as for `tick`."""
        self._waited_s = waited_s
        if not self.is_open:
            self._heard_at = now

    def tick(self, now: float, waited_s: float = 0.0, late_s: float = 0.0) -> list[events.LinkEvent]:
        """Judge what is due; call it only after the channel was drained.

        `late_s` is how much later than `wake_at` this is. From `PAUSE_S` on we were stopped ourselves, and so, with the
        machine, was the peer: its silence counts from now on. `waited_s` is how long the peer was ready to run and got
        no processor; zero if unknown. That excuses as much of its silence and no more than all: a busy machine is no
        dead peer.
        """
        if self._is_dead:
            return []
        starved_s = max(0.0, waited_s - self._waited_s)
        self._excused_s = min(self._excused_s + starved_s, max(0.0, now - self._heard_at))
        self._waited_s = max(waited_s, self._waited_s)
        if late_s >= PAUSE_S:
            self._excused_s = max(self._excused_s, now - self._heard_at)
        # The very sums of `wake_at`: a difference may round to just below its limit, and the timer would spin.
        if now >= (self._silent_at if self.is_open else self._heard_at + self._terms.greet_s + self._excused_s):
            self._die()
            return [events.Silent(now - self._heard_at)]
        if not self.is_open:
            return []
        if now >= self._beat_at:
            self.ready.append(encode(frames.Beat()))
        if now < self.soonest:
            return []
        told: list[events.LinkEvent] = [events.Expired(key) for key in _pass_deadlines(self._serving, now)]
        for key in _pass_deadlines(self._asked, now):
            told += self._overdue(key, now)
        self.soonest = min((wait.at for wait in chain(self._asked.values(), self._serving.values())), default=inf)
        return told

    # Sending

    def _has_room(self, frame: frames.Frame) -> bool:
        """Whether a frame that cannot be sent at once may wait."""
        return self._backlog.has_room(frame, self._terms.max_waiting)

    def _send(self, frame: frames.Frame, body: bytes = b"") -> bool:
        """Send in order, or wait for credit; False when no message can carry it."""
        kind = type(frame)
        if kind not in self._sends or (body and kind not in CARRIERS):
            raise events.LinkMisuseError(events.why_wrong(frame, body, self._peer))
        try:
            parts = encode(frame, body, self._wire)
        except WireError:
            return False
        # While anything waits there is no credit: what is earned lets it go first.
        if self._credit > 0:
            self._credit -= 1 + len(body) // UNIT_BYTES
            self.ready.append(parts)
        else:
            self._backlog.put(frame, body)
        return True

    def _pausable(self) -> Iterable[Wait]:
        return (self._asked if self.side is events.Side.SUPERVISOR else self._serving).values()

    def _overdue(self, request_id: int, now: float) -> list[events.LinkEvent]:
        wait = self._asked[request_id]
        requester = None if wait.is_given_up else wait.requester
        if self._backlog.withdraw(request_id):
            del self._asked[request_id]
            return [events.Overdue(request_id, was_sent=False, requester=requester)]
        told, wait.is_given_up = wait.is_given_up, True
        if wait.waited_s is not None:
            starved_s = self._waited_s - wait.waited_s
            if starved_s < self._peers_beat_s:
                return [events.Overdue(request_id, requester=requester)]
            wait.at, wait.waited_s = now + starved_s, self._waited_s
            return []
        if now >= self._heard_at + self._peers_beat_s + self._excused_s:
            return [events.Overdue(request_id, requester=requester)]  # it misses its beats as well
        wait.at, wait.waited_s = now + self._patience_s[True], self._waited_s
        return [] if told else [events.Late(request_id, requester)]

    # Receiving

    def _receive_free(self, frame: frames.Frame, body: bytes, now: float) -> list[events.LinkEvent]:
        """Take a frame of the link's own, which costs no credit; any other is too early, too late, or not for us."""
        kind = type(frame)
        if self._is_dead:
            return []
        if kind not in events.RECEIVES[self.side] or (body and kind not in CARRIERS):
            return self._violation(events.why_wrong(frame, body, self.side))
        match frame:
            case frames.Hello() | frames.Welcome():
                return self._greet(frame, now)
            case _ if not self.is_open:
                return self._violation(f"{kind.__name__} before the handshake")
            case frames.Beat():
                return [] if self._rhythm.allows(now) else self._violation("it sends heartbeats without a pause")
            case _:
                assert isinstance(frame, frames.Credit)
                return self._credited(frame.units, now)

    def _greet(self, frame: frames.Hello | frames.Welcome, now: float) -> list[events.LinkEvent]:
        if self.is_open:
            return self._violation("a second handshake")
        if (reason := events.wrong_peer(frame, token=self._token, version=self._version)) is not None:
            return self._violation(reason)
        self.is_open = True
        self._receives = events.RECEIVES[self.side] - events.FREE
        self._rhythm = BeatRate(self._peers_beat_s, now)
        if isinstance(frame, frames.Hello):
            self.ready.append(encode(frames.Welcome(self._version)))
        return [events.Greeted()]

    def _credited(self, amount: int, now: float) -> list[events.LinkEvent]:
        if amount <= 0 or self._credit + amount > self._terms.window_units:
            return self._violation(f"a credit of {amount} that is not owed")
        self._credit += amount
        told: list[events.LinkEvent] = []
        while self._backlog and self._credit > 0:
            frame, body = self._backlog.take()
            if isinstance(frame, frames.Request):
                left_s = self._asked[frame.request_id].at - now - self._backstop_s
                if left_s <= 0:
                    wait = self._asked.pop(frame.request_id)
                    told.append(events.Overdue(frame.request_id, was_sent=False, requester=wait.requester))
                    continue
                frame = msgspec.structs.replace(frame, timeout_s=min(left_s, frame.timeout_s))
            self._credit -= units(len(body))
            self.ready.append(encode(frame, body, self._wire))
        return told

    def _settle(self, reply: frames.Reply, body: bytes, _now: float) -> list[events.LinkEvent]:
        wait = self._asked.pop(reply.request_id, None)
        if wait is None:
            return self._violation(f"a reply to {reply.request_id}, which was not asked")
        return [] if wait.is_given_up else [events.Replied(reply, body, wait.requester)]

    def _serve(self, request: frames.Request, body: bytes, now: float) -> list[events.LinkEvent]:
        if not 0 < request.timeout_s < inf:
            return self._violation(events.wrong_timeout(request))
        if request.request_id in self._serving or len(self._serving) >= self._max_requests:
            return self._violation(f"request {request.request_id} is one too many")
        at = now + request.timeout_s
        self._serving[request.request_id] = Wait(at)
        if at < self.soonest:
            self.soonest = at
        return [events.Arrived(request, body)]

    def _take_cancel(self, cancel: frames.Cancel, body: bytes, _now: float) -> list[events.LinkEvent]:
        return [events.Arrived(cancel, body)] if cancel.request_id in self._serving else []

    def _take_progress(self, note: frames.Progress, body: bytes, _now: float) -> list[events.LinkEvent]:
        wait = self._asked.get(note.request_id)
        if wait is None or wait.is_given_up or not events.is_reportable(note):
            return []
        return [events.Arrived(note, body, wait.requester)]

    def _pass_on(self, frame: frames.Frame, body: bytes, _now: float) -> list[events.LinkEvent]:
        return [events.Arrived(frame, body)]

    def _violation(self, reason: str) -> list[events.LinkEvent]:
        if self._is_dead:
            return []
        self._die()
        return [events.Violated(sayable(reason, events.MAX_REASON_CHARS))]

    def _die(self) -> None:
        self._is_dead = True
        self.is_open = self.owes_credit = False
        self._receives = frozenset()
        self.ready = []

    # How a link that is open takes each kind of frame that costs credit.
    _TAKE: ClassVar[dict[type, Callable[..., list[events.LinkEvent]]]] = (
        dict.fromkeys(get_args(frames.News) + get_args(frames.Told), _pass_on)
        | dict.fromkeys(get_args(frames.Reply), _settle)
        | dict.fromkeys(get_args(frames.Request), _serve)
        | {frames.Cancel: _take_cancel, frames.Progress: _take_progress}
    )


def _pass_deadlines(waits: dict[int, Wait], now: float) -> list[int]:
    """Return the requests whose deadline passes now, each once, the oldest first."""
    due = [key for key, wait in waits.items() if wait.at <= now]
    for key in due:
        waits[key].at = inf
    return due
