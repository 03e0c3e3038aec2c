"""What a fleet's servers list beside tools, merged under names and URIs that clients can tell apart.

Prompts are called `server__prompt`, as tools are; URIs stay as they are, see `uri_routes`.  Of a server that has said
nothing new its last lists are taken as they were.
"""

import itertools
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck_protocol.contract import LiveEndpoint, LiveFleet
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.offers import Listing, Offered

from .uri_routes import prefixed, scheme_of, split_prefixed

MAX_SAID: Final = 4096
"""URIs of which the log has said that two servers have them."""

_MERGED: Final = (Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES)

_log = logging.getLogger("quarterdeck.names")


class MergedLists:
    """See the module; with `alone`, the id of the fleet's one server, its prompts have their own names.

    Attributes:
        endpoints: those of the last look.
        schemes: of the URIs of each server that has resources or templates.
    """

    def __init__(self, fleet: LiveFleet, *, alone: str, budget: NameBudget | None) -> None:
        """Nothing was looked at yet; `budget` is what the names of prompts keep to."""
        self.endpoints: tuple[LiveEndpoint, ...] = ()
        self.schemes: dict[str, frozenset[str]] = {}
        self._fleet = fleet
        self._alone = alone
        self._budget = budget
        self._changed: set[str] = set()
        self._own: dict[Listing, dict[str, tuple[Offered, ...]]] = {listing: {} for listing in _MERGED}
        self._shown: dict[Listing, tuple[Offered, ...]] = dict.fromkeys(_MERGED, ())
        self._owners: dict[Listing, dict[str, Offered]] = {listing: {} for listing in _MERGED}
        self._said: set[tuple[str, str]] = set()

    @property
    def is_stale(self) -> bool:
        """Whether a server has changed since the last look, or none was taken."""
        return bool(self._changed) or not self.endpoints

    def shown(self, listing: Listing) -> tuple[Offered, ...]:
        """One list as clients see it."""
        return self._shown[listing]

    def owner(self, listing: Listing, public: str) -> Offered | None:
        """What is listed under this name or URI."""
        return self._owners[listing].get(public)

    def mark(self, server: str) -> None:
        """Look at this server's lists anew, the next time."""
        self._changed.add(server)

    def refresh(self) -> tuple[set[str], list[Listing]]:
        """Look at the servers that changed: which they are, and the lists that are other ones now."""
        endpoints = tuple(self._fleet.endpoints())
        is_other = endpoints != self.endpoints
        if is_other:
            self.endpoints = endpoints
            self._changed.update(endpoint.config.id for endpoint in endpoints)
        if not self._changed and not is_other:
            return set(), []
        changed, self._changed = self._changed, set()
        looked = [listing for listing in _MERGED if self._look(listing, changed) or (is_other and self._own[listing])]
        return changed, [listing for listing in looked if self._merge(listing)]

    def _look(self, listing: Listing, changed: set[str]) -> bool:
        """Take what these servers offer; whether that is something else than before."""
        own, is_other = self._own[listing], False
        for server in changed:
            endpoint = self._fleet.endpoint(server)
            offers = endpoint.offers(listing) if endpoint is not None else ()
            if own.get(server, ()) is not offers and (offers or own.get(server)):
                own[server] = offers
                is_other = True
        return is_other

    def _merge(self, listing: Listing) -> bool:
        """Make one list anew; whether it is another one."""
        own = self._own[listing]
        order = [endpoint.config.id for endpoint in self.endpoints]
        self._own[listing] = own = {server: own[server] for server in order if own.get(server)}
        rows = list(itertools.chain.from_iterable(own.values()))
        shown = self._named(rows) if listing is Listing.PROMPTS else self._told_apart(listing, rows)
        before, self._shown[listing] = self._shown[listing], tuple(shown)
        self._owners[listing] = {each.public: each for each in shown}
        if listing is not Listing.PROMPTS:
            self.schemes = self._all_schemes()
        return self._shown[listing] != before

    def _named(self, rows: Sequence[Offered]) -> list[Offered]:
        """Prompts under names that clients accept."""
        if self._alone:
            return [_as(row, row.key) for row in rows]
        qualified = [qualify_tool_name(RemoteToolRef(row.server, row.key)) for row in rows]
        names = public_names(qualified, self._budget) if self._budget is not None else {}
        return [_as(row, names.get(name, name)) for row, name in zip(rows, qualified, strict=True)]

    def _told_apart(self, listing: Listing, rows: Sequence[Offered]) -> list[Offered]:
        """Resources or templates, those of a URI that another server has under one that names their own."""
        shown: dict[str, Offered] = {}
        for row in rows:
            public = row.key
            if public in shown or split_prefixed(public) is not None:
                public = prefixed(row.server, row.key)
                self._say(listing, row, public)
            shown[public] = _as(row, public)
        return list(shown.values())

    def _say(self, listing: Listing, row: Offered, public: str) -> None:
        if (row.server, row.key) not in self._said and len(self._said) < MAX_SAID:
            self._said.add((row.server, row.key))
            _log.info("%s: %s is another server's, too: of %s it is %s", listing, row.key, row.server, public)

    def _all_schemes(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for listing in (Listing.RESOURCES, Listing.TEMPLATES):
            for server, rows in self._own[listing].items():
                found.setdefault(server, set()).update(scheme_of(row.key) for row in rows)
        return {server: frozenset(schemes) for server, schemes in found.items()}


def _as(row: Offered, public: str) -> Offered:
    return row if row.public == public else msgspec.structs.replace(row, public=public)
