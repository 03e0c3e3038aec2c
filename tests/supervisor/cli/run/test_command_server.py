"""Which server a command line means, by its id; and what is run of a `quarterdeck run`."""

import json
import shlex
from pathlib import Path

import pytest

from quarterdeck.cli.exits import CommandError
from quarterdeck.cli.run.command_server import DIGITS, server_id
from quarterdeck.cli.run.request import read_found
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.messages import CommandRequest, ServeRequest
from quarterdeck_protocol.configs import StdioServerConfig, TrustMode
from quarterdeck_protocol.names import is_server_id

ENVIRON = {"PATH": "/bin", "HOME": "/home/me", "API_TOKEN": "s3cret-s3cret-s3cret"}


def name_of(line: str) -> str:
    found = server_id(shlex.split(line))
    assert is_server_id(found)
    return found[: -DIGITS - 1]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("npx -y some-server", "some-server"),
        ("npx -y some-server@1.2.3 --flag", "some-server"),
        ("npx -y @modelcontextprotocol/server-filesystem@latest /data", "server-filesystem"),
        ("npx -y @playwright/mcp", "playwright-mcp"),
        ("npx -p @owner/tools@2 serve", "tools"),
        ("/usr/bin/npm exec some-server", "some-server"),
        ("uvx mcp-server-time==2.0 --local-timezone UTC", "mcp-server-time"),
        ("uvx --from 'mcp_server_git>=1' mcp-server-git", "mcp_server_git"),
        ("uv tool run mcp-server-time", "mcp-server-time"),
        ("docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:1.0", "github-mcp-server"),
        ("docker run -i --mount type=bind,src=/a,dst=/b --name=x mcp/fetch@sha256:00ff", "fetch"),
        ("docker run", "docker"),
        ("python3.12 -u server/weather.py", "weather"),
        ("python -m weather_server", "weather_server"),
        ("node /opt/notes/index.js", "index"),
        ("python", "python"),
        ("/opt/acme/bin/acme-server --stdio", "acme-server"),
        ("./日本", "server"),
        ("/x/" + "long-" * 20, "long-long-long-long-long"),
    ],
)
def test_an_id_begins_with_what_people_call_the_server(line: str, name: str) -> None:
    """Who looks for a server's log or for what is held of it would not know it."""
    assert name_of(line).startswith(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("npx -y some-server", "npx some-server@2.1.0"),
        ("npx -y @a/b@1 /data", "/usr/local/bin/npx @a/b@latest /data"),
        ("npx --package=@a/b@1 serve", "npx --package=@a/b@2 serve"),
        ("uvx mcp-server-time==1", "uvx mcp-server-time>=2"),
        ("docker run -i --rm mcp/time:1", "docker run -i mcp/time:2"),
    ],
)
def test_a_new_version_is_the_same_server(one: str, other: str) -> None:
    """With each update it would lose its home, and all that it offers be approved unseen as at first sight."""
    assert server_id(shlex.split(one)) == server_id(shlex.split(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("npx -y @a/server", "npx -y @b/server"),
        ("npx -y files /work", "npx -y files /home"),
        ("npx -y time", "uvx time"),
        ("docker run mcp/time", "docker run -e TZ mcp/time"),
        ("python a/server.py", "python b/server.py"),
        ("/opt/tool serve", "/opt/tool serve --all"),
    ],
)
def test_another_command_line_is_another_server(one: str, other: str) -> None:
    """What was approved of one would be changed by the other, at each start of either."""
    assert server_id(shlex.split(one)) != server_id(shlex.split(other))


def test_a_server_is_told_apart_by_its_folder_only_where_that_says_what_it_is() -> None:
    """`./server` of every project would share a home and approvals, or work in a folder that it cannot see."""
    assert server_id(["./server"], "/a") != server_id(["./server"], "/b")
    assert server_id(["npx", "x"], "/a") == server_id(["npx", "x"], "/b")
    assert [config.cwd for config in settings_of().servers if isinstance(config, StdioServerConfig)] == [None]
    shown = settings_of(sandbox='{"read": ["/work"]}', cwd="/work/project")
    assert [config.cwd for config in shown.servers if isinstance(config, StdioServerConfig)] == ["/work/project"]
    assert settings_of().digest != settings_of(words=("npx", "other")).digest
    assert settings_of().digest == settings_of(trust="open").digest


def settings_of(cwd: str = "/work", **asked: object) -> Settings:
    command = CommandRequest(**{"words": ("npx", "-y", "notes"), **asked})  # type: ignore[arg-type]
    return read_found(ServeRequest(cwd=cwd, command=command, name_budget=46), ENVIRON)


def test_the_options_become_the_row(tmp_path: Path) -> None:
    """A server would start with other rights than its command line says."""
    sandbox = {"preset": "strict", "read": ["/work"], "network": ["example.com:443"], "limits": {"memory_bytes": "1G"}}
    settings = settings_of(
        sandbox=json.dumps(sandbox), trust="strict", env={"A": "b"}, inherit_env=("API_TOKEN", "ABSENT")
    )
    (config,) = settings.servers
    assert isinstance(config, StdioServerConfig)
    assert (config.command, config.args) == ("npx", ("-y", "notes"))
    assert config.sandbox.read == ("/work",)
    assert config.sandbox.network == ("example.com:443",)
    assert (config.env, config.inherit_env) == ({"A": "b"}, ("API_TOKEN", "ABSENT"))
    assert config.trust is TrustMode.STRICT
    assert settings.origin(config.id).standing is Standing.COMMAND
    assert settings.command == config.id
    assert "s3cret-s3cret-s3cret" in settings.secrets


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"sandbox": '{"preset": "lax"}'}, "preset"),
        ({"sandbox": '{"network": "outside"}'}, "network"),
        ({"sandbox": '{"limits": {"memory": "1G"}}'}, "memory"),
        ({"trust": "blind"}, "--trust blind"),
        ({"words": ("",)}, "command"),
        ({"words": ("a\0b",)}, "NUL"),
        ({"env": {"": "x"}}, "name"),
    ],
)
def test_a_wrong_option_is_the_users_error(asked: dict[str, object], said: str) -> None:
    """The client would be served by a server with default rights, or told that we have a bug."""
    with pytest.raises(CommandError, match=said):
        settings_of(**asked)
