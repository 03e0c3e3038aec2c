"""Configured servers as trust sees them."""

from pathlib import Path

import msgspec
import pytest
from support.registering import FILE, OnlyNamed, stdio, told_tool

from quarterdeck.config.origin import Origin, Standing
from quarterdeck.trust.items import tool_document
from quarterdeck.trust.rows import row_of
from quarterdeck.trust.scopes import PROGRAM_SCOPE, USER_SCOPE
from quarterdeck_protocol.configs import TrustMode


@pytest.mark.parametrize("standing", Standing)
def test_a_row_is_judged_by_its_mode_and_by_whose_word_it_is(standing: Standing) -> None:
    """A project's row would be trusted like the user's own."""
    config = stdio(trust=TrustMode.STRICT)
    row = row_of(config, Origin(FILE, "fs", standing, {"command": "run"}))
    assert (row.id, row.config) == ("fs", config)
    assert row.scope == (USER_SCOPE if standing is Standing.USER else str(FILE))
    assert (row.rules.mode, row.rules.standing, row.rules.lock) == (TrustMode.STRICT, standing, None)


def test_a_server_without_a_file_is_an_embedding_programs() -> None:
    """A program's own server would wait for a person, or share its record with a file's."""
    row = row_of(stdio(command="run"), None)
    assert (row.scope, row.rules.standing) == (PROGRAM_SCOPE, Standing.CODE)
    assert msgspec.json.decode(row.launch.body)["command"] == "run"
    assert row_of(stdio(command="run"), Origin(None, "", Standing.CODE, {"command": "no"})).launch == row.launch


def test_what_is_approved_is_what_the_file_says_and_no_value_of_a_variable() -> None:
    """The ledger would keep the password that `${TOKEN}` stands for."""
    config = stdio(command="/bin/hunter2")
    row = row_of(config, Origin(FILE, "fs", Standing.NAMED, {"command": "${TOKEN}", "env": {"KEY": "hunter2"}}))
    launch = msgspec.json.decode(row.launch.body)
    assert "hunter2" not in str(launch)
    assert {key: launch[key] for key in ("transport", "command", "args", "env")} == {
        "transport": "stdio",
        "command": "${TOKEN}",
        "args": [],
        "env": ["KEY"],
    }


def test_a_lock_is_asked_for_the_rows_own_server() -> None:
    """One server's lock would let in another's tool of the same name."""
    lock = OnlyNamed(fs={"a"}, web={"b"})
    a, b = (tool_document(told_tool("fs", name, "text")) for name in "ab")
    for server, admitted in (("fs", a), ("web", b)):
        rules = row_of(stdio(server), Origin(Path("/x.json"), server, Standing.NAMED, {}), lock).rules
        assert rules.lock is not None
        assert [each for each in (a, b) if rules.lock.admits(each)] == [admitted]
