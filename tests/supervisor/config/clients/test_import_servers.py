"""Servers out of other clients' files, into ours."""

import json
from pathlib import Path, PurePosixPath

import pytest

from quarterdeck.config.clients.import_servers import (
    FoundServers,
    ImportFileError,
    UnsupportedRowError,
    add_servers,
    convert_row,
    find_servers,
    is_own,
    locations_in_file,
)
from quarterdeck.config.clients.known_clients import System, UserDirectories, find_client, sources
from quarterdeck.config.load.jsonc import EditError

ROW = {"command": "npx"}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def ids(taken: FoundServers) -> list[str]:
    return [server.id for server in taken.found]


@pytest.mark.parametrize(
    "content",
    [
        {"mcpServers": {"a": ROW}},
        {"servers": {"a": ROW}},
        {"servers": [{"id": "a", **ROW}]},
        {"servers": [{"name": "a", **ROW}]},
        {"mcp": {"servers": {"a": ROW}}},
        {"context_servers": {"a": ROW}},
        '{"servers": {"a": {"command": "npx"}}, /* x */}',
    ],
)
def test_any_clients_file_is_understood(tmp_path: Path, content: object) -> None:
    """A user of a client that we do not know would have to copy by hand."""
    taken = find_servers(locations_in_file(write(tmp_path / "f", content)))
    assert ids(taken) == ["a"]
    assert taken.found[0].row["command"] == "npx"


def test_the_servers_of_claude_code_are_those_of_this_project(tmp_path: Path) -> None:
    """Servers of other projects would be taken over, or the ones of this project missed."""
    work = tmp_path / "work"
    projects = {
        str(work): {"mcpServers": {"local": ROW, "both": {"command": "local"}}},
        "/b": {"mcpServers": {"c": ROW}},
    }
    write(tmp_path / "home" / ".claude.json", {"projects": projects, "mcpServers": {"user": ROW, "both": ROW}})
    write(work / ".mcp.json", {"mcpServers": {"shared": ROW}})
    client = find_client("claude-code")
    assert client is not None
    taken = find_servers(sources(client, UserDirectories(tmp_path / "home", work, {}, System.LINUX)))
    assert ids(taken) == ["local", "both", "shared", "user"]
    assert taken.found[1].row == {"command": "local"}
    assert [each.name for each in taken.left_out] == ["both"]
    assert taken.elsewhere == 1
    assert len(taken.read) == 2


def test_only_the_named_ones_are_taken(tmp_path: Path) -> None:
    """A user would get all the others too."""
    file = write(tmp_path / "f", {"mcpServers": {"a": ROW, "b c": ROW, "d": ROW}})
    assert ids(find_servers(locations_in_file(file), only=["a", "b-c"])) == ["a", "b-c"]
    assert ids(find_servers(locations_in_file(file), only=["b c"])) == ["b-c"]


def test_what_is_not_taken_has_a_reason(tmp_path: Path) -> None:
    """A server would be missing, and nobody say so."""
    rows = {"a b": ROW, "a-b": ROW, "me": {"command": "quarterdeck", "args": ["serve"]}, "": ROW, "odd": 1}
    taken = find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": rows})))
    assert ids(taken) == ["a-b", "server-e3b0c4"]
    assert taken.found[0].notes == ("it is called 'a-b' here",)
    assert [each.name for each in taken.left_out] == ["a-b", "me", "odd"]


def test_a_file_that_cannot_be_read_is_an_error_and_a_missing_one_is_none(tmp_path: Path) -> None:
    """A typing error would look like a client without servers."""
    assert find_servers(locations_in_file(tmp_path / "none")).read == []
    with pytest.raises(ImportFileError, match="line 1"):
        find_servers(locations_in_file(write(tmp_path / "f", '{"mcpServers": ')))


@pytest.mark.parametrize(
    ("text", "section", "added"),
    [
        ("", "mcpServers", ["a", "b"]),
        ('{"mcpServers": {"a": {"command": "mine"}}}', "mcpServers", ["b"]),
        ('{"servers": {"a": {"command": "mine"}}}', "servers", ["b"]),
        ('{"servers": [{"id": "a", "command": "mine"}]}', "mcpServers", ["b"]),
        ('{"servers": [{"name": "b", "command": "mine"}], "mcpServers": {}}', "mcpServers", ["a"]),
    ],
)
def test_what_our_file_has_already_stays(tmp_path: Path, text: str, section: str, added: list[str]) -> None:
    """A server with settings of its own would be overwritten."""
    found = find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": {"a": ROW, "b": ROW}}))).found
    new, taken, left_out = add_servers(text, found)
    assert [server.id for server in taken] == added
    assert [each.name for each in left_out] == [name for name in ("a", "b") if name not in added]
    assert all(json.loads(new)[section][name] == ROW for name in added)
    assert text.count("mine") == new.count("mine")


def test_our_file_is_refused_when_it_is_odd(tmp_path: Path) -> None:
    """It would be changed to something that means something else."""
    found = find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": {"a": ROW}}))).found
    with pytest.raises(EditError):
        add_servers('{"mcpServers": []}', found)


FOLDER = PurePosixPath("/home/me/project")


@pytest.mark.parametrize(
    "row",
    [
        {"command": "/usr/bin/quarterdeck", "args": ["serve"]},
        {"command": "quarterdeck", "args": ["serve", "--config", "x"]},
        {"command": "/usr/bin/python3", "args": ["-m", "quarterdeck.cli", "serve"]},
        {"command": "wsl.exe", "args": ["--exec", "/home/me/.local/bin/quarterdeck", "serve"]},
        {"command": "wsl.exe", "args": ["--exec", "env", "A=b", "/bin/quarterdeck", "serve"]},
        {"command": "uvx", "args": ["quarterdeck", "serve"]},
        {"command": "C:\\bin\\quarterdeck.exe", "args": ["serve"]},
    ],
)
def test_we_are_recognised_however_we_are_started(row: dict[str, object]) -> None:
    """Quarterdeck would start itself, which starts itself, without end."""
    assert is_own(row)
    with pytest.raises(UnsupportedRowError, match="quarterdeck itself"):
        convert_row(row)


@pytest.mark.parametrize(
    "row",
    [
        {"command": "npx", "args": ["serve", "quarterdeck"]},
        {"command": "quarterdeck", "args": ["sandbox", "run"]},
        {"command": "quarterdeck"},
        {"command": 1, "args": "serve"},
        {"url": "http://quarterdeck/serve"},
    ],
)
def test_others_are_not_taken_for_us(row: dict[str, object]) -> None:
    """A server would silently not be imported, or be removed by unlink."""
    assert not is_own(row)


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
