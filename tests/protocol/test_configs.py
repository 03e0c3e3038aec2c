"""Configurations: the seeds' constructors, closed keys with a hint, immutability, and the way through JSON."""

from collections.abc import Callable
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from quarterdeck_protocol.configs import (
    BridgeConfig,
    RestartPolicy,
    ServerConfig,
    SseServerConfig,
    StdioServerConfig,
    StreamableHttpServerConfig,
    ToolFilter,
    TransportKind,
    TrustMode,
)

ANY_SERVER: TypeAdapter[ServerConfig] = TypeAdapter(ServerConfig)

REMOTE_KINDS = (SseServerConfig, StreamableHttpServerConfig)


def _stdio(**more: object) -> StdioServerConfig:
    return StdioServerConfig.model_validate({"id": "fs", "command": "npx", **more})


def _remote(**more: object) -> SseServerConfig:
    return SseServerConfig.model_validate({"id": "web", "url": "https://example.com/mcp", **more})


def test_a_stdio_config_takes_the_seeds_keywords() -> None:
    """Code written for the seeds' contract constructs the same values."""
    config = StdioServerConfig(id="fs", command="npx", args=("-y", "server", "/tmp"), env={"A": "1"})
    assert (config.id, config.command, config.args, config.env) == ("fs", "npx", ("-y", "server", "/tmp"), {"A": "1"})
    assert str(config.kind) == "stdio"
    assert StdioServerConfig.transport is TransportKind.STDIO


@pytest.mark.parametrize(("model", "kind"), [(SseServerConfig, "sse"), (StreamableHttpServerConfig, "streamable_http")])
def test_a_remote_config_takes_the_seeds_keywords(model: type[SseServerConfig], kind: str) -> None:
    """Both remote kinds differ in their `kind` only."""
    config = model(id="web", url="https://example.com/mcp", headers={"authorization": "Bearer x"})
    assert config.kind == kind == model.transport
    assert config.headers == {"authorization": "Bearer x"}


def test_a_bare_url_is_dialled_both_ways_unless_told_otherwise() -> None:
    """`legacy_only` is for a server that says `"type": "sse"`."""
    assert not _remote().legacy_only
    assert _remote(legacy_only=True).legacy_only


def test_null_is_the_same_as_absent_where_files_write_it() -> None:
    """Editors write `"env": null`."""
    assert _stdio(env=None, args=None) == _stdio()
    assert _remote(headers=None) == _remote()


def test_a_string_is_no_list_of_arguments() -> None:
    """`"args": "-y pkg"` would become single letters."""
    with pytest.raises(ValidationError, match="args"):
        _stdio(args="-y")


@pytest.mark.parametrize(
    ("build", "key", "hint"),
    [
        (lambda: _stdio(comand="x"), "comand", "did you mean 'command'?"),
        (lambda: _stdio(envs={}), "envs", "did you mean 'env'?"),
        (lambda: _stdio(arg=[]), "arg", "did you mean 'args'?"),
        (lambda: _stdio(connect_timeout=3), "connect_timeout", "did you mean 'connect_timeout_s'?"),
        (lambda: _stdio(maxResultBytes=3), "maxResultBytes", "did you mean 'max_result_bytes'?"),
        (lambda: _remote(header={}), "header", "did you mean 'headers'?"),
        (lambda: _stdio(zzz=1), "zzz", "the known keys are id,"),
        (lambda: RestartPolicy.model_validate({"max_restart": 1}), "max_restart", "did you mean 'max_restarts'?"),
        (lambda: ToolFilter.model_validate({"denny": []}), "denny", "did you mean 'deny'?"),
        (lambda: BridgeConfig.model_validate({"server": []}), "server", "did you mean 'servers'?"),
        (lambda: ANY_SERVER.validate_python({"kind": "stdio", "id": "a", "comand": "b"}), "comand", "'command'"),
        (lambda: ANY_SERVER.validate_json('{"kind":"sse","id":"a","urls":"b"}'), "urls", "'url'"),
        (lambda: _stdio(restart={"jiter": 0}), "jiter", "did you mean 'jitter'?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(build: Callable[[], object], key: str, hint: str) -> None:
    """A typo must be found by its message, not by a server that ignores a setting."""
    with pytest.raises(ValidationError) as caught:
        build()
    (error,) = caught.value.errors()
    assert f"unknown key {key!r}" in error["msg"]
    assert hint in error["msg"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (_stdio(), "command"),
        (_remote(), "url"),
        (RestartPolicy(), "jitter"),
        (ToolFilter(), "deny"),
        (BridgeConfig(), "servers"),
    ],
)
def test_a_config_cannot_be_changed(config: StdioServerConfig, field: str) -> None:
    """What was approved is what runs."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, field, getattr(config, field))


def test_a_config_does_not_share_what_it_was_made_from() -> None:
    """A caller's dict may change afterwards."""
    env = {"A": "1"}
    config = _stdio(env=env)
    env["B"] = "2"
    assert config.env == {"A": "1"}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"command": ""}, {"command": "a\0b"}, {"args": ["a\0b"]}, {"env": {"A": "a\0b"}}, {"env": {"A\0": "b"}}),
        *({"env": {"A=B": "c"}}, {"env": {"": "c"}}, {"env": {"A": None}}, {"cwd": "/a\0b"}),
        *({"inherit_env": ["A=B"]}, {"command": "\ud800"}, {"kind": "sse"}),
    ],
    ids=str,
)
def test_what_no_process_can_be_given_is_refused_here(wrong: dict[str, object]) -> None:
    """Otherwise it would be an odd exception at the start of the process."""
    with pytest.raises(ValidationError):
        _stdio(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"url": "ftp://example.com"}, {"url": "example.com"}, {"url": "https://exa mple.com"}),
        *({"url": "https://example.com\n"}, {"url": ""}, {"headers": {"a b": "c"}}, {"headers": {"": "c"}}),
        {"headers": {"a": "b\r\nx-injected: 1"}},
        {"headers": {"a\r\nx-injected": "b"}},
    ],
    ids=str,
)
def test_what_no_request_can_carry_is_refused_here(wrong: dict[str, object]) -> None:
    """A header with a line break could smuggle in another one."""
    with pytest.raises(ValidationError):
        _remote(**wrong)


