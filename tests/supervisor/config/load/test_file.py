"""A configuration file gives servers, broken rows and warnings, or one clear error."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config.places import use_places
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck.config.load.file import MAX_CONFIG_BYTES, ConfigFileError, LoadedConfig, load_config_file
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.load.project import ProjectBounds
from quarterdeck.config.places.paths import runtime_dir
from quarterdeck.config.secrets.store import SecretError, SecretStore
from quarterdeck.config.settings import Settings
from quarterdeck_protocol.configs import (
    SseServerConfig,
    StartMode,
    StdioServerConfig,
    StreamableHttpServerConfig,
    TrustMode,
)
from quarterdeck_protocol.names import is_server_id

ENVIRON = {"HOME": "/home/u", "TOKEN": "s3cret"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


def load(folder: Path, document: object) -> LoadedConfig:
    path = folder / "mcp.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return load_config_file(path, ENVIRON)


def ids(loaded: LoadedConfig) -> list[str]:
    return [server.id for server in loaded.servers]


def reasons(folder: Path, loaded: LoadedConfig) -> list[str]:
    prefix = f"{folder / 'mcp.json'}: "
    assert all(row.message.startswith(prefix) for row in loaded.broken)
    return [row.message.removeprefix(prefix) for row in loaded.broken]


def warnings(folder: Path, loaded: LoadedConfig) -> list[str]:
    prefix = f"{folder / 'mcp.json'}: "
    assert all(line.startswith(prefix) for line in loaded.warnings)
    return [line.removeprefix(prefix) for line in loaded.warnings]


A = {"command": "c"}
B = {"url": "http://h"}
D = {"type": "http", "url": "http://h"}


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"a": A, "b": B, "d": D}},
        {"servers": {"a": {"type": "stdio", **A}, "b": B, "d": D}},
        {"servers": [{"id": "a", **A}, {"name": "b", **B}, {"id": "d", **D}]},
        {"mcpServers": {"a": A}, "servers": [{"id": "b", **B}, {"id": "d", **D}]},
        {"$schema": "x", "mcpServers": [{"id": "a", **A}, {"id": "b", **B}, {"id": "d", **D}]},
    ],
)
def test_every_shape_gives_the_same_servers_in_its_order(folder: Path, document: object) -> None:
    """A file of one client would start other servers than that of the next."""
    assert load(folder, document) == LoadedConfig(
        servers=(
            StdioServerConfig(id="a", command="c"),
            SseServerConfig(id="b", url="http://h"),
            StreamableHttpServerConfig(id="d", url="http://h"),
        )
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbf", "the file is empty"),
        (b'{"mcpServers": {\n  "a": {"command": "c",,}\n}}', "line 2, column"),
        (b'{"mcpServers": {\n  # mine\n}}', "line 2, column 3: a comment does not begin with #"),
        (b'{"mcpServers": {\n  /* mine\n}}', "line 2, column 3: the comment is not closed"),
        (b'{"mcpServers": ' + b"[" * 100_000, "nested deeper than 64 levels"),
        (b" " * MAX_CONFIG_BYTES + b"{}", "is larger than 4194304 bytes"),
        (b"[]", "expected an object, as in {"),
        (b"null", "expected an object, as in {"),
        (b"{}", "has neither 'mcpServers' nor 'servers'"),
        (b'{"mcpServer": {}}', "has neither 'mcpServers' nor 'servers': did you mean 'mcpServer'?"),
        (b'{"mcpServers": null}', "mcpServers: expected an object or an array of servers"),
        (b'{"servers": "a"}', "servers: expected an object or an array of servers"),
        (b'{"servers": {}, "servers": {}}', "the key 'servers' appears more than once"),
    ],
)
def test_a_file_of_which_nothing_can_be_used_is_one_error(folder: Path, content: bytes, message: str) -> None:
    """A user would see no servers and no reason."""
    with pytest.raises(ConfigFileError) as caught:
        load(folder, content)
    assert caught.value.message.startswith(message)
    assert caught.value.path == folder / "mcp.json"
    assert str(caught.value) == f"{folder / 'mcp.json'}: {caught.value.message}"
    assert "\n" not in caught.value.message


def test_comments_and_trailing_commas_are_read_as_editors_write_them(folder: Path) -> None:
    """A file that VS Code is happy with would be refused, and its errors point to other lines."""
    text = b"""{
      // what I use
      "mcpServers": {
        "a": {"command": "c", "args": ["// no comment", "/* nor this */",],}, /* the
        second */
        "b": {"comand": "c"},
      },
    }"""
    loaded = load(folder, text)
    [config] = loaded.servers
    assert getattr(config, "args", ()) == ("// no comment", "/* nor this */")
    [row] = loaded.broken
    assert "did you mean 'command'?" in row.message


def test_a_file_that_cannot_be_read_is_an_error(folder: Path) -> None:
    """A mistyped path would give an empty deck."""
    with pytest.raises(ConfigFileError, match="cannot be read: No such file or directory"):
        load_config_file(folder / "missing.json", ENVIRON)
    with pytest.raises(ConfigFileError, match="is not a regular file"):
        load_config_file(folder, ENVIRON)


def test_paths_of_a_file_that_is_named_through_its_neighbour_are_the_same(folder: Path) -> None:
    """`-c ../project/mcp.json` would name a folder that no sandbox shows, and the server be refused."""
    (folder / "beside").mkdir(exist_ok=True)
    row = {"command": "c", "args": ["${workspaceFolder}/a"], "cwd": ".", "sandbox": {"read": ["."]}}
    plain = load(folder, {"mcpServers": {"a": row}})
    named = load_config_file(folder / "beside" / ".." / "mcp.json", ENVIRON)
    assert named.servers == plain.servers
    (folder / "beside").rmdir()


def test_a_broken_row_is_kept_beside_the_others(folder: Path) -> None:
    """One mistake would cost a user every server, or the broken one would vanish without a word."""
    rows = {
        "good": {"command": "c"},
        "wrong": {"command": "c", "args": ["a", 5]},
        "unset": {"command": "c", "env": {"A": "${GONE}"}},
        "none": None,
        "last": {"command": "c"},
    }
    loaded = load(folder, {"mcpServers": rows})
    assert ids(loaded) == ["good", "last"]
    assert [(row.id, row.code) for row in loaded.broken] == [
        ("wrong", "config_invalid"),
        ("unset", "unset_variable"),
        ("mcpServers.none", "config_invalid"),
    ]
    assert reasons(folder, loaded) == [
        "mcpServers.wrong.args[1]: expected a string, got 5",
        "mcpServers.unset.env.A: the variable 'GONE' is not set",
        "mcpServers.none: expected an object",
    ]
    assert all(row.remedy for row in loaded.broken)


def test_a_row_that_is_switched_off_is_not_there(folder: Path) -> None:
    """A server that a user switched off would start, or its mistakes would be held against him."""
    rows = {"a": {"command": "c", "disabled": True}, "A": {"bad": 1, "enabled": False}, "b": {"command": "c"}}
    assert load(folder, {"mcpServers": rows}) == LoadedConfig(servers=(StdioServerConfig(id="b", command="c"),))


def test_a_name_that_is_no_id_is_mapped_and_both_are_shown(folder: Path) -> None:
    """A user would look for a server by a name that does not exist."""
    called = {"my files (local)": "my-files-local", "文件": "server-39932f", "ok-1": "ok-1"}
    loaded = load(folder, {"mcpServers": {name: {"command": "c"} for name in called}})
    assert ids(loaded) == list(called.values())
    assert warnings(folder, loaded) == [
        f"mcpServers['{name}']: '{name}' is not a legal server id: the server is called '{server}'"
        for name, server in list(called.items())[:2]
    ]


@pytest.mark.parametrize(
    ("content", "broken", "reason"),
    [
        (
            b'{"mcpServers": {"my fs": {"command": "c"}, "my.fs": {"command": "d"}}}',
            "mcpServers['my.fs']",
            "its id would be 'my-fs', as that of mcpServers['my fs']: rename one",
        ),
        (
            b'{"mcpServers": {"my-fs": {"command": "c"}}, "servers": [{"id": "my-fs", "command": "d"}]}',
            "servers[0]",
            "its id would be 'my-fs', as that of mcpServers.my-fs: rename one",
        ),
        (
            b'{"mcpServers": {"my-fs": {"command": "c"}, "my-fs": {"command": "d"}}}',
            "mcpServers.my-fs#2",
            "the key 'my-fs' appears more than once",
        ),
        (
            b'{"servers": [{"id": "my-fs", "command": "c"}, {"id": "my fs"}]}',
            "servers[1]",
            "its id would be 'my-fs', as that of servers[0]: rename one",
        ),
    ],
)
def test_a_second_server_of_one_id_is_an_error_for_the_later(
    folder: Path, content: bytes, broken: str, reason: str
) -> None:
    """One of two servers would silently take the other's place."""
    loaded = load(folder, content)
    assert [(server.id, getattr(server, "command", None)) for server in loaded.servers] == [("my-fs", "c")]
    assert [row.id for row in loaded.broken] == [broken]
    assert reasons(folder, loaded) == [f"{broken}: {reason}"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"mcpServers": {"a": {"command": "c", "id": "b"}}}, "mcpServers.a.id: the key names the server already"),
        ({"servers": [{"command": "c"}]}, "servers[0]: needs an 'id', which is a string"),
        ({"servers": [{"id": 5, "command": "c"}]}, "servers[0]: needs an 'id', which is a string"),
        ({"servers": [{"id": "a", "command": "c", "disabled": "no"}]}, "servers[0].disabled: expected true or false"),
        ({"servers": ["a"]}, "servers[0]: expected an object"),
    ],
)
def test_a_row_without_a_usable_name_is_broken(folder: Path, document: object, reason: str) -> None:
    """A server could not be spoken about by any command."""
    loaded = load(folder, document)
    assert loaded.servers == ()
    assert [line.startswith(reason) for line in reasons(folder, loaded)] == [True]


