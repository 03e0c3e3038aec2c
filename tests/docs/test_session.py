"""The recorded terminal session of the README is what the program does, and its picture is complete by itself."""

import html
import re
import sys
from typing import Final

import pytest
from support.processes.leftovers import no_leftovers
from support.processes.running import output

from .documents import ROOT

pytestmark = pytest.mark.process

RECORD: Final = ROOT / "docs" / "site" / "record.py"

PICTURE: Final = ROOT / "docs" / "session.svg"

DEADLINE_S: Final = 240.0
"""Ten commands beside a `serve`, on a busy machine."""


@pytest.fixture(scope="module")
def session() -> str:
    with no_leftovers(DEADLINE_S):
        return output(sys.executable, RECORD, "--text", within_s=DEADLINE_S)


@pytest.mark.nightly
def test_the_session_shows_what_the_readme_says_of_it(session: str) -> None:
    """The first thing that a newcomer sees would not be true any more."""
    assert "PRIVATE KEY" not in session
    assert "/home/me/.ssh/id_ed25519'" in session
    assert "error[tool_held]" in session
    assert "killed by SIGKILL" in session
    assert re.search(r"^notes +ready .* 2 ", session.rpartition("\n$ ")[2], re.MULTILINE)


@pytest.mark.nightly
def test_the_picture_shows_the_commands_of_the_session(session: str) -> None:
    """The picture would be of another session: record it anew with `python docs/site/record.py`."""
    shown = html.unescape(re.sub(r"<[^>]+>", "", PICTURE.read_text()).replace("&#160;", " "))
    commands = [line.partition("$ ")[2].strip() for line in session.splitlines() if line.startswith("$ ")]
    assert len(commands) >= 8
    assert [command for command in commands if "kill -9" not in command and command not in shown] == []


def test_the_picture_fetches_nothing() -> None:
    """Whoever opens the README would be told of to a server of somebody else's."""
    assert re.findall(r"(?:href|src|url\()[=\"' ]*https?:", PICTURE.read_text()) == []
    assert "@font-face" not in PICTURE.read_text()
