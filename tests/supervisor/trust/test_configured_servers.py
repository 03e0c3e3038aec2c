"""Configured servers as trust sees them, and what programs could write, ever."""

import os
from pathlib import Path

import msgspec
import pytest
from support.config.places import use_places, write_document
from support.trust.approvals import FILE, OnlyNamed, stdio, told_tool

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.load.origin import FileRead, Origin, Standing
from quarterdeck.config.native_tools import NativeSettings, NativeWish
from quarterdeck.config.places.paths import ledger_dir, state_dir
from quarterdeck.config.settings import Settings
from quarterdeck.trust.configured_servers import (
    FILE_NAME,
    MAX_BYTES,
    Exposure,
    Surroundings,
    configured,
    covered_scopes,
    native_row,
    places_of,
    read_exposure,
    record_exposure,
    row_of,
    scope_of,
    scope_of_row,
)
from quarterdeck.trust.judge.documents import tool_document
from quarterdeck.trust.judge.server_rows import (
    COMMAND_SCOPE,
    NATIVE_ID,
    PROGRAM_SCOPE,
    USER_SCOPE,
    OtherForm,
    ServerRow,
)
from quarterdeck_protocol.configs import StdioServerConfig, TrustMode
from quarterdeck_protocol.names import is_server_id


@pytest.mark.parametrize("standing", [each for each in Standing if each is not Standing.COMMAND])
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
        rules = row_of(stdio(server), Origin(Path("/x.json"), server, Standing.NAMED, {}), Surroundings(lock)).rules
        assert rules.lock is not None
        assert [each for each in (a, b) if rules.lock.admits(each)] == [admitted]


KEY = b"k" * 32


def looked_at(folder: Path, *before: Path, now: tuple[Path, ...] = (), env: str = "x", file: str = "v") -> ServerRow:
    """A row of a file in `folder` that takes a variable from `folder/env`, when these places could be written."""
    row = {"command": "run", "env": {"A": env}, "envFile": "env"}
    origin = Origin(folder / "mcp.json", "fs", Standing.NAMED, row, "", {"env": FileRead(folder / "env", {"B": file})})
    could = Exposure().along_with(before)
    return row_of(stdio(), origin, Surroundings(None, KEY, could, could.along_with(now)))


def test_values_of_a_row_count_once_another_could_write_them_and_not_before(tmp_path: Path) -> None:
    """A key that is renewed each day would hold its server each day; or a program set PYTHONPATH for the next start."""
    assert looked_at(tmp_path).launch == looked_at(tmp_path, env="y", file="w").launch
    written = [
        looked_at(tmp_path, *before, now=now, **values).launch.hash
        for values in ({}, {"env": "y"}, {"file": "w"})
        for before, now in (((tmp_path,), ()), ((), (tmp_path,)))
    ]
    assert len(set(written)) == 3
    assert b"(value " in looked_at(tmp_path, tmp_path).launch.body


def test_what_was_approved_by_name_counts_until_somebody_could_have_changed_the_values(tmp_path: Path) -> None:
    """Every server would be held once when a workspace is named, or after an update; or an old approval cover all."""
    plain = looked_at(tmp_path).launch.hash
    assert looked_at(tmp_path, now=(tmp_path,)).other_form == OtherForm(plain, is_fuller=False)
    assert looked_at(tmp_path, tmp_path).other_form is None
    assert looked_at(tmp_path).other_form == OtherForm(looked_at(tmp_path, tmp_path).launch.hash, is_fuller=True)


def test_a_row_says_which_of_its_files_could_be_written(tmp_path: Path) -> None:
    """A user would look for the change in the wrong file."""
    assert looked_at(tmp_path).rules.exposed == ""
    assert looked_at(tmp_path, tmp_path).rules.exposed == str(tmp_path / "mcp.json")
    (tmp_path / "env").touch()
    assert looked_at(tmp_path, tmp_path / "env").rules.exposed == str(tmp_path / "env")
    assert looked_at(tmp_path, now=(tmp_path,)).rules.exposed == "", "what runs from now on has written nothing yet"


@pytest.mark.parametrize("standing", [Standing.USER, Standing.PROJECT])
def test_only_a_file_that_was_named_must_be_named_again(standing: Standing) -> None:
    """A command would be printed that finds no server, or another one of the same id."""
    found = row_of(stdio(), Origin(FILE, "fs", standing, {"command": "run"}))
    assert found.command("approve", "--all") == "quarterdeck trust approve fs --all"
    named = row_of(stdio(), Origin(Path("/a b/c.json"), "fs", Standing.NAMED, {"command": "run"}))
    assert named.command("approve", "to;ol") == "quarterdeck trust approve fs 'to;ol' -c '/a b/c.json'"


