"""What one server's event costs, counted: the same among many servers as among few."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.fleet.memory_fleet import FakeEndpoint
from support.trust.approvals import Bench, ToldEndpoint, bench, row, stdio
from support.waiting import turns

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.route import catalogue
from quarterdeck.route.deck_server import DeckServer
from quarterdeck.route.router import Router
from quarterdeck.trust import list_review, list_scanner
from quarterdeck.trust.approvals import Approvals
from quarterdeck.trust.judge import documents
from quarterdeck.trust.scan import name_changes
from quarterdeck.trust.scan.tool_names import NameIndex
from quarterdeck_protocol.configs import TrustMode

FEW: Final = 10
MANY: Final = 200


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def called(*args: Any, **options: Any) -> Any:
            counted[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(owner, name, called)

    count(Approvals, "_is_due")
    count(DeckServer, "offered")
    count(catalogue, "_told")
    count(NameBudget, "fits")
    count(list_review, "judge_listing")
    for step in ("scan_list", "names_found"):
        count(list_scanner, step)
    count(documents, "tool_document")
    count(name_changes, "names_in")
    count(NameIndex, "put")
    count(FakeEndpoint, "status")
    return counted


async def event_among(count: int, work: Counter[str]) -> Counter[str]:
    """The work for a server that lists another tool, among so many that run and are offered."""
    async with bench() as at:
        endpoints = [
            ToldEndpoint(stdio(f"s{number}", trust=TrustMode.OPEN), echo="Says it again.") for number in range(count)
        ]
        await at.approvals.set_rows([row(endpoint.config) for endpoint in endpoints])
        shown = Router(at.servers, budget=NameBudget())
        for endpoint in endpoints:
            at.fleet.by_id[endpoint.config.id] = endpoint
        at.fleet.tell()
        await at.until(lambda: all(at.approvals.is_judged(each.config.id) for each in endpoints))
        await at.approvals.scanned()
        assert len(shown.descriptors()) == count
        work.clear()
        await _changes(at, endpoints[0])
        shown.descriptors()
        return Counter(work)


async def _changes(at: Bench, endpoint: ToldEndpoint) -> None:
    endpoint.lists(echo="Says it again.", other="Something else.")
    at.fleet.tell(endpoint.config.id)
    await at.until(lambda: at.approvals.is_judged(endpoint.config.id))
    await at.approvals.scanned()
    await turns(5)


async def test_an_event_of_one_server_costs_the_same_among_many(work: Counter[str]) -> None:
    """Two hundred servers would start in the square of the time of ten, and idle as dearly."""
    async with asyncio.timeout(60):
        few = await event_among(FEW, work)
        many = await event_among(MANY, work)
    assert many == few
    assert few["judge_listing"] == 1
    assert few["_told"] == 2