@pytest.mark.parametrize("number", [nan, inf, -1, 0, 1e9])
@pytest.mark.parametrize("field", ["connect_timeout_s", "list_timeout_s", "call_timeout_s"])
def test_a_deadline_is_a_sensible_number_of_seconds(field: str, number: float) -> None:
    """A deadline that is none would let a caller wait for ever."""
    with pytest.raises(ValidationError, match=field):
        _stdio(**{field: number})


@pytest.mark.parametrize("size", [0, 1023, -1, 1 << 40])
def test_a_result_limit_is_within_what_a_link_carries(size: int) -> None:
    """Beyond a gibibyte the link itself would refuse the result."""
    with pytest.raises(ValidationError, match="max_result_bytes"):
        _stdio(max_result_bytes=size)


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {field: number}
            for field in ("window_s", "backoff_s", "backoff_max_s", "stable_s")
            for number in (inf, 0, -1)
        ),
        *({"window_s": nan}, {"jitter": 1}, {"jitter": -0.1}, {"max_restarts": -1}),
    ],
    ids=str,
)
def test_a_restart_policy_is_finite_and_waits(wrong: dict[str, object]) -> None:
    """A server that crashes would be started again without a pause, or its policy not survive JSON."""
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        RestartPolicy.model_validate(wrong)


def test_the_restart_policy_is_the_documented_one() -> None:
    """Five restarts in a minute, half a second to half a minute apart, forgotten after five minutes."""
    assert RestartPolicy().model_dump() == {
        "max_restarts": 5,
        "window_s": 60,
        "backoff_s": 0.5,
        "backoff_max_s": 30,
        "jitter": 0.25,
        "stable_s": 300,
    }


@pytest.mark.parametrize(
    ("tools", "name", "admitted"),
    [
        ({}, "anything", True),
        ({"allow": ["read_*"]}, "read_file", True),
        ({"allow": ["read_*"]}, "write_file", False),
        ({"allow": ["read_*", "list"]}, "list", True),
        ({"deny": ["write_*"]}, "write_file", False),
        ({"allow": ["*"], "deny": ["*"]}, "x", False),
        ({"allow": []}, "x", False),
        ({"allow": ["READ"]}, "read", False),
        ({"allow": ["re?d"]}, "read", True),
    ],
)
def test_a_tool_is_offered_when_allowed_and_not_denied(tools: dict[str, object], name: str, admitted: bool) -> None:
    """`deny` wins; names are compared with case."""
    assert ToolFilter.model_validate(tools).admits(name) is admitted


def test_secrets_stay_out_of_reprs_and_errors() -> None:
    """Both end in logs."""
    configs: list[ServerConfig] = [_stdio(env={"TOKEN": "hunter2"}), _remote(headers={"authorization": "hunter2"})]
    assert "hunter2" not in repr(configs)
    assert "hunter2" not in repr(BridgeConfig(servers=tuple(configs)))
    for wrong in ({"env": {"TOKEN": ["hunter2"]}}, {"env": {"TOKEN": "hunter2"}, "comand": 1}):
        with pytest.raises(ValidationError) as caught:
            _stdio(**wrong)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        BridgeConfig.model_validate({"servers": [{"kind": "stdio", "env": {"TOKEN": "hunter2"}}]})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("row", [{"id": "a", "command": "b"}, {"kind": "grpc", "id": "a"}, {"kind": 1}, 5, None])