def test_what_is_set_aside_is_said_once(folder: Path) -> None:
    """A user would never learn that a key of another client does nothing here."""
    rows = [{"name": "a", "command": "c"}, {"id": "b", "name": "B", "command": "c", "timeout": 5}]
    loaded = load(folder, {"inputs": [], "servers": rows, "globalShortcut": ""})
    assert ids(loaded) == ["a", "b"]
    assert warnings(folder, loaded) == ["ignored: 'inputs', 'globalShortcut'", "servers[1]: ignored: 'name', 'timeout'"]


@pytest.mark.parametrize(
    ("below", "workspace"), [("project/mcp.json", "project"), ("project/.vscode/mcp.json", "project")]
)
def test_the_workspace_is_the_folder_that_a_client_would_take(tmp_path: Path, below: str, workspace: str) -> None:
    """An editor's file would point its servers at the editor's own folder."""
    path = tmp_path / below
    path.parent.mkdir(parents=True)
    path.write_text('{"servers": {"a": {"command": "c", "args": ["${workspaceFolder}", "${userHome}"]}}}')
    args = (str(tmp_path / workspace), "/home/u")
    assert load_config_file(path, ENVIRON).servers == (StdioServerConfig(id="a", command="c", args=args),)
    chosen = load_config_file(path, ENVIRON, workspace=Path("/w")).servers
    assert chosen == (StdioServerConfig(id="a", command="c", args=("/w", "/home/u")),)


