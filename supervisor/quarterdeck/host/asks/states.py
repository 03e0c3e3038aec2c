"""What a client carries for us while a call of its waits for its answers, and what that is bound to.  Pure."""

import hashlib
from typing import Final

import msgspec


class CallKey(msgspec.Struct, frozen=True):
    """What a state is bound to: whose request, and which."""

    client: str
    method: str
    params: bytes
    """Of the request, without `_meta` and what a resumption brings, whatever the order of its members."""

    @property
    def binding(self) -> bytes:
        """It as bytes that stand for it alone."""
        try:
            params = msgspec.json.encode(msgspec.json.decode(self.params), order="sorted")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            params = self.params
        parts = (self.client.encode(), self.method.encode("utf-8", "surrogatepass"), params)
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


class State(msgspec.Struct, frozen=True, array_like=True):
    """What we have to know when a request comes again.

    Attributes:
        expires_at: monotonic seconds of this process.
        parked: the number of a call that waits here; 0 for none.
        inner: the state of a server of 2026-07-28, which it gets back; None where it gave none.
    """

    expires_at: float
    parked: int = 0
    inner: str | None = None


class Passed(msgspec.Struct, frozen=True):
    """What a server of 2026-07-28 gets with a request that is made again: its own state, and the answers."""

    state: str | None
    responses: bytes


def read_state(data: bytes) -> State | None:
    """A state that was packed; None for what is none."""
    try:
        return _states.decode(data)
    except msgspec.DecodeError:
        return None


_states: Final = msgspec.msgpack.Decoder(State)
