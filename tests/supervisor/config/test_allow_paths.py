"""What a row names and its sandbox hides, and the row with it."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support.config.places import use_places

from quarterdeck.config.allow_paths import edited, missing, sandbox_with, widened
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.load.text_edit import EditError
from quarterdeck.config.places.paths import state_dir
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import NOTHING_TO_ADD, find_remedy
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.program.launch import LaunchError, plan_launch
from quarterdeck_sandbox.program.needed_paths import RequiredPath
from quarterdeck_sandbox.program.resolve import resolve_program
from quarterdeck_sandbox.view.layout import build_view, require_visible
from quarterdeck_sandbox.view.secret_paths import PathRules


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("proj/src", "data", ".aws"):
        (home / name).mkdir(parents=True)
    for name in ("proj/pyproject.toml", "proj/src/server.py", "data/x.db", ".aws/credentials"):
        (home / name).touch()
    monkeypatch.setenv("HOME", str(home))
    use_places(monkeypatch, tmp_path)
    return home


def config(*args: object, env: dict[str, str] | None = None, **sandbox: Any) -> StdioServerConfig:
    return StdioServerConfig(
        id="s", command="/bin/cat", args=tuple(map(str, args)), env=env or {}, sandbox=SandboxPolicy(**sandbox)
    )


def pairs(needs: list[RequiredPath]) -> list[tuple[str, str]]:
    return [(need.key, need.path) for need in needs]


def test_all_that_a_row_names_is_found_at_once(home: Path) -> None:
    """A user would be told of one path at each start."""
    row = config(home / "proj/src/server.py", "--db", home / "data/x.db", env={"OUT": f"{home}/data/out.txt"})
    needs, said = missing(row, os.environ)
    assert pairs(needs) == [("read", str(home / "proj")), ("write", str(home / "data"))]
    assert said == []


def test_a_credential_is_not_offered_and_both_ways_to_give_it_are_told(home: Path) -> None:
    """A server would be given a key by a yes to all, or its user be sent to a grant as the only way."""
    key = home / ".aws/credentials"
    needs, [said] = missing(config(key), os.environ)
    assert needs == []
    assert '"grants": ["aws"]' in said
    assert f"--read {key}" in said


def test_a_file_that_was_named_alone_is_seen_to_be_too_little(home: Path) -> None:
    """The earlier advice, to name the file, would stay in the way."""
    row = config(
        home / "proj/src/server.py",
        home / "data/x.db",
        read=(f"{home}/proj/src/server.py",),
        write=(f"{home}/data/x.db",),
    )
    needs, _ = missing(row, os.environ)
    assert pairs(needs) == [("read", str(home / "proj")), ("write", str(home / "data"))]
    sandbox = sandbox_with({"sandbox": {"read": list(row.sandbox.read), "write": list(row.sandbox.write)}}, needs)
    assert sandbox == {"read": [str(home / "proj")], "write": [str(home / "data")]}
    assert widened(row, needs, os.environ).write == (str(home / "data"),)


def test_what_cannot_be_given_is_said(home: Path) -> None:
    """A user would be offered their keys for a server, or nothing without a word."""
    needs, said = missing(config(home / ".aws/credentials", home / "new.db", home / "no/folder/x.db"), os.environ)
    assert needs == []
    assert [line.partition(" is ")[0] for line in said][:1] == [str(home / ".aws/credentials")]
    assert '"grants": ["aws"]' in said[0]
    assert "with other files" in said[1]
    assert "create the folder first" in said[2]


@pytest.mark.parametrize("path", ["", "/proc", "/"])
def test_what_no_start_would_give_is_refused_before_it_is_written(home: Path, path: str) -> None:
    """The row would be written, and its server refused."""
    with pytest.raises(LaunchError):
        widened(config(), [RequiredPath("read", str(home / path) if not path.startswith("/") else path)], os.environ)


def test_a_row_keeps_every_other_character(home: Path) -> None:
    """A user's comments and layout would be gone."""
    row = {"command": "cat", "sandbox": {"network": "none", "read": ["~/a"]}}
    text = '{\n  // mine\n  "mcpServers": {"s": ' + json.dumps(row) + "} // end\n}\n"
    origin = Origin(home / "mcp.json", "mcpServers.s", Standing.NAMED, row, "/mcpServers/s")
    sandbox = sandbox_with(row, [RequiredPath("read", "/b"), RequiredPath("write", "/c")])
    assert sandbox == {"network": "none", "read": ["~/a", "/b"], "write": ["/c"]}
    new = edited(text, origin, sandbox)
    assert new == text.replace('["~/a"]', '["~/a", "/b"], "write": ["/c"]')
    bare = {"command": "cat", "sandbox": None}
    origin = Origin(home / "mcp.json", "x", Standing.NAMED, bare, "/mcpServers/s~1~0t")
    new = edited(json.dumps({"mcpServers": {"s/~t": bare}}), origin, {"read": ["/b"]})
    assert json.loads(new) == {"mcpServers": {"s/~t": {"command": "cat", "sandbox": {"read": ["/b"]}}}}


