"""One server of a fleet: its phases as a table, the result of each move, and whether it is restarted after a death.

Pure: a member is a value, a move returns the next one; times and chance are arguments. `decide` judges a death after
ready, and a failed connect if the server has served before, lost its worker (our fault) or was killed from outside. Any
other failed connect faults the server at once, since a retry would not help; so does a required login. A server whose
time ran out while it was still installing is retried once, with more time. A server that sleeps is started by whoever
wakes it; if that fails, it sleeps again until the next wake, and `decide` bounds how often.

Source: Erlang/OTP sup_princ, "Maximum Restart Intensity" (MaxR restarts in MaxT seconds).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.backoff import LONGEST_STREAK, Pace, pause_s
from quarterdeck_protocol.configs import RestartPolicy, ServerConfig
from quarterdeck_protocol.faults import ProtocolFault


class Restart(msgspec.Struct, frozen=True):
    """Restart it `delay_s` seconds from now."""

    delay_s: float


class CrashLoop(msgspec.Struct, frozen=True):
    """Do not restart it: it died after `restarts` restarts, all that its policy allows."""

    restarts: int


Verdict = Restart | CrashLoop


def decide(
    policy: RestartPolicy, history: Sequence[float], now: float, fraction: float, *, has_served: bool = True
) -> Verdict:
    """Decide what becomes of a server that died at `now`.

    Args:
        policy: the server's own.
        history: monotonic times of the restarts that count against it, seconds, ascending.
        now: the time of the death, on the same clock.
        fraction: chance in [0, 1), evenly distributed; it places the delay within its jitter.
        has_served: whether it was ever ready. If not, it gets `max_restarts` in all, however far apart.
    """
    counted = sum(at >= now - policy.window_s for at in history) if has_served else len(history)
    if counted >= policy.max_restarts:
        return CrashLoop(counted)
    pace = Pace(policy.backoff_s, policy.backoff_max_s, policy.stable_s, policy.jitter)
    return Restart(pause_s(pace, len(history), fraction))


def remember(policy: RestartPolicy, history: Sequence[float], at: float) -> tuple[float, ...]:
    """The history after a restart that was made `at` that time, cut to what `decide` can tell apart."""
    return (*history, at)[-max(policy.max_restarts, LONGEST_STREAK) :]


def is_forgotten(policy: RestartPolicy, alive_s: float) -> bool:
    """Whether a life of `alive_s` seconds, counted from ready, wipes out what came before it."""
    return alive_s >= policy.stable_s


OUR_LOSSES: Final = frozenset({"worker_lost", "network_lost"})
"""Codes of failed connects that say nothing against the server."""


HUNG: Final = "worker_unresponsive"
"""The fault code of a worker killed for silence: on a first connect it does not count against the server either."""

SIGKILL: Final = 9
"""The signal that ends a server from outside: by the kernel, short of memory, or by a person.  A retry may succeed."""

LOGIN_FAULTS: Final = frozenset({"auth_needed", "login_held", "scope_needed"})
"""Codes of ends that only a person mends: to start it again would ask the same of the same login."""


INSTALL_PATIENCE: Final = 5
"""Factor on a server's connect deadline after its first connect ran out while installing: 300 s by default; first
starts of packages took up to 66 s.
"""

SLOW_START: Final = "handshake_timeout"
"""The code of a connect whose time was up."""


class MemberPhase(StrEnum):
    """Where the fleet stands with a server. `WAITING`: for its time, its last generation's end and a slot. `ASLEEP`: it
    has no process until it is woken; its last generation may still be closing.
    """

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    FAULTED = "faulted"
    CLOSED = "closed"
    ASLEEP = "asleep"


class Move(StrEnum):
    """What the fleet does with a server.  `RENEW` is a start by hand."""

    MINT = "mint"
    ADMIT = "admit"
    RETRY = "retry"
    GIVE_UP = "give_up"
    RENEW = "renew"
    CLOSE = "close"
    SLEEP = "sleep"
    WAKE = "wake"


TRANSITIONS: Final[Mapping[tuple[MemberPhase, Move], MemberPhase]] = MappingProxyType(
    {
        (MemberPhase.WAITING, Move.MINT): MemberPhase.STARTING,
        (MemberPhase.WAITING, Move.RENEW): MemberPhase.WAITING,
        (MemberPhase.WAITING, Move.CLOSE): MemberPhase.CLOSED,
        (MemberPhase.WAITING, Move.SLEEP): MemberPhase.ASLEEP,
        (MemberPhase.STARTING, Move.ADMIT): MemberPhase.READY,
        (MemberPhase.STARTING, Move.RETRY): MemberPhase.WAITING,
        (MemberPhase.STARTING, Move.GIVE_UP): MemberPhase.FAULTED,
        (MemberPhase.STARTING, Move.RENEW): MemberPhase.WAITING,
        (MemberPhase.STARTING, Move.CLOSE): MemberPhase.CLOSED,
        (MemberPhase.STARTING, Move.SLEEP): MemberPhase.ASLEEP,
        (MemberPhase.READY, Move.RETRY): MemberPhase.WAITING,
        (MemberPhase.READY, Move.GIVE_UP): MemberPhase.FAULTED,
        (MemberPhase.READY, Move.RENEW): MemberPhase.WAITING,
        (MemberPhase.READY, Move.CLOSE): MemberPhase.CLOSED,
        (MemberPhase.READY, Move.SLEEP): MemberPhase.ASLEEP,
        (MemberPhase.FAULTED, Move.RENEW): MemberPhase.WAITING,
        (MemberPhase.FAULTED, Move.CLOSE): MemberPhase.FAULTED,
        (MemberPhase.CLOSED, Move.RENEW): MemberPhase.WAITING,
        (MemberPhase.CLOSED, Move.CLOSE): MemberPhase.CLOSED,
        (MemberPhase.ASLEEP, Move.WAKE): MemberPhase.WAITING,
        (MemberPhase.ASLEEP, Move.RENEW): MemberPhase.WAITING,
        (MemberPhase.ASLEEP, Move.CLOSE): MemberPhase.CLOSED,
    }
)
"""Every legal move.  Closing a faulted server releases what it holds and keeps its fault to be seen."""


class Member(msgspec.Struct, frozen=True):
    """One server at one moment; times are monotonic seconds. Methods return the server after a move, and raise KeyError
    for a move that the table lacks, which is our bug.

    Attributes:
        generation: the number of its last endpoint, 0 before the first of this start; unique for its id.
        restarts: how often another endpoint took its place in this start, by hand included, wakes not.
        fault: its last death, or the resulting crash loop; kept while it serves again, cleared by hand and by sleep.
        start_at: when it is to be started, or while it sleeps, when at the earliest; infinite when no start is planned.
        ready_at: when it last became ready; None if never since it was last started by hand.
        history: times of the restarts that count against it.
        patience: factor on the deadline of its next connect.
        is_woken: it was woken, and has not been ready since.
        wake_failed_at: when a wake last failed; None once one succeeded or it was started by hand.
    """

    config: ServerConfig
    phase: MemberPhase = MemberPhase.WAITING
    generation: int = 0
    restarts: int = 0
    fault: ProtocolFault | None = None
    start_at: float = inf
    ready_at: float | None = None
    history: tuple[float, ...] = ()
    patience: int = 1
    is_woken: bool = False
    wake_failed_at: float | None = None

    def minted(self, generation: int, now: float) -> Self:
        """It has a new endpoint.  One that was waiting with a fault is a restart that its policy remembers."""
        return replace(
            self,
            phase=TRANSITIONS[self.phase, Move.MINT],
            generation=generation,
            restarts=self.restarts + (self.generation > 0 and not self.is_woken),
            start_at=inf,
            history=remember(self.config.restart, self.history, now) if self.fault is not None else self.history,
        )

    def admitted(self, now: float) -> Self:
        """Return the member once it is ready."""
        phase = TRANSITIONS[self.phase, Move.ADMIT]
        return replace(self, phase=phase, ready_at=now, is_woken=False, wake_failed_at=None)

    def failed(
        self,
        fault: ProtocolFault,
        now: float,
        fraction: float,
        *,
        was_ready: bool = False,
        was_installing: bool = False,
    ) -> Self:
        """Return the member after a death at `now`, to be restarted or left alone; `fraction` is chance in [0, 1), for
        the delay. A death reported before its ready counts as one after it (`was_ready`), and `was_installing` says
        that its command had to fetch the program first.
        """
        policy = self.config.restart
        ready_at = now if was_ready and self.ready_at is None else self.ready_at
        is_stable = self.phase is MemberPhase.READY and ready_at is not None and is_forgotten(policy, now - ready_at)
        dead = replace(self, fault=fault, ready_at=ready_at, history=() if is_stable else self.history)
        if ready_at is None and was_installing and fault.code == SLOW_START and self.patience == 1:
            phase = TRANSITIONS[self.phase, Move.RETRY]
            return replace(dead, phase=phase, start_at=now, patience=INSTALL_PATIENCE)
        is_known = ready_at is not None or self.is_woken  # only a server that has served is ever woken
        is_hopeless = not is_known and not _is_anothers_doing(fault)
        if is_hopeless or fault.code in LOGIN_FAULTS:
            return replace(dead, phase=TRANSITIONS[self.phase, Move.GIVE_UP])
        match decide(policy, dead.history, now, fraction, has_served=is_known):
            case Restart(delay_s) if self.is_woken and not was_ready:
                phase = TRANSITIONS[self.phase, Move.SLEEP]
                return replace(dead, phase=phase, start_at=now + delay_s, is_woken=False, wake_failed_at=now)
            case Restart(delay_s):
                if ready_at is not None and not dead.history:
                    delay_s = 0.0  # the first death of a server that served: a call may wait for it
                return replace(dead, phase=TRANSITIONS[self.phase, Move.RETRY], start_at=now + delay_s)
            case CrashLoop(restarts):
                last_word = _crash_loop(self.config.id, restarts, fault)
                return replace(dead, phase=TRANSITIONS[self.phase, Move.GIVE_UP], fault=last_word)

    def renewed(self, now: float) -> Self:
        """Return the member to be started by hand: at once, and with a clean past."""
        return replace(
            self,
            phase=TRANSITIONS[self.phase, Move.RENEW],
            fault=None,
            start_at=now,
            ready_at=None,
            history=(),
            patience=1,
            is_woken=False,
            wake_failed_at=None,
        )

    def asleep(self) -> Self:
        """Return the member to be closed until it is woken: an end that it did not cause, with a clean past."""
        return replace(self.renewed(inf), phase=TRANSITIONS[self.phase, Move.SLEEP])

    def woken(self, now: float) -> Self:
        """Return the member to be started because it is needed: at once, or after the pause since a failed wake."""
        phase = TRANSITIONS[self.phase, Move.WAKE]
        start_at = max(now, self.start_at) if self.start_at < inf else now
        return replace(self, phase=phase, start_at=start_at, is_woken=True)

    def closed(self) -> Self:
        """Return the member once it is no longer wanted."""
        return replace(self, phase=TRANSITIONS[self.phase, Move.CLOSE], start_at=inf)


def _is_anothers_doing(fault: ProtocolFault) -> bool:
    """Return whether a failed connect does not count against the server."""
    if fault.code in OUR_LOSSES or fault.code == HUNG:
        return True
    dossier = fault.dossier
    return dossier is not None and dossier.signal == SIGKILL and dossier.limit is None


def _crash_loop(server: str, restarts: int, last: ProtocolFault) -> ProtocolFault:
    """Return the fault of a server that is left alone, caused by its last death; that death itself if the policy allows
    no restart, and so knows no loop.
    """
    if not restarts:
        return last
    message = f"{server} died again after {restarts} restarts and is not restarted; the last time: {last.message}"
    return ProtocolFault(last.kind, message, last, code="crash_loop", delivery=last.delivery, dossier=last.dossier)
