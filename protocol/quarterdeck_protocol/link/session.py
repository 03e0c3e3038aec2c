"""The sans-IO session between supervisor and worker; the same code at both ends.

It owes: the handshake (one-time token, versions), correlation, credit, deadlines, heartbeats, limits.  It owns no
socket and no clock: every entry takes `now` (monotonic seconds) and returns what happened; what is to be sent is
taken with `take`.  The caller's duties, after any entry: send what `take` gives, arm a timer for `wake_at`, and
call `tick` when it rings, after the channel was drained, so that a beat that waits in it is not called missing.

What a peer does against the rules is a `Violated` value, never an exception.  After it, or a `Silent`, the link is
dead: nothing is sent, nothing comes, and requests without a reply end with it (`cancel` tells which were never sent).
What *we* do against the rules (a reply to nothing, a frame of the other side) is a `LinkMisuseError`: our bug.
"""

from collections.abc import Sequence
from itertools import count
from math import inf
from typing import Final

import msgspec

from quarterdeck_protocol.faults import sayable
from quarterdeck_protocol.limits import UNIT_BYTES, BeatRate, Deadlines, Outbox, Pause, PeerCredit
from quarterdeck_protocol.moments import last_moment

from . import events, frames
from .frame_bytes import WireError, decode

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
        self._token = token
        self._version = version
        self._pid = pid
        self._terms = terms = terms or events.LinkTerms()
        self._outbox = Outbox(terms.window_units, terms.wire)
        self._allowance = PeerCredit(terms.window_units)
        # Looked up for every frame: what an end does that owes a reply, and one that owes none.
        self._beat_s = {owes: terms.beat_of(side, owes=owes) for owes in (False, True)}
        self._patience_s = {owes: terms.patience_with(side.peer, owes=owes) for owes in (False, True)}
        self._peers_beat_s = terms.beat_of(side.peer, owes=True)
        self._rhythm = BeatRate(self._peers_beat_s, now)
        self.next_id: Final = count(1).__next__
        """A fresh request id."""
        self._asked = Deadlines()
        self._abandoned: set[int] = set()
        self._late: dict[int, float] = {}
        self._waited_s = self._excused_s = 0.0
        self.serving: Final = Deadlines()
        """The peer's requests, and when the deadline of each passes; to be read only."""
        self._pause = Pause()
        self._sent_at = self._heard_at = self._asked_at = now
        self._greeted = False
        self._dead = False
        if side is events.Side.WORKER:
            self._outbox.put(frames.Hello(frames.LINK_VERSION, version, token, pid))

    # What the layer above does

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done and nobody broke a rule."""
        return self._greeted and not self._dead

    @property
    def in_flight(self) -> int:
        """Our requests without a reply."""
        return len(self._asked)

    @property
    def wake_at(self) -> float:
        """When `tick` must be called at the latest, monotonic seconds."""
        if self._dead:
            return inf
        if not self._greeted:
            return self._heard_at + self._terms.greet_s + self._excused_s
        return min(self._beat_at, self._silent_at, self._asked.soonest, self.serving.soonest)

    @property
    def soonest_s(self) -> float:
        """How long after a request, ours or the peer's, `tick` may be due for its sake, whatever its deadline."""
        return min(self._patience_s[True], self._beat_s[True])

    @property
    def _beat_at(self) -> float:
        if self.side is events.Side.SUPERVISOR or self.serving:
            return self._sent_at + self._beat_s[bool(self.serving)]
        quiet_s = self._beat_s[False]
        return last_moment(self._sent_at + quiet_s, self._pid, quiet_s)

    @property
    def _silent_at(self) -> float:
        """When the peer's silence is too long; of one that owes us a reply, counted from when it came to owe it."""
        if not self._asked:
            return self._heard_at + self._patience_s[False] + self._excused_s
        return max(self._heard_at, self._asked_at) + self._patience_s[True] + self._excused_s

    def request(self, frame: frames.Request, body: bytes, now: float) -> events.Refusal | None:
        """Send a request, or queue it for credit. None if taken: then it ends once, in a `Replied` or `Overdue`.

        Time spent in the queue is taken off the `timeout_s` that the peer is told.

        Raises:
            LinkMisuseError: the id is in use, or the timeout no positive finite number of seconds.
        """
        if frame.request_id in self._asked:
            raise events.LinkMisuseError(f"request {frame.request_id} is under way already")
        if not self._greeted or self._dead:
            return events.Refusal.DEAD
        if len(self._asked) >= self._terms.max_requests or not self._outbox.has_room(frame, self._terms.max_waiting):
            return events.Refusal.BUSY
        if not self._send(frame, body):
            return events.Refusal.UNSENDABLE
        if not self._asked:
            self._asked_at = now
        self._asked.add(frame.request_id, now + frame.timeout_s + self._terms.backstop_s)
        return None

    def cancel(self, request_id: int, reason: str = "") -> bool:
        """Give up a request, whose reply is swallowed; True if the peer will never see it. The second time changes
        nothing.
        """
        if not self._is_awaited(request_id):
            return False
        if self._outbox.withdraw(request_id):
            return self._asked.remove(request_id)
        if not self._dead:
            self._abandoned.add(request_id)
            self._send(frames.Cancel(request_id, sayable(reason, events.MAX_REASON_CHARS)))
        return False

    def reply(self, frame: frames.Reply, body: bytes = b"") -> None:
        """Answer a request of the peer's, once.

        Raises:
            LinkMisuseError: the peer asked nothing by this id, or has its reply; or no message can carry this one.
        """
        if frame.request_id not in self.serving:
            raise events.LinkMisuseError(f"no request {frame.request_id} awaits a reply")
        if not self._dead and not self._send(frame, body):
            raise events.LinkMisuseError(f"no message can hold the reply to {frame.request_id}")
        self.serving.remove(frame.request_id)

    def serves(self, request_id: int) -> bool:
        """Whether a request of the peer's still awaits our reply."""
        return request_id in self.serving

    def post(self, frame: frames.News | frames.Told, body: bytes = b"") -> bool:
        """Send what has no reply; False when it was dropped: too much waits already, or no message can carry it."""
        return self.is_open and self._outbox.has_room(frame, self._terms.max_waiting) and self._send(frame, body)

    def pause(self, now: float) -> None:
        """Put off the deadlines of requests, at both ends, while a person is asked something; see `Pause`."""
        self._pause.begin(self._asked if self.side is events.Side.SUPERVISOR else self.serving, now)

    def resume(self, now: float) -> None:
        """Count again."""
        self._pause.end(self._asked if self.side is events.Side.SUPERVISOR else self.serving, now)

    def take(self, now: float) -> list[list[bytes]]:
        """The messages to send, in order; each is the parts of one."""
        if self._dead:
            return []
        if self._allowance.is_due:
            self._outbox.put(frames.Credit(self._allowance.refund()))
        if not self._outbox.ready:
            return []
        self._sent_at = now
        return self._outbox.take()

    # What the channel and the timer do

    def receive(self, parts: Sequence[bytes], now: float) -> list[events.LinkEvent]:
        """Take one message of the peer's."""
        if self._dead:
            return []
        self._heard_at, self._excused_s = now, 0.0
        try:
            frame, body = decode(parts, self._terms.wire)
        except WireError as error:
            return [self._violation(str(error))]
        if (reason := events.wrong_frame(frame, body, self.side)) is not None:
            return [self._violation(reason)]
        if self._greeted and type(frame) not in events.FREE:
            return self._charged(frame, body, now)
        if isinstance(frame, events.GREETINGS):
            return [self._greet(frame, now)]
        if not self._greeted:
            return [self._violation(f"{type(frame).__name__} before the handshake")]
        if isinstance(frame, frames.Beat):
            return [] if self._rhythm.allows(now) else [self._violation("it sends heartbeats without a pause")]
        assert isinstance(frame, frames.Credit)
        return self._credited(frame.units, now)

    def expect(self, now: float, waited_s: float = 0.0) -> None:
        """The peer has only now begun to exist: its time to greet us counts from here; `waited_s` as for `tick`."""
        self._waited_s = waited_s
        if not self._greeted:
            self._heard_at = now

    def tick(self, now: float, waited_s: float = 0.0, late_s: float = 0.0) -> list[events.LinkEvent]:
        """Judge what is due; call it only after the channel was drained.

        `late_s` is how much later than `wake_at` this is. From `PAUSE_S` on we were stopped ourselves, and so, with the
        machine, was the peer: its silence counts from now on. `waited_s` is how long the peer was ready to run and got
        no processor; zero if unknown. That excuses as much of its silence and no more than all: a busy machine is no
        dead peer.
        """
        if self._dead:
            return []
        starved_s = max(0.0, waited_s - self._waited_s)
        self._excused_s = min(self._excused_s + starved_s, max(0.0, now - self._heard_at))
        self._waited_s = max(waited_s, self._waited_s)
        if late_s >= PAUSE_S:
            self._excused_s = max(self._excused_s, now - self._heard_at)
        # The very sums of `wake_at`: a difference may round to just below its limit, and the timer would spin.
        if now >= (self._silent_at if self._greeted else self._heard_at + self._terms.greet_s + self._excused_s):
            self._dead = True
            return [events.Silent(now - self._heard_at)]
        if not self._greeted:
            return []
        if now >= self._beat_at:
            self._outbox.put(frames.Beat())
        told: list[events.LinkEvent] = [events.Expired(key) for key in self.serving.due(now)]
        for key in self._asked.due(now):
            told += self._overdue(key, now)
        return told

    # Helpers

    def _send(self, frame: frames.Frame, body: bytes = b"") -> bool:
        if (reason := events.wrong_frame(frame, body, self._peer)) is not None:
            raise events.LinkMisuseError(reason)
        return self._outbox.send(frame, body)

    def _overdue(self, request_id: int, now: float) -> list[events.LinkEvent]:
        if self._outbox.withdraw(request_id):
            self._asked.remove(request_id)
            return [events.Overdue(request_id, was_sent=False)]
        told = request_id in self._abandoned
        self._abandoned.add(request_id)
        if request_id in self._late:
            starved_s = self._waited_s - self._late[request_id]
            if starved_s < self._peers_beat_s:
                return [events.Overdue(request_id)]
            self._wait_longer(request_id, now + starved_s)
            return []
        if now >= self._heard_at + self._peers_beat_s + self._excused_s:
            return [events.Overdue(request_id)]  # it misses its beats as well
        self._wait_longer(request_id, now + self._patience_s[True])
        return [] if told else [events.Late(request_id)]

    def _wait_longer(self, request_id: int, until: float) -> None:
        self._late[request_id] = self._waited_s
        self._asked.add(request_id, until)

    def _greet(self, frame: frames.Hello | frames.Welcome, now: float) -> events.LinkEvent:
        if self._greeted:
            return self._violation("a second handshake")
        if (reason := events.wrong_peer(frame, token=self._token, version=self._version)) is not None:
            return self._violation(reason)
        self._greeted = True
        self._rhythm = BeatRate(self._peers_beat_s, now)
        if isinstance(frame, frames.Hello):
            self._outbox.put(frames.Welcome(self._version))
        return events.Greeted()

    def _credited(self, amount: int, now: float) -> list[events.LinkEvent]:
        if not self._outbox.earn(amount):
            return [self._violation(f"a credit of {amount} that is not owed")]
        told: list[events.LinkEvent] = []
        while (entry := self._outbox.pop()) is not None:
            frame, body = entry
            if isinstance(frame, frames.Request):
                left_s = self._asked[frame.request_id] - now - self._terms.backstop_s
                if left_s <= 0:
                    self._asked.remove(frame.request_id)
                    told.append(events.Overdue(frame.request_id, was_sent=False))
                    continue
                frame = msgspec.structs.replace(frame, timeout_s=min(left_s, frame.timeout_s))
            self._outbox.resend(frame, body)
        return told

    def _charged(self, frame: frames.Frame, body: bytes, now: float) -> list[events.LinkEvent]:
        if not self._allowance.charge(1 + len(body) // UNIT_BYTES):
            return [self._violation("it sent more than its credit")]
        if isinstance(frame, (frames.Answer, frames.Failed)):
            return self._settled(frame, body)
        if isinstance(frame, events.REQUESTS):
            return self._serve(frame, body, now)
        match frame:
            case frames.Cancel() if frame.request_id not in self.serving:
                return []
            case frames.Progress() if not self._is_awaited(frame.request_id) or not events.is_reportable(frame):
                return []
        return [events.Arrived(frame, body)]

    def _settled(self, reply: frames.Reply, body: bytes) -> list[events.LinkEvent]:
        if not self._asked.remove(reply.request_id):
            return [self._violation(f"a reply to {reply.request_id}, which was not asked")]
        self._late.pop(reply.request_id, None)
        if reply.request_id in self._abandoned:
            self._abandoned.discard(reply.request_id)
            return []
        return [events.Replied(reply, body)]

    def _serve(self, request: frames.Request, body: bytes, now: float) -> list[events.LinkEvent]:
        if request.request_id in self.serving or len(self.serving) >= self._terms.max_requests:
            return [self._violation(f"request {request.request_id} is one too many")]
        self.serving.add(request.request_id, now + request.timeout_s)
        return [events.Arrived(request, body)]

    def _is_awaited(self, request_id: int) -> bool:
        return request_id in self._asked and request_id not in self._abandoned

    def _violation(self, reason: str) -> events.Violated:
        self._dead = True
        return events.Violated(sayable(reason, events.MAX_REASON_CHARS))
