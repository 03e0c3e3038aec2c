"""Which logins at remote servers may be used: on the terms that were approved, or on less.

A person approves terms by logging in, or with `quarterdeck trust`.  What a machine's row names is its user's own word:
approved at first sight, and held when it changes later, as all else that a server says.
"""

import logging

from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Approved, Authority, LedgerEvent, Seen
from quarterdeck.ledger.events.fold import Item
from quarterdeck.login.terms import LOGIN, Terms, read_terms
from quarterdeck_protocol.challenge import usable_scopes

from .common_record import CommonRecord
from .server_state import Recorder

_log = logging.getLogger("quarterdeck.trust")


class LoginApprovals:
    """Judges the terms of logins by what is recorded, and records what is new; `common` as for `Approvals`."""

    def __init__(self, recorder: Recorder, common: CommonRecord) -> None:
        self._recorder = recorder
        self._common = common

    async def admits(self, scope: str, server: str, terms: Terms, *, is_own_word: bool) -> bool:
        """Return whether a login on these terms may be used now.

        `is_own_word` approves what is seen first; `scope` is the ledger's name for what configures the server.
        """
        async with self._common.recording:
            item = self._recorder.book.entry(scope, server).items.get(LOGIN, Item())
            if item.is_blocked:
                return False
            if item.approved == terms.hash or await self._covers(item.approved, terms):
                return True
            is_first = is_own_word and not item.approved
            events: list[LedgerEvent] = []
            subject = LOGIN.subject
            if item.seen != terms.hash:
                events.append(Seen(scope=scope, server=server, subject=subject, hash=terms.hash))
            if is_first:
                by = Authority.NAMED
                events.append(Approved(scope=scope, server=server, subject=subject, hash=terms.hash, by=by))
            try:
                await self._recorder.record(events, {terms.hash: terms.body})
            except LedgerWriteError:
                return False
            return is_first

    async def hold(self, scope: str, server: str, terms: Terms, scopes: tuple[str, ...]) -> None:
        """Have a person look at more scopes that a server wants for its login: the next `login` asks for them.

        They add to those it wanted before. A server that wants ever more fills the `MAX_SCOPES` of a login, and the
        ledger with no more than so many events.
        """
        async with self._common.recording:
            item = self._recorder.book.entry(scope, server).items.get(LOGIN, Item())
            if item.is_blocked:
                return
            seen = read_terms(await self._recorder.document(item.seen)) if item.seen else None
            before = seen.scopes if seen is not None and seen.is_at(terms) else ()
            wanted = Terms.of(terms.issuer, terms.resource, usable_scopes((*terms.scopes, *before, *scopes)))
            if wanted.hash == item.seen or await self._covers(item.approved, wanted):
                return
            event = Seen(scope=scope, server=server, subject=LOGIN.subject, hash=wanted.hash)
            try:
                await self._recorder.record([event], {wanted.hash: wanted.body})
            except LedgerWriteError as error:
                _log.warning("%s: it wants %s, and that cannot be recorded: %s", server, " ".join(scopes), error)

    async def approved(self, scope: str, server: str) -> Terms | None:
        """The terms that are approved of a server, named as for `admits`; None for none, and while they are blocked."""
        item = self._recorder.book.entry(scope, server).items.get(LOGIN, Item())
        if item.is_blocked or not item.approved:
            return None
        return read_terms(await self._recorder.document(item.approved))

    async def _covers(self, approved: str, terms: Terms) -> bool:
        before = read_terms(await self._recorder.document(approved)) if approved else None
        return before is not None and terms.is_within(before)
