"""Whose tasks one server has: each is of the client whose call it was, and of nobody else.  Pure.

Clients are told apart by their keys, times are monotonic seconds.  Of a client that has too many, or of all, those go
first that were used longest ago; the server may have them still, and nobody can ask for them.
"""

from typing import Final

from quarterdeck.common.in_flight import client_with_most

MAX_EACH: Final = 1_000
"""Tasks of one client that are known; each was a call."""

MAX_TOGETHER: Final = 10_000
"""Of all clients of the server."""

MAX_AGE_S: Final = 24 * 3600.0
"""Since a task was last used: whoever wants what came of it asks within a day."""


class TaskOwners:
    """See the module.

    Attributes:
        forgotten: how many tasks were forgotten because there were too many.
    """

    def __init__(self) -> None:
        """The server has none."""
        self.forgotten = 0
        self._owner: dict[str, str] = {}
        self._used_at: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        """How many are known."""
        return len(self._owner)

    def note(self, task: str, client: str, now: float) -> bool:
        """A call of this client has become a task of this id; False where it is another client's."""
        self._forget_old(now)
        if self._owner.setdefault(task, client) != client:
            return False
        own = self._used_at.setdefault(client, {})
        own.pop(task, None)
        own[task] = now
        if len(own) > MAX_EACH:
            self._forget_first_of(client)
            self.forgotten += 1
        elif len(self._owner) > MAX_TOGETHER:
            self._forget_first_of(client_with_most(self._used_at))
            self.forgotten += 1
        return True

    def use(self, task: str, client: str, now: float) -> bool:
        """A client asks for a task; whether it is its own."""
        own = self._used_at.get(client, {})
        used_at = own.pop(task, None)
        if used_at is None:
            return False
        if used_at + MAX_AGE_S < now:
            del self._owner[task]
            return False
        own[task] = now
        return True

    def owner_of(self, task: str) -> str | None:
        """The client whose task this is."""
        return self._owner.get(task)

    def leave(self, client: str) -> None:
        """A client has left: nobody can ask for its tasks any more."""
        for task in self._used_at.pop(client, {}):
            del self._owner[task]

    def _forget_first_of(self, client: str) -> None:
        own = self._used_at[client]
        task = next(iter(own))
        del own[task], self._owner[task]

    def _forget_old(self, now: float) -> None:
        """Forget what is too old, as far as each client's oldest ones are."""
        for client, own in tuple(self._used_at.items()):
            while own and next(iter(own.values())) + MAX_AGE_S < now:
                self._forget_first_of(client)
            if not own:
                del self._used_at[client]
