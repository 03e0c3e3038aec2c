"""What the demonstration runs on, when it goes wrong; that it goes right is tried in the acceptance tests."""

import pytest
from support.processes.leftovers import no_leftovers

from quarterdeck.demo import setup
from quarterdeck.demo.setup import DemoError, open_setup

pytestmark = pytest.mark.anyio


async def test_a_serve_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new user would see a broken pipe in place of the reason."""
    monkeypatch.setattr(setup, "SERVERS", ())
    monkeypatch.setattr(setup.json, "dumps", lambda _: '{"mcpServers": ')
    with no_leftovers(), pytest.raises(DemoError, match="line 1, column"):
        async with open_setup():
            raise AssertionError("it must not begin")


async def test_a_story_that_cannot_go_on_ends_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's task groups would hide them, and the user would read of a bug."""
    monkeypatch.setattr(setup, "SERVERS", ())
    with no_leftovers(), pytest.raises(DemoError, match="enough"):
        async with open_setup():
            raise DemoError("enough")