@pytest.mark.parametrize("where", ["home", ".", "home/.config", "home/.config/quarterdeck", "state", "state/s", "run"])
def test_no_home_and_no_place_of_ours_is_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A hint would propose to grant the state directory, from which the HTTP deck is served."""
    use_places(monkeypatch, tmp_path)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(tmp_path / "run"))
    for folder in ("home/.config/quarterdeck", "home/project", "state/s", "run"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    path = tmp_path / "mcp.json"
    path.write_text('{"servers": {"a": {"command": "c", "args": ["${workspaceFolder}"]}}}')
    environ = {"HOME": str(tmp_path / "home")}
    place = runtime_dir() if where == "run" else tmp_path / where  # a long one is replaced
    loaded = load_config_file(path, environ, workspace=place)
    assert [(row.id, row.code) for row in loaded.broken] == [("a", "unset_variable")]
    [server] = load_config_file(path, environ, workspace=tmp_path / "home/project").servers
    assert isinstance(server, StdioServerConfig)
    assert server.args == (str(tmp_path / "home/project"),)


def test_loading_says_nothing_aloud(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Standard output may be the channel of the protocol; a log could keep a secret."""
    (folder / ".env").write_text("no assignment\n")
    rows = {
        "a b": {"command": "${TOKEN}", "timeout": 1},
        "c": {"command": "d", "envFile": ".env"},
        "e": {"url": "${TOKEN}"},
    }
    loaded = load(folder, {"mcpServers": rows})
    assert len(loaded.broken) == 2
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert "s3cret" not in f"{loaded.broken} {loaded.warnings}"


