"""The JSON Schema of a configuration file says what reading it says."""

import json
from pathlib import Path

import jsonschema
import pytest

from quarterdeck.config.load.file import load_config_file
from quarterdeck.config.load.json_schema import config_schema
from quarterdeck_protocol.configs import StdioServerConfig

VALIDATOR = jsonschema.Draft202012Validator(config_schema())


def is_right(tmp_path: Path, document: object) -> bool:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(document))
    loaded = load_config_file(path, {"TOKEN": "t", "N": "5", "HOME": "/home/u"})
    return not (loaded.broken or loaded.native_problems or loaded.top_problems)


def test_it_is_a_schema() -> None:
    """An editor would refuse it as a whole."""
    jsonschema.Draft202012Validator.check_schema(config_schema())
    assert config_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


URL = "https://h/x"


@pytest.mark.parametrize(
    "row",
    [
        {"command": "c"},
        {"command": "c", "args": None, "env": None, "cwd": None, "type": None},
        {"type": "stdio", "command": "c", "args": ["a", "${TOKEN}"], "envFile": None, "id": "a"},
        {"command": "c", "env": {"S": "x", "I": 5, "T": True, "N": None}, "trust": "strict"},
        {"command": "c", "call_timeout_s": "${N}", "max_result_bytes": 2048, "restart": {"max_restarts": 1}},
        {"command": "c", "sandbox": {"preset": None, "network": ["a.b:1"], "limits": {"memory_bytes": "512 MiB"}}},
        {
            "command": "c",
            "sandbox": {"network": "none", "limits": {"processes": "${N}", "cpu_s": None, "open_files": 64}},
        },
        {
            "command": "c",
            "sandbox": {"read": ["sub", "~/x"], "grants": ["aws"], "require": ["memory"], "minimum": "limits"},
        },
        {"command": "c", "alwaysAllow": ["x"], "description": 5, "timeout": 5, "disabled": False},
        {"command": "c", "protocol": "2025-11-25"},
        {"url": URL},
        {"url": "${X:-http}://h/${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"type": "sse", "url": URL, "legacy_only": False},
        {"type": "http", "url": URL},
        {"transport": "streamable-http", "url": URL},
        {"kind": "streamable_http", "url": URL, "tools": {"allow": ["a*"]}},
        {"disabled": True, "nonsense": 1},
        {"enabled": False},
    ],
)
def test_what_reading_takes_the_schema_takes(tmp_path: Path, row: dict[str, object]) -> None:
    """An editor would underline a file that works."""
    for document in (
        {"mcpServers": {"a": row}},
        {"servers": [{"name": "a", **row}], "trust": "open", "native": {"sandbox": {"network": None}}},
        {"$schema": "x", "servers": {"a": row}, "otherClients": {}, "allow_project_env": ["TZ"], "native": None},
    ):
        assert is_right(tmp_path, document)
        VALIDATOR.validate(document)


@pytest.mark.parametrize(
    "row",
    [
        *({"comand": "c"}, {"command": "c", "protocol": "1999-01-01"}, {}, {"command": "c", "network": "none"}),
        *({"command": ""}, {"command": 5}, {"command": "c", "args": "a b"}, {"command": "c", "args": [5]}),
        *({"command": "c", "env": ["A=b"]}, {"command": "c", "env": {"A": ["x"]}}),
        *({"command": "c", "trust": "always"}, {"command": "c", "call_timeout_s": 0}),
        {"command": "c", "call_timeout_s": "soon"},
        {"command": "c", "restart": {"max_restarts": 1.5}},
        *({"command": "c", "tools": {"alow": []}}, {"command": "c", "sandbox": "none"}),
        *({"command": "c", "sandbox": {"raed": []}}, {"command": "c", "sandbox": {"network": "off"}}),
        {"command": "c", "sandbox": {"preset": "loose"}},
        {"command": "c", "sandbox": {"limits": {"memory": 5}}},
        {"command": "c", "sandbox": {"limits": {"memory_bytes": 512}}},
        *({"command": "c", "disabled": "no"}, {"command": "c", "headers": {}}, {"url": "ftp://h"}),
        *({"url": URL, "sandbox": {}}, {"url": URL, "headers": {"X": 5}}, {"type": "http"}),
        *({"type": "ws", "url": URL}, {"type": "http", "url": URL, "env": {}}, {"serverUrl": URL}),
    ],
)
def test_what_reading_refuses_the_schema_refuses(tmp_path: Path, row: dict[str, object]) -> None:
    """An editor would call a file right that starts nothing."""
    for document in ({"mcpServers": {"a": row}}, {"servers": [{"id": "a", **row}]}):
        assert not is_right(tmp_path, document)
        assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    "document",
    [
        *({"mcpServers": {}, "trust": "strct"}, {"mcpServers": {}, "allow_project_env": "TZ"}),
        *({"mcpServers": {}, "allow_project_env": ["A=b"]}, {"native": {"sandbocks": {}}}),
        *({"native": {"webfetch": {"allow": "x"}}}, {"servers": [{"command": "c"}]}, {"servers": [5]}),
    ],
)
def test_the_top_of_a_file_is_judged_too(tmp_path: Path, document: object) -> None:
    """A typing error in `trust` would be found by nobody."""
    assert not is_right(tmp_path, document)
    assert not VALIDATOR.is_valid(document)
    assert not VALIDATOR.is_valid({"other": 1})
    assert not VALIDATOR.is_valid({"servers": "a"})


def test_each_documented_field_is_explained_where_it_is_typed() -> None:
    """An editor would complete a key without a word on what it does."""
    definitions = config_schema()["$defs"]
    assert isinstance(definitions, dict)
    fields = definitions["stdio"]["properties"]
    assert set(fields) >= {*StdioServerConfig.model_fields}
    assert all(fields[key]["description"] for key in ("command", "cwd", "inherit_env", "sandbox"))
    assert definitions["SandboxPolicy"]["properties"]["write"]["description"] == "host paths that it may change."
    assert definitions["SandboxPolicy"]["description"].startswith("What one process may reach and use.")
