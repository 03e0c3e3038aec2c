"""A worker has a good token as long as there is one, and nobody is asked without end for another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support.waiting import until

from quarterdeck.fleet import access as module
from quarterdeck.fleet.access import AccessKeeper, AccessToken
from quarterdeck_protocol.challenge import MAX_SCOPES
from quarterdeck_protocol.faults import FaultKind, ProtocolFault


class PlayedAccess:
    """Gives these tokens one after the other, or these faults; `given` are those that a worker has then."""

    def __init__(self, *ends: AccessToken | str | Exception) -> None:
        self.ends = list(ends)
        self.given: list[str] = []
        self.refused: list[str] = []
        self.wanted: list[tuple[str, tuple[str, ...]]] = []

    async def open(self) -> AccessToken | None:
        """See `Access`."""
        return None

    async def renew(self, refused: str = "") -> AccessToken:
        """See `Access`."""
        self.refused.append(refused)
        return self._next()

    async def widen(self, present: str, scopes: tuple[str, ...]) -> AccessToken | None:
        """See `Access`."""
        self.wanted.append((present, scopes))
        return self._next() if self.ends else None

    def _next(self) -> AccessToken:
        end = self.ends.pop(0)
        if isinstance(end, str):
            raise ProtocolFault.not_sent(FaultKind.TRANSPORT, "no", end)
        if isinstance(end, Exception):
            raise end
        return end


@asynccontextmanager
async def keeping(access: PlayedAccess, first: AccessToken) -> AsyncIterator[AccessKeeper]:
    keeper = AccessKeeper("far", access, access.given.append)
    keeper.start(first)
    try:
        yield keeper
    finally:
        await keeper.stop()


async def test_a_token_is_renewed_before_it_ends() -> None:
    """Calls would be refused first."""
    access = PlayedAccess(AccessToken("b"))
    async with keeping(access, AccessToken("a", 0.0)):
        await until(lambda: access.given == ["b"])
    assert access.refused == [""]


async def test_a_refused_token_is_renewed_once_and_not_again_so_soon() -> None:
    """A server that refuses every token would have its issuer asked without end."""
    access = PlayedAccess(AccessToken("b"))
    async with keeping(access, AccessToken("a")) as keeper:
        keeper.refused()
        await until(lambda: access.given == ["b"])
        keeper.refused()
        await until(lambda: access.given == ["b", ""])
        keeper.refused()
        await until(lambda: access.given == ["b", "", ""])
    assert access.refused == ["a"]


@pytest.mark.parametrize("code", ["auth_needed", "login_held", "keyring_unusable"])
async def test_a_worker_is_told_that_there_is_no_other_token(code: str) -> None:
    """Its requests would wait for their deadlines."""
    access = PlayedAccess(code)
    async with keeping(access, AccessToken("a")) as keeper:
        keeper.refused()
        await until(lambda: access.given == [""])


async def test_an_outage_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would be given up because its issuer was restarted."""
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    access = PlayedAccess("login_failed", "login_failed", AccessToken("b"))
    async with keeping(access, AccessToken("a")) as keeper:
        keeper.refused()
        await until(lambda: access.given == ["b"])
    assert access.refused == ["a"] * 3


async def test_tokens_that_end_at_once_are_not_renewed_without_end() -> None:
    """An issuer that gives such would be asked thousands of times a second."""
    access = PlayedAccess(AccessToken("b", 0.0))
    async with keeping(access, AccessToken("a", 0.0)):
        await until(lambda: access.given == ["b"])
        for _ in range(20):
            await asyncio.sleep(0)
    assert access.refused == [""]


async def test_what_was_never_started_can_be_stopped() -> None:
    """A start that fails ends its session all the same."""
    stop: Callable[[], object] = AccessKeeper("far", PlayedAccess(), lambda _: None).stop
    await stop()  # type: ignore[misc]


async def test_a_login_that_breaks_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever keeps the token would be gone without a word: calls would wait, and the login end, until a restart."""
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    access = PlayedAccess(RuntimeError("a ledger that is gone"), AccessToken("b"))
    async with keeping(access, AccessToken("a")) as keeper:
        keeper.refused()
        await until(lambda: access.given == [""])
        assert "its login broke" in caplog.text
        assert "a ledger that is gone" in caplog.text
        await until(lambda: access.given == ["", "b"])


@pytest.mark.parametrize("end", [None, "login_held", RuntimeError("a ledger that is gone")])
async def test_a_server_that_wants_a_scope_is_answered_in_any_case(end: str | Exception | None) -> None:
    """Its call would wait for its deadline."""
    access = PlayedAccess(*([end] if end is not None else []))
    async with keeping(access, AccessToken("a")) as keeper:
        keeper.refused(("write",))
        await until(lambda: access.given == [""])
        keeper.refused(())
        await until(lambda: access.given == ["", ""])
    assert access.wanted == [("a", ("write",)), ("a", ())]
    assert access.refused == [], "nobody is asked to renew what is good"


async def test_a_login_that_somebody_has_widened_is_used_from_then_on() -> None:
    """Calls would go on with the token of before, and be denied."""
    access = PlayedAccess(AccessToken("wider"), AccessToken("renewed"))
    async with keeping(access, AccessToken("a")) as keeper:
        keeper.refused(("write",))
        await until(lambda: access.given == ["wider"])
        keeper.refused()
        await until(lambda: access.given == ["wider", "renewed"])
    assert access.refused == ["wider"]


async def test_scopes_that_are_wanted_while_a_login_is_looked_at_are_bounded() -> None:
    """A worker that is not ours any more would fill our memory."""
    access = PlayedAccess()
    async with keeping(access, AccessToken("a")) as keeper:
        for number in range(1_000):
            keeper.refused((f"s{number}",))
        await until(lambda: len(access.wanted) == 1)
    assert len(access.wanted[0][1]) == MAX_SCOPES