@given(names=st.lists(st.text(max_size=40), unique=True, max_size=8))
def test_any_names_give_legal_and_different_ids_every_time(folder: Path, names: list[str]) -> None:
    """A tool's qualified name could not be split, or a server be called differently after a restart."""
    document = {"mcpServers": {name: {"command": "c"} for name in names}}
    loaded = load(folder, document)
    assert all(is_server_id(server) for server in ids(loaded))
    assert len(set(ids(loaded))) == len(loaded.servers)
    assert len(loaded.servers) + len(loaded.broken) == len(names)
    assert load(folder, document) == loaded


def test_each_server_has_the_place_where_it_is_written_as_it_is_written(folder: Path) -> None:
    """An approval would be for the value of the moment, and would show a secret."""
    row = {"command": "c", "args": ["${TOKEN}"]}
    loaded = load(folder, {"mcpServers": {"my fs": row, "half": {"command": "${GONE}"}, "off": {"disabled": True}}})
    path = folder / "mcp.json"
    place = "mcpServers['my fs']"
    assert loaded.origins == {
        "my-fs": Origin(path, place, Standing.NAMED, row, "/mcpServers/my fs"),
        "half": Origin(path, "mcpServers.half", Standing.NAMED, {"command": "${GONE}"}, "/mcpServers/half"),
    }
    assert loaded.claimed == {"my-fs", "half", "off"}
    assert loaded.secrets == {"s3cret"}
    assert "s3cret" not in repr(loaded.origins)


def test_the_file_says_the_trust_of_rows_that_do_not_say_it(folder: Path) -> None:
    """A user would have to repeat it in each row, and miss one."""
    rows = {"a": {"command": "c"}, "b": {"command": "c", "trust": "open"}}
    assert [server.trust for server in load(folder, {"servers": rows}).servers] == [TrustMode.BASELINE, TrustMode.OPEN]
    loaded = load(folder, {"servers": rows, "trust": "strict"})
    assert [server.trust for server in loaded.servers] == [TrustMode.STRICT, TrustMode.OPEN]


def test_the_file_says_when_rows_start_that_do_not_say_it(folder: Path) -> None:
    """A user with forty servers would have to say forty times that they may sleep."""
    rows = {"a": {"command": "c"}, "b": {"command": "c", "start": "at_once", "idle_stop_s": 60}}
    assert [server.start for server in load(folder, {"servers": rows}).servers] == [None, StartMode.AT_ONCE]
    loaded = load(folder, {"servers": rows, "start": "on_call"})
    assert [(server.start, server.idle_stop_s) for server in loaded.servers] == [
        (StartMode.ON_CALL, None),
        (StartMode.AT_ONCE, 60.0),
    ]
    assert load_project(folder, {"servers": rows, "start": "on_call"}).servers[0].start is StartMode.ON_CALL


def test_a_misspelt_start_is_told_and_the_rows_run_on(folder: Path) -> None:
    """Servers would be gone for a word that only says when they start, or the user wonder why they run."""
    loaded = load(folder, {"servers": {"a": {"command": "c"}}, "start": "oncall"})
    assert [server.start for server in loaded.servers] == [None]
    assert [str(problem) for problem in loaded.top_problems] == ["start: must be 'at_once', 'on_call'"]


@pytest.mark.parametrize("row", [{"start": "later"}, {"idle_stop_s": 0}, {"idle_stop_s": "soon"}])
def test_a_row_that_says_nonsense_of_its_sleep_is_broken(folder: Path, row: dict[str, object]) -> None:
    """A server would run for ever, or stop at once, and its user not learn why."""
    loaded = load(folder, {"servers": {"a": {"command": "c", **row}}})
    assert loaded.servers == ()
    [broken] = loaded.broken
    assert next(iter(row)) in broken.message


def test_a_misspelt_trust_stops_the_rows_that_it_was_for(folder: Path) -> None:
    """Servers that a user wanted strict would run as ever."""
    rows = {"a": {"command": "c"}, "b": {"command": "c", "trust": "open"}}
    loaded = load(folder, {"servers": rows, "trust": "strct", "allow_project_env": "TZ"})
    assert ids(loaded) == ["b"]
    assert reasons(folder, loaded) == ["trust: must be 'baseline', 'strict', 'open'"]
    assert [problem.location for problem in loaded.top_problems] == ["trust", "allow_project_env"]
    assert loaded.allowed_env == frozenset()


