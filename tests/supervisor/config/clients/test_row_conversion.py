"""Rows of other clients as rows of ours."""

from pathlib import PurePosixPath

import pytest

from quarterdeck.config.clients.row_conversion import UnsupportedRowError, convert_row

FOLDER = PurePosixPath("/home/me/project")


def test_a_row_that_we_understand_is_taken_as_it_is() -> None:
    """A server would run otherwise here than where it came from."""
    row = {"type": "stdio", "command": "npx", "args": ["-y", "a"], "env": {"A": "${env:B}"}, "cwd": "/x"}
    converted = convert_row(row)
    assert converted.row == row
    assert converted.notes == ()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"serverUrl": "https://h/", "id": "h"}, {"url": "https://h/"}),
        ({"httpUrl": "https://h/"}, {"url": "https://h/", "type": "http"}),
        ({"command": "a", "environment": {"A": "b"}}, {"command": "a", "env": {"A": "b"}}),
        ({"command": "a", "transportType": "stdio"}, {"command": "a", "type": "stdio"}),
        ({"command": "a", "disabledTools": ["b"]}, {"command": "a", "tools": {"deny": ["b"]}}),
        ({"command": "a", "includeTools": ["b"]}, {"command": "a", "tools": {"allow": ["b"]}}),
        ({"command": "a", "args": None, "url": None}, {"command": "a"}),
        ({"command": "a", "disabled": True, "name": "x", "description": "y"}, {"command": "a", "disabled": True}),
    ],
)
def test_other_spellings_are_ours_afterwards(row: dict[str, object], expected: dict[str, object]) -> None:
    """Our own loader would refuse the row that we wrote."""
    converted = convert_row(row)
    assert converted.row == expected
    assert converted.notes == ()


def test_what_means_nothing_here_is_left_out_and_told() -> None:
    """The row would be broken for a key, or a user believe that it works."""
    converted = convert_row(
        {"url": "https://h/", "type": "http", "env": {"A": "b"}, "oauth": {"x": 1}, "timeout": 5, "gone": []}
    )
    assert converted.row == {"url": "https://h/", "type": "http"}
    assert converted.notes == ("left out, as it is not supported here: env, oauth, timeout",)


def test_what_a_client_asks_for_becomes_a_stored_secret() -> None:
    """Nobody is there to be asked when a server starts."""
    converted = convert_row({"command": "a", "env": {"A": "${input:my-key}", "B": "x ${input:my-key} ${input:b}"}})
    assert converted.row["env"] == {"A": "${keyring:my-key}", "B": "x ${keyring:my-key} ${keyring:b}"}
    assert converted.inputs == ("my-key", "b")


def test_a_projects_row_still_means_the_project() -> None:
    """Its paths would start at the directory of our file."""
    row = {"command": "a", "args": ["${workspaceFolder}/x"], "cwd": "sub", "envFile": "${workspaceFolder}/.env"}
    assert convert_row(row, folder=FOLDER).row == {
        "command": "a",
        "args": ["/home/me/project/x"],
        "cwd": "/home/me/project/sub",
        "envFile": "/home/me/project/.env",
    }
    assert "replace it" in convert_row(row).notes[0]


def test_a_reference_that_we_do_not_know_is_told() -> None:
    """The server would be broken at its first start, long after."""
    converted = convert_row(
        {"command": "a", "args": ["${workspaceFolderBasename}", "${input:a b}", "${X:-y}", "${command:z}"]}
    )
    assert [note.split()[0] for note in converted.notes] == ["${input:a", "${command:z}"]


def test_a_dollar_of_a_client_that_expands_nothing_stays_one() -> None:
    """A shell command would be given something else, or an unset variable would break the row."""
    assert convert_row({"command": "sh", "args": ["-c", "echo ${HOME}"]}, expands=False).row["args"] == [
        "-c",
        "echo $${HOME}",
    ]


def test_a_row_from_windows_is_told() -> None:
    """A user would wonder why cmd.exe is not found."""
    assert "Windows" in convert_row({"command": "cmd"}, is_across=True).notes[0]


@pytest.mark.parametrize("row", ["text", None, [], {}, {"type": "http"}])
def test_what_is_no_server_is_left_with_its_reason(row: object) -> None:
    """One odd row would end the import of all the others."""
    with pytest.raises(UnsupportedRowError, match=r"not an object|neither"):
        convert_row(row)


@pytest.mark.parametrize(
    ("sandbox", "is_ours"),
    [
        ({"preset": "strict", "write": ["/notes"]}, True),
        ({"write": ["${userHome}/notes"]}, True),
        (True, False),
        ("docker", False),
        ({"enabled": True, "image": "node:20"}, False),
        ({"network": True}, False),
    ],
)
def test_a_sandbox_of_another_program_is_left_out_with_a_note(sandbox: object, is_ours: bool) -> None:
    """An imported row would be broken by a key that means something else, or its sandbox be lost without a word."""
    converted = convert_row({"command": "npx", "sandbox": sandbox})
    assert ("sandbox" in converted.row) is is_ours
    assert any("another program" in note for note in converted.notes) is not is_ours
