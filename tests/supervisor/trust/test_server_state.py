"""Every start and every end of a server is told once."""

from pathlib import Path

import pytest
from support.trust.approvals import ToldEndpoint, row, stdio

from quarterdeck.ledger.events.events import Began, Ended, LedgerEvent
from quarterdeck.trust import server_state as module
from quarterdeck.trust.server_state import MAX_MESSAGE_CHARS, RunningServers
from quarterdeck_protocol.configs import StreamableHttpServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Dossier, FaultKind, ProtocolFault

HOME = Path("/nonexistent/home")


def running() -> RunningServers:
    return RunningServers(lambda _: HOME)


def endpoint(phase: EndpointPhase = EndpointPhase.READY, fault: ProtocolFault | None = None) -> ToldEndpoint:
    made = ToldEndpoint(stdio(), a="one")
    made.phase, made.fault = phase, fault
    return made


async def events_of(at: RunningServers, of: ToldEndpoint) -> list[LedgerEvent]:
    return await at.events_of(row(of.config), of)  # type: ignore[arg-type]


def has_events(at: RunningServers, of: ToldEndpoint) -> bool:
    return at.has_events(of)  # type: ignore[arg-type]


async def test_a_start_is_told_once_with_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger would not say which program in which version had offered what."""
    monkeypatch.setattr(module, "resolved_package", lambda command, args, home: f"{command} of {home} 1.0 (npm)")
    at, first = running(), endpoint()
    assert has_events(at, first)
    [began] = await events_of(at, first)
    assert isinstance(began, Began)
    assert (began.era, began.program, began.package) == ("", "told 1", f"run of {HOME} 1.0 (npm)")
    assert not has_events(at, first)
    assert await events_of(at, first) == []


async def test_a_remote_server_has_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row would be taken for a command line."""
    monkeypatch.delattr(module, "resolved_package")
    remote = ToldEndpoint(StreamableHttpServerConfig(id="web", url="http://localhost/mcp"), a="one")
    remote.card = None
    [began] = await events_of(running(), remote)
    assert isinstance(began, Began)
    assert (began.program, began.package) == ("", "")


async def test_a_death_is_told_once_with_its_story() -> None:
    """Nobody could see afterwards why a server was gone."""
    dossier = Dossier(exit_status=3, signal=9, limit="memory")
    fault = ProtocolFault(FaultKind.TRANSPORT, "x" * 2 * MAX_MESSAGE_CHARS, code="exited", dossier=dossier)
    at, first = running(), endpoint()
    await events_of(at, first)
    first.phase, first.fault = EndpointPhase.FAULTED, fault
    assert has_events(at, first)
    [ended] = await events_of(at, first)
    assert isinstance(ended, Ended)
    assert (ended.code, ended.exit_status, ended.signal, ended.limit) == ("exited", 3, 9, "memory")
    assert len(ended.message) == MAX_MESSAGE_CHARS
    assert not has_events(at, first)
    assert await events_of(at, first) == []
    assert at.end_all() == []


async def test_a_start_that_failed_is_told_and_one_that_was_given_up_is_not() -> None:
    """A crash loop would leave no trace, or each reload one."""
    at = running()
    failed = endpoint(EndpointPhase.FAULTED, ProtocolFault(FaultKind.SPAWN_FAILED, "no such command"))
    [ended] = await events_of(at, failed)
    assert isinstance(ended, Ended)
    assert (ended.code, ended.message, ended.exit_status) == (FaultKind.SPAWN_FAILED, "no such command", None)
    assert not has_events(at, failed)
    assert await events_of(at, endpoint(EndpointPhase.CLOSED)) == []
    assert not has_events(at, endpoint(EndpointPhase.CONNECTING))


async def test_a_successor_ends_the_start_before_it() -> None:
    """Two starts of one server would seem to be under way."""
    at, first, second = running(), endpoint(), endpoint()
    await events_of(at, first)
    told = await events_of(at, second)
    assert [type(event) for event in told] == [Ended, Began]
    assert await events_of(at, second) == []


async def test_what_is_under_way_at_our_end_ends_with_us() -> None:
    """The next start would find servers that seem to run."""
    at = running()
    await events_of(at, endpoint())
    other = ToldEndpoint(stdio("other"), b="two")
    await events_of(at, other)
    ended = at.end_all()
    assert [(event.server, event.code) for event in ended if isinstance(event, Ended)] == [
        ("fs", "closed"),
        ("other", "closed"),
    ]
    assert at.end_all() == []
