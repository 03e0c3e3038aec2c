"""How the demonstration says what confines its servers, and what it says when it goes wrong."""

import sys

import pytest
from mcp.client.stdio import StdioServerParameters
from support.processes.leftovers import no_leftovers

from quarterdeck.daemon.control.protocol import SandboxView
from quarterdeck.demo import run
from quarterdeck.demo.run import DemoError, describe_sandbox, open_setup

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("sandbox", "said"),
    [
        (SandboxView("limits", "full", ("filesystem: reads and writes what you can",)), "nothing on this machine"),
        (SandboxView("landlock", "full", ("user: root without capabilities, as …",)), "as root without capabilities;"),
        (SandboxView("landlock", "full", ("network: REACHABLE",)), "confined by landlock; what is weaker"),
        (SandboxView("bubblewrap", "internet", ()), "each is confined by bubblewrap"),
    ],
)
def test_it_says_what_confines_the_servers(sandbox: SandboxView, said: str) -> None:
    """A new user would take a demonstration without a sandbox for one with."""
    assert said in describe_sandbox(sandbox)


async def test_a_serve_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new user would see a broken pipe in place of the reason."""
    monkeypatch.setattr(run, "SERVERS", ())
    monkeypatch.setattr(run.json, "dumps", lambda _: '{"mcpServers": ')
    with no_leftovers(), pytest.raises(DemoError, match="line 1, column"):
        async with open_setup():
            raise AssertionError("it must not begin")


async def test_a_story_that_cannot_go_on_ends_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's task groups would hide them, and the user would read of a bug."""
    # Any server will do for the client, and a `serve` takes seconds to start.
    tidy = StdioServerParameters(command=sys.executable, args=["-m", "quarterdeck.demo.servers", "tidy"])
    monkeypatch.setattr(run, "StdioServerParameters", lambda **_: tidy)
    with no_leftovers(), pytest.raises(DemoError, match="enough"):
        async with open_setup():
            raise DemoError("enough")
