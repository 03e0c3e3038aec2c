"""A server of a deck with what is really trusted of it: listed, called, held."""

import pytest
from support.trust.approvals import FILE, Bench, ToldEndpoint, row, stdio, tool_key

from quarterdeck.config.load.origin import Standing
from quarterdeck.route.router import Router
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.tools import CallEnd, RawCall


@pytest.mark.parametrize("name", ["a", "c"])
async def test_what_is_held_is_refused_on_every_way_with_the_command_that_approves_it(name: str, at: Bench) -> None:
    """One way in would be as good as all."""
    await at.runs(ToldEndpoint(stdio(), a="one", b="two"))
    box = Router(at.servers)
    assert [each.name for each in box.descriptors()] == ["fs__a", "fs__b"]
    await at.lists(a="evil", b="two", c="new")
    gate = at.servers.endpoint("fs")
    assert [each.name for each in box.descriptors()] == ["fs__b"]
    told: list[CallEnd] = []
    assert box.begin(RawCall(f"fs__{name}", b"{}"), told.append) is not None
    await at.until(lambda: bool(told))
    (fault,) = told
    assert (fault.code, fault.delivery) == ("tool_held", Delivery.NOT_SENT)
    output, is_error = await at.run(f"fs__{name}")
    assert is_error
    assert f"quarterdeck trust approve fs {name}" in str(output)
    refused = gate.refusal(name)
    assert f"trust approve fs {name}" in str(refused.remedy)
    assert at.fleet.by_id["fs"].begun == []


async def test_a_server_that_died_and_does_not_list_anew_offers_nothing(at: Bench) -> None:
    """What it had before it died may be gone with it."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    again = ToldEndpoint(stdio(), a="one")
    again.has_listed = False
    again.offer()
    at.replaces(again)
    assert at.offered() == []
    output, is_error = await at.run("fs__a")
    assert is_error
    assert "no tool" in str(output)


async def test_a_server_whose_launch_is_held_is_there_and_says_why(at: Bench) -> None:
    """It would be missing without a word, or be tried all the same."""
    await at.approvals.set_rows([row(stdio(), standing=Standing.PROJECT)])
    gate = at.servers.endpoint("fs")
    assert (gate.phase, gate.offered()) == (EndpointPhase.FAULTED, ())
    status = gate.status()
    assert (status.phase, status.tool_count) == (EndpointPhase.FAULTED, 0)
    assert status.fault.code == "launch_held"
    told: list[CallEnd] = []
    gate.begin(RawCall("a", b"{}"), told.append)
    await at.until(lambda: bool(told))
    assert told == [status.fault]
    output, is_error = await at.run("fs__a")
    assert is_error
    assert "quarterdeck trust approve fs --all" in str(output)


async def test_the_process_of_a_launch_that_is_held_cannot_be_called_any_more(at: Bench) -> None:
    """Until it has ended, the old process would be called under a command line that nobody approved."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    assert at.can_call("a")
    await at.approvals.set_rows([row(stdio(command="evil"))])
    assert not at.can_call("a")
    assert at.offered() == []
    assert (await at.run("fs__a"))[1]


async def test_a_server_that_was_closed_says_so(at: Bench) -> None:
    """A message would send people to look for a server that is only stopped."""
    await at.approvals.set_rows([row(stdio())])
    gate = at.servers.endpoint("fs")
    assert (gate.phase, gate.status().phase, gate.offered()) == (EndpointPhase.IDLE, EndpointPhase.IDLE, ())
    endpoint = ToldEndpoint(stdio(), a="one")
    endpoint.phase = EndpointPhase.CLOSED
    at.replaces(endpoint)
    refused = gate.refusal("a")
    assert "fs is closed" in refused.message


async def test_watchers_hear_of_every_verdict(at: Bench) -> None:
    """Clients would not be told that their list has changed."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    seen: list[list[tuple[str, str]]] = []
    unwatch = at.servers.watch_each(lambda _: seen.append(at.offered()))
    await at.lists(a="evil")
    assert seen[-1] == []
    await at.approve(tool_key("a"))
    assert seen[-1] == [("a", "evil")]
    await at.approvals.decide([Decision(str(FILE), "fs", tool_key("a"))])
    assert seen[-1] == []
    unwatch()
