"""What a row names and its sandbox hides, and the row with it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.config.places import use_places

from quarterdeck.config.allow_paths import edited, missing, sandbox_with, widened
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.load.text_edit import EditError
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.program.needed_paths import RequiredPath


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with a project and a database."""
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


def test_what_is_given_already_is_not_asked_for(home: Path) -> None:
    """A command that has nothing to do would change the file again and again."""
    row = config(home / "proj/src/server.py", home / "data/x.db", read=(str(home / "proj"),), write=(f"{home}/data",))
    assert missing(row, os.environ) == ([], [])


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


def test_a_row_of_a_list_is_left_to_the_user() -> None:
    """A wrong place of the file could be changed."""
    row = {"id": "s", "command": "cat"}
    origin = Origin(Path("/x"), "servers[0]", Standing.NAMED, row, "/servers/0")
    with pytest.raises(EditError):
        edited(json.dumps({"servers": [row]}), origin, {"read": ["/b"]})