def test_a_broken_row_tells_everything_that_is_wrong_with_it(folder: Path) -> None:
    """A user would correct one mistake after the other, which a wrong kind or switch would hide."""
    row = {"command": "c", "args": [5], "evn": {}, "cwd": "${GONE}", "envFile": "gone", "sandbox": {"raed": []}}
    odd = {"command": "c", "kind": "nonsense", "disabled": "no", "args": 3}
    remote = {"type": "nonsense", "url": "example.com", "headers": 3}
    broken, *others = load(folder, {"mcpServers": {"a": row, "b": odd, "c": remote}}).broken
    assert [str(problem).removeprefix("mcpServers.a") for problem in broken.problems] == [
        ": unknown key 'evn': did you mean 'env'?",
        ".cwd: the variable 'GONE' is not set",
        ".envFile: 'gone' cannot be read: No such file or directory",
        ".args[0]: expected a string, got 5",
        ".sandbox: unknown key 'raed': did you mean 'read'?",
    ]
    assert broken.message.endswith(str(broken.problems[0]))
    assert [[problem.location.rpartition(".")[2] for problem in each.problems] for each in others] == [
        ["disabled", "kind", "args"],
        ["type", "url", "headers"],
    ]


@ROOT_ONLY
def test_root_takes_neither_a_row_nor_a_value_from_another_users_file(folder: Path) -> None:
    """Any user could write what root's `serve` starts, or which code it loads."""
    rows = {"a": {"command": "c", "envFile": "env"}, "b": {"command": "c", "args": ["${file:key}"]}}
    for name, mode in (("env", 0o666), ("key", 0o600)):
        (folder / name).write_text("A=1")
        (folder / name).chmod(mode)
    os.chown(folder / "key", 4242, -1)
    loaded = load(folder, {"mcpServers": rows})
    assert [row.id for row in loaded.broken] == ["a", "b"]
    assert all("is not read as root: " in row.message for row in loaded.broken)
    os.chown(folder / "mcp.json", 4242, -1)
    with pytest.raises(ConfigFileError, match="run `chown root"):
        load(folder, {"mcpServers": rows})
    # A project's file is a stranger's in any case, and waits for a person.
    assert load_config_file(folder / "mcp.json", ENVIRON, standing=Standing.PROJECT, bounds=ProjectBounds(None))


def load_project(folder: Path, document: object, **bounds: object) -> LoadedConfig:
    path = folder / "mcp.json"
    path.write_text(json.dumps(document))
    limits = ProjectBounds(str(folder.resolve()), **bounds)
    return load_config_file(path, ENVIRON, standing=Standing.PROJECT, bounds=limits)


def test_a_projects_file_says_nothing_of_native_tools_of_variables_or_against_caution(folder: Path) -> None:
    """A repository would open the sandbox of our own shell, or approve itself."""
    document = {
        "mcpServers": {"a": {"command": "c", "trust": "open"}, "b": {"command": "c", "trust": "strict"}},
        "native": {"sandbox": {"network": "full"}},
        "allow_project_env": ["TOKEN"],
        "trust": "open",
    }
    loaded = load_project(folder, document)
    assert [server.trust for server in loaded.servers] == [TrustMode.BASELINE, TrustMode.STRICT]
    assert (loaded.native, loaded.allowed_env, loaded.trust) == (None, frozenset(), None)
    assert warnings(folder, loaded) == [
        "mcpServers.a.trust: ignored: a project's file may say only 'strict'",
        "native: ignored: a project's file may not say this",
        "allow_project_env: ignored: a project's file may not say this",
        "trust: ignored: a project's file may say only 'strict'",
    ]
    assert load_project(folder, {"servers": {"a": A}, "trust": "strict"}).servers[0].trust == TrustMode.STRICT
    assert load_project(folder, {"servers": {"a": A}}, trust=TrustMode.STRICT).servers[0].trust == TrustMode.STRICT


