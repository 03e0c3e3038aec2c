"""The names by which clients introduce themselves."""

import pytest

from quarterdeck.host import program_names
from quarterdeck.host.program_names import MAX_NAME_CHARS, ProgramNames
from quarterdeck_protocol.tools import Client

EDITOR, OTHER = Client("door 1", "door 1"), Client("ci", "token ci")


def test_a_client_is_known_by_its_own_name_until_its_session_ends() -> None:
    """The record of calls would name a process, or a session that is over."""
    names = ProgramNames()
    assert names.get(EDITOR.key, "") == ""
    names.introduce(EDITOR, "editor")
    names.introduce(EDITOR, "editor")
    names.introduce(OTHER, "x" * 1000)
    assert (names.get(EDITOR.key, ""), names.get(OTHER.key, "")) == ("editor", "x" * MAX_NAME_CHARS)
    names.pop(EDITOR.key)
    assert names.get(EDITOR.key, "") == ""


def test_programs_that_share_a_token_are_not_taken_for_one_another() -> None:
    """A call would be put down to the program that came first."""
    names = ProgramNames()
    for name in ("one", "two", "one"):
        names.introduce(OTHER, name)
    assert names.get(OTHER.key, "") == ""


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that opens sessions without end would fill the memory."""
    monkeypatch.setattr(program_names, "MAX_NAMES", 2)
    names = ProgramNames()
    clients = [Client("", f"ci/{session}") for session in range(3)]
    for client in clients:
        names.introduce(client, "a")
    assert [names.get(client.key, "") for client in clients] == ["", "a", "a"]
