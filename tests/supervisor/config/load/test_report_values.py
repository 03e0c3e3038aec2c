"""Every value with the place it comes from, and no secret among them."""

from pathlib import Path

import pytest
from support.config.places import use_places, write_document

from quarterdeck.config.load.merge import load_found, load_named, merge_files
from quarterdeck.config.load.report import DEFAULT, ConfigValues, ServerValues, Value, value_origins
from quarterdeck.config.secrets.masking import MASK
from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig


def tour_of(*paths: Path) -> ConfigValues:
    files = load_named(paths, {"TOKEN": "s3cret"})
    return value_origins(files, merge_files(files))


def by_key(values: tuple[Value, ...]) -> dict[str, tuple[object, str, str]]:
    found = {value.key: (value.value, value.source, value.pointer) for value in values}
    assert len(found) == len(values)
    return found


def only(path: Path) -> ServerValues:
    [server] = tour_of(path).servers
    return server


def test_what_is_written_has_its_place_and_the_rest_is_marked_as_default(tmp_path: Path) -> None:
    """A user could not tell what they said from what we assume."""
    row = {"type": "stdio", "command": "${TOKEN}", "tools": {"deny": ["x"]}, "cwd": "sub", "call_timeout_s": 5}
    path = write_document(tmp_path / "a.json", mcpServers={"a/b": row}, trust="strict", start="on_call")
    server = only(path)
    place = "/mcpServers/a~1b"
    assert (server.id, server.standing, server.file, server.pointer) == ("a-b", "named", str(path), place)
    values = by_key(server.values)
    assert values["kind"] == ("stdio", str(path), f"{place}/type")
    assert values["command"] == ("${TOKEN}", str(path), f"{place}/command")
    assert values["tools.deny"] == (["x"], str(path), f"{place}/tools/deny")
    assert values["tools.allow"] == (["*"], DEFAULT, "")
    assert values["cwd"] == ("sub", str(path), f"{place}/cwd")
    assert values["trust"] == ("strict", str(path), "/trust")
    assert values["start"] == ("on_call", str(path), "/start")
    assert values["list_timeout_s"] == (30.0, DEFAULT, "")
    assert values["env"] == ({}, DEFAULT, "")
    assert {key.split(".")[0] for key in values} == {*StdioServerConfig.model_fields} - {"id"}


def test_what_a_preset_says_is_told_as_the_presets(tmp_path: Path) -> None:
    """A user would look for the line that says `strict` of the network, and there is none."""
    sandbox = {"preset": "strict", "minimum": None, "limits": {"processes": 7, "cpu_s": None}}
    path = write_document(tmp_path / "a.json", servers=[{"id": "a", "command": "c", "sandbox": sandbox}])
    values = by_key(only(path).values)
    assert values["sandbox.network"] == ("none", "preset strict", "")
    assert values["sandbox.minimum"] == ("bubblewrap", "preset strict", "")
    assert values["sandbox.limits.open_files"] == (1024, "preset strict", "")
    assert values["sandbox.limits.processes"] == (7, str(path), "/servers/0/sandbox/limits/processes")
    assert values["sandbox.limits.cpu_s"] == (None, str(path), "/servers/0/sandbox/limits/cpu_s")
    assert values["sandbox.limits.wall_s"] == (None, DEFAULT, "")
    assert values["sandbox.grants"] == ([], DEFAULT, "")