def test_a_projects_row_that_wants_too_much_is_broken_with_the_reason(folder: Path) -> None:
    """It would start with less than it says, and fail in a way that nobody understands."""
    rows = {
        "a": {"command": "c", "sandbox": {"read": ["~/.ssh", "src"]}},
        "b": {"command": "c", "env": {"T": "${TOKEN}"}},
        "c": {"command": "c", "sandbox": {"read": ["src"]}},
    }
    loaded = load_project(folder, {"mcpServers": rows})
    assert ids(loaded) == ["c"]
    assert [reason.split(": ")[0] for reason in reasons(folder, loaded)] == [
        "mcpServers.a.sandbox.read[0]",
        "mcpServers.b.env.T",
    ]
    assert all(origin.standing is Standing.PROJECT for origin in loaded.origins.values())
    assert ids(load_project(folder, {"mcpServers": rows}, allowed_env=frozenset({"TOKEN"}))) == ["b", "c"]


TEXT = st.text(st.characters(exclude_categories=()), max_size=10)
"""Halves of surrogate pairs included: JSON can spell them."""

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["command", "url", "args", "env", "id", "name", "type", "disabled"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(
    document=JSON_VALUES
    | st.fixed_dictionaries({"mcpServers": JSON_VALUES})
    | st.fixed_dictionaries({"servers": JSON_VALUES})
)
def test_any_json_loads_or_is_refused(folder: Path, document: object) -> None:
    """A stray exception would end the program with a traceback."""
    with suppress(ConfigFileError):
        assert isinstance(load(folder, document), LoadedConfig)


@given(content=st.binary(max_size=60))
def test_any_bytes_load_or_are_refused(folder: Path, content: bytes) -> None:
    """A file that is no text at all would end the program with a traceback."""
    with suppress(ConfigFileError):
        assert isinstance(load(folder, content), LoadedConfig)


def test_a_row_of_client_scope_has_no_secret_before_it_is_known_whose(tmp_path: Path) -> None:
    """A process that is started in any other way would have the owner's secret, and work for somebody else."""
    asked: list[str] = []
    path = tmp_path / "mcp.json"
    row = {"command": "c", "scope": "client", "env": {"A": "x-${keyring:KEY}", "B": "${TOKEN}"}}
    path.write_text(json.dumps({"mcpServers": {"a": row}}))
    loaded = load_config_file(path, ENVIRON, keyring=lambda name: asked.append(name) or "shared")
    form = loaded.origins["a"].for_client
    assert form is not None
    assert (asked, form.secrets, form.template) == ([], ("KEY",), loaded.servers[0])
    assert loaded.servers[0].env == {"A": "x-${keyring:KEY}", "B": "s3cret"}
    built, secrets = form.build({"KEY": "annas"}.__getitem__)
    assert built == loaded.servers[0].model_copy(update={"env": {"A": "x-annas", "B": "s3cret"}})
    assert secrets == {"annas", "s3cret"}
    with pytest.raises(RowError, match="NUL"):
        form.build({"KEY": "a\0b"}.__getitem__)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"scope": "${SCOPE}"}, "scope: write 'client' itself, and no variable"),
        (
            {"scope": "client", "arguments": {"t": {"token": "${keyring:KEY}"}}},
            "arguments.t.token: what all clients share may not use a secret that each has for itself",
        ),
        ({"scope": "client", "env": {"A": "${keyring:../KEY}"}}, "env.A: '../KEY' cannot be a secret's name"),
    ],
)
def test_a_row_whose_secrets_are_nobodys_is_broken(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    """All clients would be given the owner's secret in a row that promises each its own."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "c", "env": {"A": "${keyring:KEY}"}, **row}}}))
    loaded = load_config_file(path, {**ENVIRON, "SCOPE": "client"}, keyring=lambda _: "shared")
    assert (loaded.servers, [reason in row.message for row in loaded.broken]) == ((), [True])


def test_a_command_that_starts_servers_by_itself_has_the_owners_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check or a test of such a row would start its server with a reference in place of a secret."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "c", "scope": "client", "env": {"A": "${keyring:KEY}"}}}}')
    settings = Settings.load([path], ENVIRON)
    with pytest.raises(SecretError, match="quarterdeck secret set KEY"):
        settings.for_owner()
    SecretStore().set("KEY", "owners", in_file=True)
    assert settings.for_owner().servers[0].env == {"A": "owners"}
    assert "owners" in settings.for_owner().secrets
    assert settings.servers[0].env == {"A": "${keyring:KEY}"}
    changed = settings.servers[0].model_copy(update={"command": "another program's"})
    assert settings.for_client(changed, "") == (changed, frozenset())