def test_the_key_native_has_a_name_that_no_server_can_have() -> None:
    """A server could be approved in its place."""
    assert not is_server_id(NATIVE_ID)
    row = native_row(NativeSettings(), (), (Path("/x/a.json"), Path("/x/b.json")), Exposure())
    assert row.command("approve", "--all") == f"quarterdeck trust approve {NATIVE_ID} --all -c /x/a.json -c /x/b.json"


def test_places_are_those_of_servers_and_of_native_tools(tmp_path: Path) -> None:
    """A configuration in a folder that a server may write would count as the user's word."""
    server = StdioServerConfig(id="fs", command="run", sandbox={"write": [str(tmp_path / "s")]})
    native = NativeWish(profile=Profile.ALL, workspace=tmp_path / "w")
    settings = Settings(servers=(server,), native=native)
    assert set(map(str, places_of(settings, settings.servers))) == {str(tmp_path / "s"), str(tmp_path / "w")}
    assert set(map(str, places_of(Settings(servers=(server,)), ()))) == set()


def test_a_file_that_could_be_written_is_known_by_each_row_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session would open its own sandbox, or add a server, for the next start."""
    use_places(monkeypatch, tmp_path)
    config = tmp_path / "w" / "mcp.json"
    config.parent.mkdir()
    write_document(config, mcpServers={"a": {"command": "run"}}, native={"webfetch": {"allow": ["127.0.0.1"]}})
    found = configured(Settings.load([config]))
    assert (found.native.exposed, found.rows[0].rules.exposed) == ("", "")
    record_exposure(state_dir(), [tmp_path / "w"])
    found = configured(Settings.load([config]))
    assert (found.native.exposed, found.rows[0].rules.exposed) == (str(config), str(config))


def test_a_file_has_one_scope_from_wherever_it_is_named(tmp_path: Path) -> None:
    """Approvals would be lost, or asked for anew, from another directory."""
    path = tmp_path / "deck.json"
    assert scope_of(tmp_path / "x" / ".." / "deck.json") == scope_of(path) == str(path)
    assert scope_of(Path(os.path.relpath(path))) == scope_of(path)


def test_a_link_lends_no_approval(tmp_path: Path) -> None:
    """A project could link to the user's file, and tomorrow to another, under what was approved of the first."""
    path, link = tmp_path / "deck.json", tmp_path / "link.json"
    path.touch()
    link.symlink_to(path)
    assert scope_of(link) != scope_of(path)


def test_a_name_that_is_no_text_has_a_scope_all_the_same(tmp_path: Path) -> None:
    """A directory with an odd name would stop every start in it."""
    scope = scope_of(tmp_path / os.fsdecode(b"caf\xe9") / "deck.json")
    assert scope.encode().decode() == scope
    assert scope != scope_of(tmp_path / os.fsdecode(b"caf\xea") / "deck.json")


@pytest.mark.parametrize(
    ("path", "standing", "scope"),
    [
        ("/a/deck.json", Standing.USER, USER_SCOPE),
        ("/a/deck.json", Standing.NAMED, "/a/deck.json"),
        ("/a/deck.json", Standing.PROJECT, "/a/deck.json"),
        (None, Standing.CODE, PROGRAM_SCOPE),
        (None, Standing.COMMAND, COMMAND_SCOPE),
    ],
)
def test_the_users_files_are_one_scope_and_all_else_stands_for_itself(
    path: str | None, standing: Standing, scope: str
) -> None:
    """A server would lose its approvals when its row moves between the user's files, or share them with a project's."""
    assert scope_of_row(Origin(path and Path(path), "fs", standing, {})) == scope
    assert scope_of(Path(scope)) != scope or path == scope, "a file of that name passes for it"


