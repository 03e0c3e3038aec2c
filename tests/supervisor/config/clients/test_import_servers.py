"""Servers out of other clients' files, into ours."""

import json
from pathlib import Path

import pytest

from quarterdeck.config.clients.client_locations import UserDirectories, sources
from quarterdeck.config.clients.import_servers import (
    FoundServers,
    ImportFileError,
    add_servers,
    find_servers,
    is_in,
    locations_in_file,
    name_apart,
)
from quarterdeck.config.clients.known_clients import System, find_client
from quarterdeck.config.load.jsonc import parse
from quarterdeck.config.load.text_edit import EditError
from quarterdeck_protocol.names import is_server_id

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
        *({"mcpServers": {"a": ROW}}, {"servers": {"a": ROW}}, {"servers": [{"id": "a", **ROW}]}),
        *({"servers": [{"name": "a", **ROW}]}, {"mcp": {"servers": {"a": ROW}}}, {"context_servers": {"a": ROW}}),
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
    assert ids(taken) == ["a-b", "a-b", "server-e3b0c4"]
    assert taken.found[0].notes == ("it is called 'a-b' here",)
    assert [each.name for each in taken.left_out] == ["me", "odd"]


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


LONG = "a" * 32


@pytest.mark.parametrize(
    ("text", "rows", "called", "added"),
    [
        ({"a": {"command": "mine"}}, {"a": ROW}, ["a-2"], ["a-2"]),
        (
            {"a": {"command": "npx", "args": ["/mine"]}},
            {"a": {"command": "npx", "args": ["/theirs"]}},
            ["a-2"],
            ["a-2"],
        ),
        ({"a": {"url": "https://a/"}}, {"a": {"url": "https://b/"}}, ["a-2"], ["a-2"]),
        ({"a": {**ROW, "sandbox": {"read": ["~/a"]}}}, {"a": ROW}, ["a"], []),
        ({"a": {"command": "mine"}, "a-2": ROW}, {"a": ROW}, ["a-2"], []),
        ({"a": {"command": "mine"}, "a-2": {"command": "other"}}, {"a": ROW}, ["a-3"], ["a-3"]),
        ({"a": 1}, {"a": ROW}, ["a-2"], ["a-2"]),
        ({}, {"a b": ROW, "a-b": {"command": "other"}}, ["a-b", "a-b-2"], ["a-b", "a-b-2"]),
        ({}, {"a b": ROW, "a-b": ROW}, ["a-b", "a-b"], ["a-b"]),
        ({LONG: {"command": "mine"}}, {LONG: ROW}, [f"{LONG[:30]}-2"], [f"{LONG[:30]}-2"]),
        ({"a__" + LONG: {"command": "mine"}}, {"a__" + LONG: ROW}, [f"a_{LONG[:28]}-2"], [f"a_{LONG[:28]}-2"]),
    ],
)
def test_a_server_whose_id_another_one_has_gets_a_second_id(
    tmp_path: Path, text: dict[str, object], rows: dict[str, object], called: list[str], added: list[str]
) -> None:
    """A server of a second client, with another folder, would be left out; or be added again by each import."""
    ours = json.dumps({"mcpServers": text})
    found = name_apart(ours, find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": rows}))).found)
    assert [server.id for server in found] == called
    assert all(is_server_id(server.id) for server in found)
    new, taken, _ = add_servers(ours, found)
    assert [server.id for server in taken] == added
    document = parse(new, has_comments=True)
    assert all(is_in(document, server) for server in found)
    once_more = name_apart(new, found)
    assert add_servers(new, once_more)[1] == []


def test_what_differs_from_the_server_that_has_the_id_is_named(tmp_path: Path) -> None:
    """A user could not tell why a server has a second name, or why it was left out."""
    text = json.dumps({"mcpServers": {"a": {"command": "npx", "args": ["/mine"], "env": {"A": "1"}}}})
    row = {"command": "npx", "args": ["/theirs"]}
    found = find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": {"a": row}}))).found
    assert name_apart(text, found)[0].notes == (
        "it is called 'a-2' here: our file has another server 'a', differing in args",
    )
    row = {"command": "npx", "args": ["/mine"], "env": {"A": "2"}}
    found = find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": {"a": row}}))).found
    [left_out] = add_servers(text, name_apart(text, found))[2]
    assert left_out.reason == "our file has a server 'a' already, differing in env"


def test_our_file_is_refused_when_it_is_odd(tmp_path: Path) -> None:
    """It would be changed to something that means something else."""
    found = find_servers(locations_in_file(write(tmp_path / "f", {"mcpServers": {"a": ROW}}))).found
    with pytest.raises(EditError):
        add_servers('{"mcpServers": []}', found)