def test_secrets_are_masked_wherever_they_are_written(tmp_path: Path) -> None:
    """`config show` in a bug report would publish them."""
    (tmp_path / ".env").write_text("FROM_FILE=s3cret")
    stdio = {"command": "c", "args": ["--token", "s3cret"], "env": {"A": "s3cret", "B": "x${TOKEN}"}, "envFile": ".env"}
    remote = {"type": "sse", "url": "https://u:s3cret@h/?t=s3cret", "headers": {"X": "Bearer ${TOKEN}"}}
    misplaced = {"comand": "s3cret", "command": "c", "env": ["s3cret"], "sandbox": {"env": {"T": "s3cret"}}}
    other = {"command": "c", "args": "--token s3cret", "inherit_env": ["A=s3cret"], "headers": {"X": "s3cret"}}
    path = write_document(tmp_path / "a.json", mcpServers={"a": stdio, "r": remote, "m": misplaced, "o": other})
    whole = tour_of(path)
    assert "s3cret" not in repr(whole)
    servers = {server.id: by_key(server.values) for server in whole.servers}
    assert servers["a"]["env.A"] == (MASK, str(path), "/mcpServers/a/env/A")
    assert servers["a"]["env.B"] == (f"{MASK}${{TOKEN}}", str(path), "/mcpServers/a/env/B")
    assert servers["a"]["env.FROM_FILE"] == (MASK, str(path), "/mcpServers/a/envFile")
    assert servers["a"]["envFile"] == (".env", str(path), "/mcpServers/a/envFile")
    assert servers["r"]["headers.X"] == (f"{MASK}${{TOKEN}}", str(path), "/mcpServers/r/headers/X")
    assert servers["r"]["legacy_only"] == (True, str(path), "/mcpServers/r/type")
    assert {key.split(".")[0] for key in servers["r"]} == {*SseServerConfig.model_fields} - {"id"}


def test_a_server_that_cannot_be_started_shows_what_is_written_and_why(tmp_path: Path) -> None:
    """The very row that a user wants to see would be left out."""
    path = write_document(tmp_path / "a.json", mcpServers={"a": {"command": "c", "args": [5]}, "b": None})
    first, second = tour_of(path).servers
    assert first.problem.endswith("mcpServers.a.args[0]: expected a string, got 5")
    assert by_key(first.values) == {
        "command": ("c", str(path), "/mcpServers/a/command"),
        "args": ([5], str(path), "/mcpServers/a/args"),
    }
    assert (second.values, second.pointer) == ((), "/mcpServers/b")


def test_what_stands_beside_the_servers_has_its_file(tmp_path: Path) -> None:
    """A user could not tell which of two files tightens the native tools."""
    first = write_document(tmp_path / "a.json", native={"webfetch": {"allow": ["h:1"]}}, allow_project_env=["B", "A"])
    second = write_document(
        tmp_path / "b.json", native={"sandbox": {"network": "none"}, "webfetch": {}}, trust="open", max_result_tokens=9
    )
    values = by_key(tour_of(first, second).settings)
    assert values["native.webfetch.allow"] == (["h:1"], str(first), "/native/webfetch/allow")
    assert values["native.webfetch.proxy"] == (None, DEFAULT, "")
    assert values["native.sandbox.network"] == ("none", str(second), "/native/sandbox/network")
    assert values["trust"] == ("open", str(second), "/trust")
    assert values["max_result_tokens"] == (9, str(second), "/max_result_tokens")
    assert values["allow_project_env"] == (["A", "B"], str(first), "/allow_project_env")
    assert by_key(tour_of().settings) == {
        "trust": ("baseline", DEFAULT, ""),
        "start": (None, DEFAULT, ""),
        "allow_project_env": ([], DEFAULT, ""),
        "max_result_tokens": (None, DEFAULT, ""),
        "native.sandbox": (None, DEFAULT, ""),
        "native.webfetch": (None, DEFAULT, ""),
    }


def test_a_project_is_as_strict_as_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would wonder who made a repository's server wait for approval."""
    use_places(monkeypatch, tmp_path)
    write_document(tmp_path / "home/.config/quarterdeck/mcp.json", trust="strict")
    write_document(tmp_path / "project/.mcp.json", mcpServers={"a": {"command": "c"}})
    files = load_found(tmp_path / "project", {"HOME": str(tmp_path / "home")})
    [server] = value_origins(files, merge_files(files)).servers
    assert by_key(server.values)["trust"] == ("strict", "'trust' of a file of yours", "")
    assert server.standing == "project"