def test_a_path_that_another_gives_is_not_named_beside_it() -> None:
    """A row would get wordier with each suggestion, and hide what it gives."""
    given = [("read", "/a/b"), ("read", "/a"), ("write", "/a/b/c"), ("read", "/a/b/c"), ("read", "/d"), ("write", "/d")]
    sandbox = sandbox_with({"sandbox": {"read": ["/a/x", "/e"]}}, [RequiredPath(*each) for each in given])
    assert sandbox == {"read": ["/e", "/a"], "write": ["/a/b/c", "/d"]}


def test_a_row_of_a_list_is_left_to_the_user() -> None:
    """A wrong place of the file could be changed."""
    row = {"id": "s", "command": "cat"}
    origin = Origin(Path("/x"), "servers[0]", Standing.NAMED, row, "/servers/0")
    with pytest.raises(EditError):
        edited(json.dumps({"servers": [row]}), origin, {"read": ["/b"]})


SITUATIONS: list[tuple[str, list[str], dict[str, str], dict[str, object]]] = [
    ("a folder in an argument", ["{home}/notes"], {}, {"read": ["{home}/notes"]}),
    ("a folder of an option that stores", ["--storage-path", "{home}/papers"], {}, {"write": ["{home}/papers"]}),
    ("a folder that is not there, in one that is hidden", ["--db", "{home}/data/new"], {}, {"write": ["{home}/data"]}),
    ("a folder to be created in the home", ["--storage-path", "{home}/later"], {}, {"write": ["{home}/later"]}),
    (
        "a file to be created in one",
        [],
        {"MEMORY_FILE_PATH": "{home}/notes/new/m.json"},
        {"write": ["{home}/notes/new"]},
    ),
    ("a folder to be created among our files", ["--out-dir", "{state}/new"], {}, {}),
    ("a folder to be created among keys", ["--out-dir", "{home}/.ssh/new"], {}, {}),
    ("a home to be created", ["--out-dir", "/home/qd-nobody-s"], {}, {}),
    ("a file in an argument", ["{home}/notes/a.txt"], {}, {"read": ["{home}/notes/a.txt"]}),
    ("a folder in a variable", [], {"GIT_BASE_DIR": "{home}/repo"}, {"read": ["{home}/repo"]}),
    ("a store in a variable", [], {"MEMORY_FILE_PATH": "{home}/data/m.jsonl"}, {"write": ["{home}/data"]}),
    (
        "a hidden file in ~/.config",
        ["--config", "{home}/.config/app/c.toml"],
        {},
        {"read": ["{home}/.config/app/c.toml"]},
    ),
    ("a dotfile", ["{home}/.apprc"], {}, {"read": ["{home}/.apprc"]}),
    ("a git repository", ["--repository", "{home}/repo"], {}, {"read": ["{home}/repo"]}),
    ("a script in a checkout", ["{home}/repo/src/s.py"], {}, {"read": ["{home}/repo"]}),
    (
        "a script of an installed package",
        ["{home}/repo/node_modules/a/dist/i.js"],
        {},
        {"read": ["{home}/repo/node_modules"]},
    ),
    ("the home itself", ["{home}"], {}, {}),
    ("a parent of the home", ["{home}/.."], {}, {}),
    ("another user's home", ["/home/qd-nobody-s"], {}, {}),
    ("our state", ["{state}"], {}, {}),
    ("a folder in our state", ["{state}/s"], {}, {}),
    ("our configuration", ["{home}/.config/quarterdeck/mcp.json"], {}, {}),
    ("a parent of our configuration", ["{home}/.config"], {}, {}),
    ("a file in the home that is written beside", ["--db", "{home}/x.db"], {}, {}),
    ("a folder with a key in it", ["{home}/keys"], {}, {}),
    ("a socket", ["{home}/s.sock"], {}, {}),
]
"""Rows as people write them for public servers, and what `allow` gives each; nothing where the message says why."""