def test_the_union_is_told_apart_by_its_kind_alone(row: object) -> None:
    """Guessing from other keys is the loader's business."""
    with pytest.raises(ValidationError):
        ANY_SERVER.validate_python(row)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
LIMITS = {"connect_timeout_s": st.floats(0.001, 3600), "max_result_bytes": st.integers(1024, 1 << 30)}
STDIO = st.builds(
    StdioServerConfig,
    id=st.from_regex(r"[A-Za-z0-9]{1,32}", fullmatch=True),
    command=TEXT.filter(bool),
    args=st.lists(TEXT, max_size=3).map(tuple),
    env=st.dictionaries(NAMES, TEXT, max_size=3),
    cwd=st.none() | TEXT,
    inherit_env=st.lists(NAMES, max_size=2).map(tuple),
    restart=st.builds(RestartPolicy, max_restarts=st.integers(0, 9), backoff_s=st.floats(0.01, 10)),
    tools=st.builds(ToolFilter, allow=st.lists(TEXT, max_size=2).map(tuple)),
    **LIMITS,
)
REMOTE = st.sampled_from(REMOTE_KINDS).flatmap(
    lambda model: st.builds(
        model,
        id=st.from_regex(r"[A-Za-z0-9]{1,32}", fullmatch=True),
        url=st.just("http://127.0.0.1:8000/mcp?a=ü"),
        headers=st.dictionaries(NAMES, TEXT.filter(lambda text: not set(text) & set("\r\n")), max_size=3),
        **LIMITS,
    )
)


@given(config=STDIO | REMOTE)
def test_a_config_survives_json(config: ServerConfig) -> None:
    """A worker is told its server's configuration as JSON text, and must read the same."""
    back = ANY_SERVER.validate_json(config.model_dump_json())
    assert back == config
    assert type(back) is type(config)
    assert ANY_SERVER.validate_python(config.model_dump()) == config


def test_the_last_of_an_id_wins_at_the_first_ones_position() -> None:
    """A user's file can replace a server without changing the order."""
    first, second, third = _stdio(id="a"), _stdio(id="b"), _stdio(id="a", command="other")
    assert list(BridgeConfig(servers=(first, second, third)).effective()) == [third, second]
    assert list(BridgeConfig().effective()) == []


def test_a_server_is_trusted_as_it_is_first_seen_unless_it_is_said_otherwise() -> None:
    """Every server would wait for approval, or none ever."""
    assert StdioServerConfig(id="a", command="c").trust is TrustMode.BASELINE
    assert (
        StreamableHttpServerConfig.model_validate({"id": "a", "url": "http://h", "trust": "strict"}).trust == "strict"
    )
    with pytest.raises(ValidationError, match="'baseline', 'strict' or 'open'"):
        StdioServerConfig.model_validate({"id": "a", "command": "c", "trust": "always"})


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"client_secret": "s"}, "needs a client_id"),
        ({"client_id": ""}, "at least 1"),
        ({"client_id": "c", "client_metadata_url": "https://a.example/c"}, "exclude each other"),
        ({"client_metadata_url": "http://a.example/c"}, "https://"),
        ({"client_id": "c", "grant": "client_credentials"}, "needs client_id and client_secret"),
        ({"issuer": "as.example"}, "must begin with"),
        ({"scopes": ["two words"]}, "one word"),
        ({"scopes": ['qu"ote']}, "one word"),
        ({"redirect_port": 0}, "greater than"),
        ({"client_secrt": "s"}, "client_secret"),
    ],
)
def test_a_login_that_cannot_be_meant_is_refused(auth: dict[str, object], words: str) -> None:
    """A login would fail at its end, in front of a person, or a secret be sent nowhere."""
    with pytest.raises(ValidationError, match=words):
        StreamableHttpServerConfig.model_validate({"id": "far", "url": "https://a.example/mcp", "auth": auth})


@pytest.mark.parametrize(
    ("auth", "needs_person"),
    [
        (None, True),
        ({}, True),
        ({"client_id": "c"}, True),
        ({"client_id": "c", "client_secret": "s"}, False),
        ({"client_id": "c", "client_secret": "s", "grant": "authorization_code"}, True),
    ],
)
def test_a_secret_means_a_machine_unless_it_is_said_otherwise(auth: object, needs_person: bool) -> None:
    """A pipeline would wait for a browser, or a person's login be made without them."""
    config = StreamableHttpServerConfig.model_validate({"id": "far", "url": "https://a.example/mcp", "auth": auth})
    assert config.auth.needs_person is needs_person
    assert "client_secret" not in repr(config)


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_a_header_that_says_who_we_are_stands_in_for_a_login(name: str) -> None:
    """A token that a user got by hand would be replaced."""
    config = StreamableHttpServerConfig(id="far", url="https://a.example/mcp", headers={name: "Bearer t"})
    assert config.brings_credentials
    assert not StreamableHttpServerConfig(id="far", url="https://a.example/mcp").brings_credentials
