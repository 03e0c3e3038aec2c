"""A row of anyone's spelling becomes the right configuration, or says what is wrong with it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize

from quarterdeck.config.load.document import JsonObject, parse_document
from quarterdeck.config.load.problems import RowError, at
from quarterdeck.config.load.row import BuiltRow, examine_row, is_disabled
from quarterdeck.config.load.variables import Variables
from quarterdeck_protocol.configs import (
    RestartPolicy,
    ServerConfig,
    SseServerConfig,
    StdioServerConfig,
    StreamableHttpServerConfig,
    ToolFilter,
)
from quarterdeck_protocol.policy import Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import Grant, Preset

PLACE = "mcpServers.fs"
URL = "https://mcp.example/x"


def read(row: object) -> JsonObject:
    value = parse_document(row if isinstance(row, str) else json.dumps(row))
    assert isinstance(value, JsonObject)
    return value


def build(row: object, base: Path = Path("/etc/qd")) -> BuiltRow:
    places = Variables(
        environ={"TOKEN": "s3cret", "NUL": "a\0b", "T": "7"}, base=base, workspace=base, home=Path("/home/u")
    )
    built, problems = examine_row(read(row), "fs", PLACE, places)
    if built is None:
        first = problems[0]
        raise RowError(first.location, first.reason, first.code, first.nearest)
    return built


def stdio(**fields: object) -> ServerConfig:
    return StdioServerConfig.model_validate({"id": "fs", "command": "c", **fields})


def box(**sandbox: object) -> dict[str, object]:
    return {"command": "c", "sandbox": sandbox}


SPELLINGS: list[tuple[object, ServerConfig]] = [
    ({"command": "c"}, stdio()),
    ({"command": "c", "args": None, "env": None, "cwd": None, "url": None, "type": None}, stdio()),
    ({"type": "stdio", "command": "c", "args": ["a", ""]}, stdio(args=["a", ""])),
    ({"transport": "stdio", "type": "STDIO", "command": "c"}, stdio()),
    ({"kind": "stdio", "command": "c"}, stdio()),
    ({"id": "fs", "command": "c"}, stdio()),
    (
        {"command": "c", "env": {"S": "x", "I": 5, "F": 1.5, "T": True, "N": None, "E": ""}},
        stdio(env={"S": "x", "I": "5", "F": "1.5", "T": "true", "E": ""}),
    ),
    (
        {"command": "${TOKEN}", "args": ["-t", "${TOKEN}"], "env": {"A": "${TOKEN}", "B": "$${TOKEN}"}},
        stdio(command="s3cret", args=["-t", "s3cret"], env={"A": "s3cret", "B": "${TOKEN}"}),
    ),
    ({"command": "c", "cwd": "sub"}, stdio(cwd="/etc/qd/sub")),
    ({"command": "c", "cwd": "~/sub"}, stdio(cwd="/home/u/sub")),
    ({"command": "c", "cwd": "../sub"}, stdio(cwd="/etc/sub")),
    ({"command": "c", "cwd": "${workspaceFolder}"}, stdio(cwd="/etc/qd")),
    (
        {
            "command": "c",
            "inherit_env": ["A"],
            "restart": {"max_restarts": 1},
            "tools": {"deny": ["rm*"]},
            "call_timeout_s": "${T}",
            "max_result_bytes": 2048,
        },
        stdio(
            inherit_env=["A"],
            restart=RestartPolicy(max_restarts=1),
            tools=ToolFilter(deny=("rm*",)),
            call_timeout_s=7,
            max_result_bytes=2048,
        ),
    ),
    ({"command": "c", "sandbox": None}, stdio()),
    (box(preset=None, read=None, network=None), stdio()),
    (
        {
            "command": "c",
            "sandbox": {
                "preset": "strict",
                "read": ["sub", "~/docs", "~", "/abs/./x"],
                "write": ["${workspaceFolder}/out"],
                "hidden": ["${userHome}/docs/private"],
                "network": ["${H:-api.example}:443"],
                "environment": ["LANGUAGE"],
                "limits": {"memory_bytes": "1 GiB", "processes": "${T}", "cpu_s": None},
                "grants": ["git-config"],
            },
        },
        stdio(
            sandbox=SandboxPolicy(
                preset=Preset.STRICT,
                read=("/etc/qd/sub", "/home/u/docs", "/home/u", "/abs/x"),
                write=("/etc/qd/out",),
                hidden=("/home/u/docs/private",),
                network=("api.example:443",),
                environment=("LANGUAGE",),
                limits=Limits(memory_bytes=ByteSize(1 << 30), processes=7, cpu_s=None),
                grants=(Grant.GIT_CONFIG,),
            )
        ),
    ),
    ({"url": URL}, SseServerConfig(id="fs", url=URL)),
    ({"url": URL, "headers": None}, SseServerConfig(id="fs", url=URL)),
    (
        {"url": "${X:-http}://h/${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        SseServerConfig(id="fs", url="http://h/s3cret", headers={"Authorization": "Bearer s3cret"}),
    ),
    (
        {
            "url": URL,
            "proxy": "http://u:${TOKEN}@p:8080",
            "ca_file": "ca.pem",
            "client_cert": "~/c.pem",
            "client_key": "/k",
        },
        SseServerConfig(
            id="fs",
            url=URL,
            proxy="http://u:s3cret@p:8080",
            ca_file="/etc/qd/ca.pem",
            client_cert="/home/u/c.pem",
            client_key="/k",
        ),
    ),
    ({"type": "sse", "url": URL}, SseServerConfig(id="fs", url=URL, legacy_only=True)),
    ({"type": "sse", "url": URL, "legacy_only": False}, SseServerConfig(id="fs", url=URL)),
    ({"kind": "sse", "url": URL}, SseServerConfig(id="fs", url=URL)),
    ({"kind": "streamable_http", "url": URL}, StreamableHttpServerConfig(id="fs", url=URL)),
    *(
        ({key: spelling, "url": URL}, StreamableHttpServerConfig(id="fs", url=URL))
        for key in ("type", "transport")
        for spelling in ("http", "streamable-http", "streamable_http", "streamableHttp", "HTTP")
    ),
]


def test_each_spelling_gives_its_configuration() -> None:
    """A file that works in another client would do something else here."""
    for row, config in SPELLINGS:
        built = build(row)
        assert (built.config, built.ignored) == (config, ()), row


def test_other_clients_keys_and_keys_that_are_near_none_of_ours_are_ignored_and_named() -> None:
    """A file of another client would be refused for a description, or a user never learn that a key does nothing."""
    odd = ("alwaysAllow", "autoApprove", "timeout", "name", "gallery", "oauthScopes", "installed", "inputs", "version")
    foreign = {"description": "${MISSING}", "x-vendor": {"${NOPE}": 1}} | {key: ["x"] for key in odd}
    built = build({"command": "c", "disabled": False, "enabled": True, **foreign})
    assert (built.config, built.ignored) == (stdio(), tuple(foreign))


WRONG_ROWS: list[tuple[object, str]] = [
    ({"command": "c", "args": ["a", 5]}, ".args[1]: expected a string, got 5"),
    ({"command": "c", "args": "a b"}, ".args: expected an array, got a string"),
    ({"command": "c", "args": {}}, ".args: expected an array, got an object"),
    ({"command": ["c", "a"]}, ".command: expected a string, got an array"),
    ({"command": ""}, ".command: must not be empty"),
    ({"type": "stdio"}, ".command: is required"),
    ({"type": "http"}, ".url: is required"),
    ({"command": "c", "env": ["A=b"]}, ".env: expected an object, got an array"),
    ({"command": "c", "env": {"A": ["s3cret"]}}, ".env.A: expected a string, got an array"),
    ({"command": "c", "env": {"": "x"}}, ".env: '' cannot be a variable's name"),
    ({"command": "c", "env": {"A=B": "x"}}, ".env: 'A=B' cannot be a variable's name"),
    ({"command": "c", "cwd": 5}, ".cwd: expected a string, got 5"),
    *(({"url": url}, ".url: must begin with http:// or https://") for url in ("ftp://s3cret@h", "h.example/s3cret")),
    ({"url": "https://h/s3cret x"}, ".url: has a blank or a line end in it"),
    ({"url": "https://"}, ".url: names no host after https://"),
    ({"url": "https://h:99999/s3cret"}, ".url: has a wrong port or address"),
    ({"url": ""}, ".url: must not be empty"),
    ({"url": URL, "headers": {"X": 5}}, ".headers.X: expected a string, got a number"),
    ({"command": "c", "call_timeout_s": 0}, ".call_timeout_s: must be greater than 0"),
    ({"command": "c", "call_timeout_s": "soon"}, ".call_timeout_s: expected a number, got a string"),
    ({"command": "c", "call_timeout_s": True}, ".call_timeout_s: expected a number, got true"),
    ({"command": "c", "restart": {"max_restarts": True}}, ".restart.max_restarts: expected a number, got true"),
    ({"command": "c", "restart": {"max_restarts": 1.5}}, ".restart.max_restarts: expected a whole number, got 1.5"),
    ({"command": "c", "restart": 5}, ".restart: expected an object, got 5"),
    ({"command": "c", "tools": {"alow": []}}, ".tools: unknown key 'alow': did you mean 'allow'?"),
    ({"command": "c", "tools": {"allow": [None]}}, ".tools.allow[0]: expected a string, got null"),
    ({"url": URL, "legacy_only": "maybe"}, ".legacy_only: expected true or false, got a string"),
    ('{"command": "c", "call_timeout_s": NaN}', ".call_timeout_s: the number is out of range"),
    ('{"command": "c", "env": {"A": 1e999}}', ".env.A: the number is out of range"),
    ({"comand": "c"}, ": unknown key 'comand': did you mean 'command'?"),
    ({"command": "c", "arg": []}, ": unknown key 'arg': did you mean 'args'?"),
    ({"command": "c", "SandBox": {}}, ": unknown key 'SandBox': did you mean 'sandbox'?"),
    ({"command": "c", "callTimeoutS": 5}, ": unknown key 'callTimeoutS': did you mean 'call_timeout_s'?"),
    ({"command": "c", "disabeld": True}, ": unknown key 'disabeld': did you mean 'disabled'?"),
    ({"command": "c", "network": "none"}, ".network: belongs in 'sandbox'"),
    ({"command": "c", "minimum": "bubblewrap"}, ".minimum: belongs in 'sandbox'"),
    ({"command": "c", "sandbox": "none"}, ".sandbox: expected an object, got a string"),
    ({"command": "c", "sanbox": {}}, ": unknown key 'sanbox': did you mean 'sandbox'?"),
    (box(raed=[]), ".sandbox: unknown key 'raed': did you mean 'read'?"),
    (box(limits=5), ".sandbox.limits: expected an object, got 5"),
    (box(limits={"memory": 5}), ".sandbox.limits: unknown key 'memory': did you mean 'memory_bytes'?"),
    (
        box(limits={"memory_bytes": "many"}),
        '.sandbox.limits.memory_bytes: expected a size, as in 1048576 or "512 MiB", got a string',
    ),
    (
        box(limits={"memory_bytes": "5 s3crets"}),
        '.sandbox.limits.memory_bytes: expected a size, as in 1048576 or "512 MiB", got a string',
    ),
    (box(limits={"memory_bytes": 512}), ".sandbox.limits.memory_bytes: must be greater than or equal to 1048576"),
    (box(limits={"cpu_share": True}), ".sandbox.limits.cpu_share: expected a number, got true"),
    (box(read=["a", 5]), ".sandbox.read[1]: expected a string, got 5"),
    (box(read="a"), ".sandbox.read: expected an array, got a string"),
    (box(read=["${E:-}"]), ".sandbox.read[0]: is not an absolute path"),
    (box(write=["${GONE}"]), ".sandbox.write[0]: the variable 'GONE' is not set"),
    (box(write=["${NUL}"]), ".sandbox.write[0]: holds a NUL character"),
    (box(preset="loose"), ".sandbox.preset: must be 'strict', 'standard' or 'trusted'"),
    (box(network="off"), ".sandbox.network: must be 'none', 'loopback', 'internet'"),
    (
        box(network=["a.example:1", "127.1:80"]),
        ".sandbox.network: entry [1] is an incomplete address, or not in the usual spelling: write 10.0.0.5:443",
    ),
    (
        box(read=["~/s3cret"], write=["/home/u/s3cret/"]),
        ".sandbox: read[0] and write[0] are the same path: keep one",
    ),
    ('{"command": "c", "sandbox": {"read": [], "read": []}}', ".sandbox: the key 'read' appears more than once"),
    ({"url": URL, "client_key": "k.pem"}, ": client_key needs a client_cert"),
    ({"url": URL, "proxy": "socks5://h:1"}, ".proxy: must begin with http:// or https://"),
    ({"command": "c", "ca_file": "a.pem"}, ".ca_file: does not apply to a stdio server: remove it"),
    ({"url": URL, "headers": {"a b": "c"}}, ".headers['a b']: is not a valid HTTP header name"),
    ({"url": URL, "sandbox": {}}, ".sandbox: a remote server has no process to confine: remove it"),
    ({"command": "c", "headers": {}}, ".headers: does not apply to a stdio server: remove it"),
    ({"url": URL, "envFile": ".env"}, ".envFile: does not apply to a sse server: remove it"),
    ({"type": "http", "url": URL, "env": {}}, ".env: does not apply to a streamable_http server: remove it"),
    ({"serverUrl": URL}, ".serverUrl: is another client's key: use url"),
    ({"command": "c", "disabledTools": []}, ".disabledTools: is another client's key: use tools.deny"),
    ({"command": "c", "url": URL}, ": has both 'command' and 'url': keep one"),
    ({"args": []}, ": has neither 'command' nor 'url'"),
    ({"envFile": "x"}, ": has neither 'command' nor 'url'"),
    ({}, ": has neither 'command' nor 'url'"),
    ({"type": "ws", "url": URL}, ".type: expected 'stdio', 'http', 'streamable-http' or 'sse', got 'ws'"),
    ({"type": 5, "url": URL}, ".type: expected 'stdio', 'http', 'streamable-http' or 'sse', got 5"),
    ({"type": "http", "transport": "sse", "url": URL}, ": 'type' and 'transport' disagree: keep one"),
    ({"kind": "http", "url": URL}, ".kind: expected one of 'stdio', 'sse', 'streamable_http'"),
    ({"kind": [], "url": URL}, ".kind: expected one of 'stdio', 'sse', 'streamable_http'"),
    ({"kind": "sse", "type": "http", "url": URL}, ": 'kind' and 'type' disagree: keep one"),
    ('{"command": "c", "command": "d"}', ": the key 'command' appears more than once"),
    ('{"command": "c", "env": {"A": "b", "A": "c"}}', ".env: the key 'A' appears more than once"),
    ({"command": "a\0b"}, ".command: holds a NUL character"),
    ({"command": "c", "args": ["${NUL}"]}, ".args[0]: holds a NUL character"),
    ({"command": "c", "env": {"A\0": "b"}}, ".env: holds a NUL character"),
    ('{"command": "\\ud800"}', ".command: holds half of a surrogate pair: it is not Unicode text"),
    ({"command": "c", "args": ["a", "${GONE}"]}, ".args[1]: the variable 'GONE' is not set"),
    ({"command": "c", "env": {"my key": "${GONE}"}}, ".env['my key']: the variable 'GONE' is not set"),
    ({"command": "c", "envFile": 5}, ".envFile: expected a string, got 5"),
    ({"command": "c", "envFile": "gone"}, ".envFile: 'gone' cannot be read: No such file or directory"),
]


def test_a_wrong_row_says_where_and_what() -> None:
    """A user would have to guess which of twenty values is meant."""
    for row, message in WRONG_ROWS:
        with pytest.raises(RowError) as caught:
            build(row)
        assert str(caught.value).startswith(PLACE + message), row
        assert caught.value.problem.code == ("unset_variable" if "GONE" in message else "config_invalid")
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_env_file_lies_below_env(tmp_path: Path) -> None:
    """A value that the row itself gives would be overridden by the file."""
    (tmp_path / ".env").write_text("A=file\nB='file two'\n")
    row = {"command": "c", "envFile": "${workspaceFolder}/.env", "env": {"A": "row"}}
    assert build(row, tmp_path).config == stdio(env={"A": "row", "B": "file two"})
    assert build({"command": "c", "envFile": ".env"}, tmp_path).config == stdio(env={"A": "file", "B": "file two"})


def test_an_env_file_with_unusable_text_is_refused(tmp_path: Path) -> None:
    """The server could not be started, and the message would name no file."""
    (tmp_path / ".env").write_text("A=a\0b\n")
    with pytest.raises(RowError, match=r"^mcpServers\.fs\.envFile\.A: holds a NUL character$"):
        build({"command": "c", "envFile": ".env"}, tmp_path)


@pytest.mark.parametrize(
    ("row", "disabled"),
    [
        ({}, False),
        ({"disabled": True}, True),
        ({"enabled": False}, True),
        ({"disabled": False, "enabled": True}, False),
        ({"disabled": None, "enabled": None}, False),
    ],
)
def test_a_row_can_be_switched_off(row: object, disabled: bool) -> None:
    """A server that a user switched off would run."""
    assert is_disabled(read(row), PLACE) is disabled


@pytest.mark.parametrize("row", [{"disabled": "true"}, {"enabled": 0}])
def test_a_switch_is_a_boolean(row: object) -> None:
    """`"disabled": "true"` would leave the server running."""
    with pytest.raises(RowError, match="expected true or false"):
        is_disabled(read(row), PLACE)


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        (("args", 1), "s.args[1]"),
        (("my fs",), "s['my fs']"),
        (("",), "s['']"),
        (("a.b", "c"), "s['a.b'].c"),
        (("\x1b[2J\n",), r"s['\x1b[2J\n']"),
        (("x" * 100,), f"s['{'x' * 64}']"),
    ],
)
def test_a_place_is_one_readable_line(steps: tuple[str | int, ...], place: str) -> None:
    """A key could clear the terminal that shows the message, or fill it."""
    assert at("s", *steps) == place


KEYS = st.sampled_from(
    [
        *("command", "url", "args", "env", "headers", "type", "transport", "kind", "tools", "restart", "cwd"),
        *("envFile", "id", "sandbox"),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["stdio", "http", "sse", URL, "${TOKEN}", "${"])
)
VALUES = (
    LEAVES
    | st.text(st.characters(exclude_categories=()))
    | st.lists(LEAVES, max_size=3)
    | st.dictionaries(st.text(max_size=5) | st.sampled_from([*SandboxPolicy.model_fields]), LEAVES, max_size=3)
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_row_is_built_or_refused(row: dict[str, object]) -> None:
    """A stray exception would take the other servers of the file along."""
    message = PLACE
    try:
        assert build(row).config.id == "fs"
    except RowError as error:
        message = str(error)
    assert message.startswith(PLACE)
    assert "s3cret" not in message