@pytest.mark.parametrize(("what", "args", "env", "given"), SITUATIONS, ids=[each[0] for each in SITUATIONS])
def test_every_hint_works_when_it_is_followed(
    home: Path, what: str, args: list[str], env: dict[str, str], given: dict[str, list[str]]
) -> None:
    """A user would be sent to `allow`, which refuses, or to grant a home or a place of ours."""
    for folder in ("notes", "papers", "repo/.git", "repo/src", "repo/node_modules/a/dist", ".config/app", "keys/ssh"):
        (home / folder).mkdir(parents=True)
    (home / ".config/quarterdeck").mkdir()
    (home / ".ssh").symlink_to(home / "keys/ssh")
    files = ("notes/a.txt", "repo/src/s.py", "repo/node_modules/a/package.json", "repo/node_modules/a/dist/i.js")
    for file in (*files, ".config/app/c.toml", ".config/quarterdeck/mcp.json", ".apprc", "x.db", "data/m.jsonl"):
        (home / file).touch()
    os.mkfifo(home / "s.sock")
    (state_dir() / "s").mkdir(parents=True)

    def filled(text: str) -> str:
        return text.format(home=home, state=state_dir())

    row = config(*map(filled, args), env={name: filled(value) for name, value in env.items()})
    needs, said = missing(row, os.environ)
    written = {key: list(map(filled, paths)) for key, paths in given.items()}
    assert sandbox_with({}, needs) == written, said
    start = refused_start(row)
    if needs:
        assert not start or 'add "' in start, "the message and `allow` agree"
        for need in needs:
            assert need.is_new is not Path(need.path).exists()
            if need.is_new:
                Path(need.path).mkdir(parents=True)
        row = row.model_copy(update={"sandbox": widened(row, needs, os.environ)})
        assert missing(row, os.environ) == ([], [])
        assert refused_start(row) == ""
    elif start:
        assert said, "`allow` says why"
        assert (NOTHING_TO_ADD in start) or "acts outside" in start
        assert "quarterdeck allow" not in (find_remedy("sandbox_refused", start) or "") or "acts outside" in start


def refused_start(row: StdioServerConfig) -> str:
    """Why this row is refused before it starts; empty where it is not."""
    with tempfile.TemporaryDirectory() as base:
        places = Places(Path(base, "home"), Path(base, "tmp"), Path(os.environ["HOME"]), (str(state_dir()),))
        for folder in (places.home, places.tmp):
            folder.mkdir()
        plan = plan_launch(row.command, row.args, {"PATH": "/usr/bin:/bin", **row.env}, str(places.home))
        policy = row.sandbox.values
        program = resolve_program(plan, places.user_home, os.environ)
        try:
            view = build_view(policy, plan, program, places, os.environ, nests_safely=True, can_close=True)
            require_visible(view, plan, PathRules.of(policy, places))
        except LaunchError as error:
            return str(error)
    return ""
