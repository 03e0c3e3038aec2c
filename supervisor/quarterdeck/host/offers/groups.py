"""The groups of a configuration as they are now, and clients that are shown no more than some of them.

A group narrows a client as a token does: what it does not have is neither listed nor answered, nor told of.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from quarterdeck.common.watchers import Watchers
from quarterdeck.config.groups import Group, Groups
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import Allowance, Client


class LiveGroups:
    """The groups of the moment.

    Attributes:
        current: by their names.
    """

    def __init__(self, groups: Groups) -> None:
        self.current = groups
        self._watchers: Final = Watchers("groups", logging.getLogger("quarterdeck.host"))

    def take(self, groups: Groups) -> None:
        """Have these from now on; who watches is told when they are others."""
        if groups != self.current:
            self.current = groups
            self._watchers.tell("")

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change; returns what unregisters it."""
        return self._watchers.watch(callback)

    def narrow(self, client: Client, *choices: Sequence[str]) -> Client:
        """The client, shown no more than each choice has: the groups of these names together; an empty one is none."""
        allowance = client.allowance
        for names in filter(None, choices):
            allowance = GroupAllowance(self, names, allowance)
        return client if allowance is client.allowance else msgspec.structs.replace(client, allowance=allowance)


class GroupAllowance:
    """What the groups of these names have together, as far as `within` allows it; an unknown one has nothing."""

    def __init__(self, groups: LiveGroups, names: Iterable[str], within: Allowance | None = None) -> None:
        self._groups = groups
        self._names = tuple(names)
        self._within = within

    @property
    def words(self) -> str:
        """See `Allowance`."""
        said = f"the group{'s' * (len(self._names) > 1)} {', '.join(map(repr, self._names))}"
        return said if self._within is None else f"{self._within.words} in {said}"

    @property
    def max_result_bytes(self) -> int | None:
        """See `Allowance`."""
        return self._within.max_result_bytes if self._within is not None else None

    def allows(self, name: str, listing: str = Listing.TOOLS) -> bool:
        """See `Allowance`."""
        if self._within is not None and not self._within.allows(name, listing):
            return False
        return any(group.has(name, Listing(listing)) for group in self._present())

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        if self._within is not None and not self._within.allows_some_of(server):
            return False
        return any(group.has_some_of(server) for group in self._present())

    def _present(self) -> list[Group]:
        current = self._groups.current
        return [current[name] for name in self._names if name in current]