def test_found_files_cover_the_users_and_named_ones_do_not() -> None:
    """A server of the user's would be taken for gone when another file is named on the command line."""
    paths = [Path("/a/deck.json"), Path("/b/deck.json")]
    assert covered_scopes(paths, is_found=False) == {"/a/deck.json", "/b/deck.json"}
    assert covered_scopes(paths, is_found=True) == {"/a/deck.json", "/b/deck.json", USER_SCOPE}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_what_was_recorded_is_known_to_the_next_process_and_what_lies_beside_is_not(
    state: Path, tmp_path: Path
) -> None:
    """A deck of yesterday could have written the configuration of today."""
    assert not read_exposure(state).covers(tmp_path / "w" / "mcp.json")
    record_exposure(state, [tmp_path / "w"])
    record_exposure(state, [tmp_path / "x", tmp_path / "w" / "inner"])
    exposure = read_exposure(state)
    assert [exposure.covers(tmp_path / name) for name in ("w/mcp.json", "x", "w", "wx", "y", ".")] == [
        *[True] * 3,
        *[False] * 3,
    ]


def test_a_place_that_is_named_by_a_link_stays_what_it_was(state: Path, tmp_path: Path) -> None:
    """Who moves the link would have what a server wrote taken for the user's word."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    record_exposure(state, [tmp_path / "link"])
    (tmp_path / "link").unlink()
    assert read_exposure(state).covers(tmp_path / "real" / "mcp.json")


def test_one_place_is_written_down_once(state: Path, tmp_path: Path) -> None:
    """The record would grow with every start, until it cannot be read."""
    for _ in range(3):
        record_exposure(state, [tmp_path / "w", tmp_path / "w" / "inner"])
    assert len((ledger_dir(state) / FILE_NAME).read_text().splitlines()) <= 2


def test_private_homes_count_whatever_is_recorded(state: Path, tmp_path: Path) -> None:
    """A configuration that a server put into its own home would be the user's word."""
    for _ in range(2):
        found = read_exposure(state)
        for name in ("servers/ab/fs/home/mcp.json", "workspaces/ab/home/.env"):
            assert found.covers(state / name)
        assert not found.covers(state / "mcp.json")
        record_exposure(state, [tmp_path / "w"])


def test_a_file_counts_by_where_the_links_to_it_lie(state: Path, tmp_path: Path) -> None:
    """A program could point a link in its folder at a file of its own."""
    (tmp_path / "w").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "mcp.json").touch()
    (tmp_path / "w" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "short.json").symlink_to(tmp_path / "w" / "link" / "mcp.json")
    (tmp_path / "into").symlink_to(tmp_path / "w")
    exposure = Exposure().along_with([tmp_path / "into"])
    assert exposure.covers(tmp_path / "short.json")
    assert exposure.covers(tmp_path / "w" / "link" / "mcp.json")
    assert not exposure.covers(tmp_path / "real" / "mcp.json")


def test_links_without_an_end_count(tmp_path: Path) -> None:
    """A path that nobody can follow would be trusted."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert Exposure().covers(tmp_path / "loop")


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_what_another_user_may_write_counts(tmp_path: Path, mode: int) -> None:
    """Another user of the machine could have a program started in ours."""
    path = tmp_path / "mcp.json"
    path.touch()
    assert not Exposure().covers(path)
    path.chmod(mode)
    assert Exposure().covers(path)


def test_a_record_that_cannot_be_read_makes_everything_count(state: Path, tmp_path: Path) -> None:
    """Whoever spoils the record would have it forgotten."""
    record_exposure(state, [tmp_path / "w"])
    path = ledger_dir(state) / FILE_NAME
    path.write_bytes(b" " * (MAX_BYTES + 1))
    assert read_exposure(state).covers("/anywhere")
    path.unlink()
    path.symlink_to("/dev/null")
    assert read_exposure(state).covers("/anywhere")
    with pytest.raises(OSError, match="symbolic link"):
        record_exposure(state, ["/y"])


def test_a_line_that_was_interrupted_spoils_neither_its_neighbours_nor_the_next(state: Path, tmp_path: Path) -> None:
    """A crash in the middle of a write would make what is written later unreadable."""
    record_exposure(state, [tmp_path / "a"])
    with (ledger_dir(state) / FILE_NAME).open("ab") as file:
        file.write(b'"/tor')
    record_exposure(state, [tmp_path / "b"])
    exposure = read_exposure(state)
    assert exposure.covers(tmp_path / "a" / "f")
    assert exposure.covers(tmp_path / "b" / "f")
    assert not exposure.covers(tmp_path / "c")


def test_a_name_that_is_no_text_is_kept(state: Path, tmp_path: Path) -> None:
    """A folder with such a name could not be a workspace, or not be remembered."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n"))
    record_exposure(state, [odd])
    assert read_exposure(state).covers(odd / "mcp.json")
