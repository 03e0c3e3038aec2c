"""Logins are used on approved terms, or on less; what is new is recorded for a person to look at."""

import pytest
from support.trust.approvals import MemoryRecorder

from quarterdeck.ledger.events.events import Approved, Authority, Blocked, LedgerEvent, Seen
from quarterdeck.login.terms import LOGIN, Terms
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.judge.verdicts import Decision, decide
from quarterdeck.trust.logins import LoginApprovals
from quarterdeck_protocol.challenge import MAX_SCOPES

TERMS = Terms.of("https://as.example", "https://mcp.example/mcp", ("read", "write"))
WIDER = Terms.of(TERMS.issuer, TERMS.resource, ("read", "write", "admin"))
NARROWER = Terms.of(TERMS.issuer, TERMS.resource, ("read",))
ELSEWHERE = Terms.of("https://evil.example", TERMS.resource, ("read", "write"))


class At:
    """Approvals of logins over a ledger in memory."""

    def __init__(self) -> None:
        self.recorder = MemoryRecorder()
        self._logins = LoginApprovals(self.recorder, CommonRecord())

    async def admits(self, terms: Terms, *, is_own_word: bool = False) -> bool:
        return await self._logins.admits("user", "far", terms, is_own_word=is_own_word)

    async def approve(self, terms: Terms) -> None:
        """As `quarterdeck login` does, of terms that no process has seen."""
        record = decide(self.recorder.book, [Decision("user", "far", LOGIN, terms.hash, terms.body)])
        await self.recorder.record(record.events, record.documents)

    async def approved(self) -> Terms | None:
        return await self._logins.approved("user", "far")

    async def hold(self, *scopes: str) -> None:
        await self._logins.hold("user", "far", TERMS, scopes)

    def events(self) -> list[tuple[type[LedgerEvent], str]]:
        return [(type(each), getattr(each, "hash", "")) for each in self.recorder.events]


async def test_what_a_person_approved_is_used_and_so_is_less() -> None:
    """A person would log in again for an access that they gave."""
    at = At()
    await at.approve(TERMS)
    for terms in (TERMS, NARROWER, TERMS):
        assert await at.admits(terms)
    assert at.events() == [(Seen, TERMS.hash), (Approved, TERMS.hash)]


async def test_what_is_approved_can_be_read_until_it_is_blocked() -> None:
    """A login is begun for a person only where they agreed to one before."""
    at = At()
    assert await at.approved() is None
    assert not await at.admits(TERMS)
    assert await at.approved() is None, "it was seen alone"
    await at.approve(TERMS)
    assert not await at.admits(WIDER)
    assert await at.approved() == TERMS
    await at.recorder.record([Blocked(scope="user", server="far", subject=LOGIN.subject)], {})
    assert await at.approved() is None


@pytest.mark.parametrize("terms", [WIDER, ELSEWHERE])
@pytest.mark.parametrize("is_own_word", [False, True])
async def test_another_issuer_or_one_more_scope_is_held_until_it_is_approved(terms: Terms, is_own_word: bool) -> None:
    """A server would widen what we can do there, or have our tokens from somebody else."""
    at = At()
    await at.approve(TERMS)
    for _ in range(2):
        assert not await at.admits(terms, is_own_word=is_own_word)
    assert at.events()[2:] == [(Seen, terms.hash)], "a person sees it in trust diff, once"
    await at.approve(terms)
    assert await at.admits(terms)


async def test_at_first_sight_only_the_users_own_word_is_enough() -> None:
    """An issuer that a server names would get a machine's secret."""
    at = At()
    assert not await at.admits(TERMS)
    assert await at.admits(TERMS, is_own_word=True)
    approved = at.recorder.events[-1]
    assert isinstance(approved, Approved)
    assert approved.by is Authority.NAMED


async def test_what_a_person_blocked_stays_out() -> None:
    """A block would be lifted by the next start."""
    at = At()
    await at.approve(TERMS)
    await at.recorder.record([Blocked(scope="user", server="far", subject=LOGIN.subject)], {})
    assert not await at.admits(TERMS, is_own_word=True)


async def test_what_cannot_be_recorded_does_not_count() -> None:
    """A disk that is full would let a login pass that nobody will ever find."""
    at = At()
    at.recorder.is_full = True
    assert not await at.admits(TERMS, is_own_word=True)


async def test_scopes_that_a_server_wants_are_seen_together_and_held() -> None:
    """A person would agree to one after the other, and lose those before; or to none, and something is wider."""
    at = At()
    await at.approve(TERMS)
    for scope in ("admin", "admin", "read", "mail"):
        await at.hold(scope)
    both = Terms.of(TERMS.issuer, TERMS.resource, (*TERMS.scopes, "admin", "mail"))
    assert at.events()[2:] == [(Seen, WIDER.hash), (Seen, both.hash)]
    assert await at.approved() == TERMS
    assert await at.admits(TERMS), "what was approved is used on"
    assert not await at.admits(both)
    await at.approve(both)
    recorded = at.events()
    await at.hold("mail")
    assert at.events() == recorded, "what is approved is not wanted any more"


async def test_a_server_that_wants_ever_other_scopes_fills_no_ledger() -> None:
    """Each call would write an event, and a document that names all before."""
    at = At()
    await at.approve(TERMS)
    for number in range(2 * MAX_SCOPES):
        await at.hold(f"s{number:03}")
    assert len(at.events()) == 2 + MAX_SCOPES - len(TERMS.scopes)


async def test_what_was_seen_of_another_issuer_is_not_added_to() -> None:
    """Its scopes would come in with those that the server of this one wants."""
    at = At()
    await at.approve(TERMS)
    assert not await at.admits(Terms.of("https://evil.example", TERMS.resource, ("everything",)))
    await at.hold("admin")
    assert at.events()[-1] == (Seen, WIDER.hash)


async def test_of_a_login_that_is_blocked_nothing_more_is_wanted() -> None:
    """It is over; and a disk that is full is no reason to end a call."""
    at = At()
    await at.approve(TERMS)
    at.recorder.is_full = True
    await at.hold("admin")
    at.recorder.is_full = False
    await at.recorder.record([Blocked(scope="user", server="far", subject=LOGIN.subject)], {})
    await at.hold("admin")
    assert at.events()[-1][0] is Blocked
