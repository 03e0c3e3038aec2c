"""The example of each client's own documentation: linked, unlinked and imported, with every other byte as it was."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from quarterdeck.config.clients.client_locations import ClientLocation, UserDirectories
from quarterdeck.config.clients.documents import editor_of
from quarterdeck.config.clients.import_servers import find_servers
from quarterdeck.config.clients.known_clients import Client, System, find_client
from quarterdeck.config.clients.link_entry import (
    LinkError,
    make_entry,
    make_http_entry,
    plan_link,
    plan_take_out,
    plan_unlink,
)
from quarterdeck.config.clients.user_file import backups, write_user_file

NOW: Final = datetime(2026, 11, 23, tzinfo=UTC)

HERE: Final = UserDirectories(Path("/home/me"), Path("/work"), {}, System.LINUX)

URL: Final = "http://127.0.0.1:8808/mcp"

BEARER: Final = {"Authorization": "Bearer t0ken"}

ROW: Final = {"command": "/bin/quarterdeck", "args": ["serve"]}

NAMES: Final = [
    *("claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "codex", "gemini-cli", "zed", "cline", "roo"),
    *("continue", "goose", "copilot-cli", "lmstudio", "opencode", "junie", "amp", "warp"),
]

EXAMPLES: Final[Mapping[str, str]] = {
    "codex": """# Models
model = "o3"  # the big one

[mcp_servers.docs]
command = "npx"
args = [
  "-y",  # do not ask
  "some-server",
]
env_vars = ["DOCS_TOKEN"]

[mcp_servers.docs.env]
"MODE" = 'a'

[mcp_servers.remote]
url = "https://example.com/mcp"
bearer_token_env_var = "REMOTE_TOKEN"
http_headers = { "X-Client" = "me" }

# below stands what is mine
[profiles.fast]
model = "o4-mini"
""",
    "gemini-cli": """{
  // other settings
  "mcpServers": {
    "docs": {
      "command": "npx",
      "args": ["-y", "some-server"],
      "env": {"DOCS_TOKEN": "$DOCS_TOKEN", "MODE": "a"},
      "timeout": 15000
    },
    "remote": {
      "httpUrl": "https://example.com/mcp",
      "headers": {"Authorization": "Bearer ${REMOTE_TOKEN}", "X-Client": "me"}
    }
  }
}
""",
    "zed": """// Zed settings
{
  "context_servers": {
    "docs": {
      "command": "npx",
      "args": ["-y", "some-server"],
      "env": {"MODE": "a"},
    },
    "remote": {"url": "https://example.com/mcp", "headers": { "X-Client": "me" }},
  },
}
""",
    "cline": """{
  "mcpServers": {
    "docs": {
      "command": "npx",
      "args": ["-y", "some-server"],
      "env": {"MODE": "a"},
      "disabled": false,
      "autoApprove": []
    },
    "remote": {"type": "streamableHttp", "url": "https://example.com/mcp", "headers": {"X-Client": "me"}}
  }
}
""",
    "roo": """{
  "mcpServers": {
    "docs": {"command": "npx", "args": ["-y", "some-server"], "env": {"MODE": "a"}, "alwaysAllow": ["tool1"]},
    "remote": {"type": "streamable-http", "url": "https://example.com/mcp", "headers": {"X-Client": "me"}}
  }
}
""",
    "continue": """name: Local
version: 0.0.1
schema: v1
mcpServers:
  - name: docs
    type: stdio
    command: npx
    args:
      - "-y"
      - some-server
    env:
      DOCS_TOKEN: ${{ secrets.DOCS_TOKEN }}
      MODE: a  # or b
  # far away
  - name: remote
    type: streamable-http
    url: https://example.com/mcp
    requestOptions: {headers: {X-Client: me}}

models: []  # none
""",
    "goose": """# Model Configuration
GOOSE_PROVIDER: "anthropic"

# Extensions Configuration
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin

  docs:
    enabled: true
    name: docs
    type: stdio
    cmd: npx
    args: ["-y", some-server]
    env_keys: [DOCS_TOKEN]
    envs: {MODE: a}
  remote:
    type: streamable_http
    name: remote
    uri: https://example.com/mcp
    headers:
      X-Client: me   # us

# Security Configuration
SECURITY_PROMPT_ENABLED: true
""",
    "copilot-cli": """{
  "mcpServers": {
    "docs": {"type": "local", "command": "npx", "args": ["-y", "some-server"], "env": {"MODE": "a"}, "tools": ["*"]},
    "remote": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Client": "me"}, "tools": ["*"]}
  }
}
""",
    "opencode": """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    // local
    "docs": {
      "type": "local",
      "command": ["npx", "-y", "some-server"],
      "enabled": true,
      "environment": {"DOCS_TOKEN": "{env:DOCS_TOKEN}", "MODE": "a"},
    },
    "remote": {"type": "remote", "url": "https://example.com/mcp", "headers": {"X-Client": "me"}},
  },
}
""",
    "amp": """{
  "amp.showCosts": true,
  "amp.mcpServers": {
    "docs": {"command": "npx", "args": ["-y", "some-server"], "env": {"MODE": "a"}},
    "remote": {"url": "https://example.com/mcp", "headers": {"X-Client": "me"}}
  }
}
""",
}

PLAIN: Final = """{
  "%s": {
    "docs": {"command": "npx", "args": ["-y", "some-server"], "env": {"MODE": "a"}},
    "remote": {"%s": "https://example.com/mcp", "headers": {"X-Client": "me"}}
  }
}
"""
"""What those document that took Claude Desktop's notation over."""

ENTRIES: Final[Mapping[str, object]] = {
    **dict.fromkeys(NAMES, ROW),
    **{name: {"type": "stdio", **ROW} for name in ("claude-code", "cursor", "vscode")},
    "continue": {"name": "quarterdeck", "type": "stdio", **ROW},
    "goose": {
        "name": "quarterdeck",
        "type": "stdio",
        "enabled": True,
        "description": "",
        "timeout": 300,
        "cmd": "/bin/quarterdeck",
        "args": ["serve"],
    },
    "copilot-cli": {"type": "local", "tools": ["*"], **ROW},
    "opencode": {"type": "local", "enabled": True, "command": ["/bin/quarterdeck", "serve"]},
}

DIALLED: Final[Mapping[str, object]] = {
    **{name: {"url": URL, "headers": BEARER} for name in ("cursor", "zed", "lmstudio", "amp", "warp")},
    **{name: {"type": "http", "url": URL, "headers": BEARER} for name in ("claude-code", "vscode")},
    "windsurf": {"serverUrl": URL, "headers": BEARER},
    "codex": {"url": URL, "http_headers": BEARER},
    "gemini-cli": {"httpUrl": URL, "headers": BEARER},
    "cline": {"type": "streamableHttp", "url": URL, "headers": BEARER},
    "roo": {"type": "streamable-http", "url": URL, "headers": BEARER},
    "continue": {"name": "quarterdeck", "type": "streamable-http", "url": URL, "requestOptions": {"headers": BEARER}},
    "goose": {
        "name": "quarterdeck",
        "type": "streamable_http",
        "enabled": True,
        "description": "",
        "timeout": 300,
        "uri": URL,
        "headers": BEARER,
    },
    "copilot-cli": {"type": "http", "tools": ["*"], "url": URL, "headers": BEARER},
    "opencode": {"type": "remote", "enabled": True, "url": URL, "headers": BEARER},
}


def client(name: str) -> Client:
    found = find_client(name)
    assert found is not None
    return found


def place(tmp_path: Path, name: str) -> ClientLocation:
    path = tmp_path / Path(client(name).places[0].path).name
    text = EXAMPLES.get(name) or PLAIN % (client(name).keys[0], client(name).shape.url or "url")
    path.write_bytes(text.encode())
    return ClientLocation(client(name), path, client(name).keys)


def rows(location: ClientLocation) -> Mapping[str, object]:
    document = editor_of(location.path).parse(location.path.read_text())
    found = document[location.keys[0]]
    return {row["name"]: row for row in found} if isinstance(found, list) else found  # type: ignore[return-value]


def carry_out(location: ClientLocation, entry: Mapping[str, object]) -> None:
    plan = plan_link(location, "quarterdeck", entry)
    write_user_file(plan.file, plan.text, NOW)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_http", [False, True])
def test_the_example_is_linked_and_unlinked_and_every_other_byte_stays(
    tmp_path: Path, name: str, is_http: bool
) -> None:
    """A user's settings would be laid out anew, or lose their comments, for one entry."""
    location = place(tmp_path, name)
    before = location.path.read_bytes()
    if is_http and name not in DIALLED:
        with pytest.raises(LinkError, match="takes no address"):
            make_http_entry(location, URL, "t0ken")
        return
    entry = (
        make_http_entry(location, URL, "t0ken") if is_http else make_entry(location, HERE, ["/bin/quarterdeck"], [], {})
    )
    assert entry == (DIALLED if is_http else ENTRIES)[name]
    carry_out(location, entry)
    assert rows(location)["quarterdeck"] == entry
    assert list(rows(location)) == [*(["developer"] if name == "goose" else []), "docs", "remote", "quarterdeck"]
    added = location.path.read_bytes()
    kept = [line.rstrip(b",") for line in added.splitlines()]
    assert all(line.rstrip(b",") in kept for line in before.splitlines())
    assert not plan_link(location, "quarterdeck", entry).is_needed
    for copy in backups(location.path):
        copy.unlink()
    assert plan_unlink(location, "quarterdeck").text.encode() == before  # without a copy to go back to
    shown = "\n".join(plan_unlink(location, "quarterdeck").diff())
    assert "t0ken" not in shown


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_brought_up_to_date_in_its_place(tmp_path: Path, name: str) -> None:
    """After a move of the program a client could not be linked again, or would start us twice."""
    location = place(tmp_path, name)
    carry_out(location, make_entry(location, HERE, ["/old/quarterdeck"], [], {}))
    entry = make_entry(location, HERE, ["/new/quarterdeck"], ["--config", "/a b.json"], {"QUARTERDECK_STATE_DIR": "/s"})
    carry_out(location, entry)
    assert rows(location)["quarterdeck"] == entry
    assert b"/old/" not in location.path.read_bytes()
    assert find_servers([location]).left_out[-1].reason == "it is quarterdeck itself"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_servers_are_imported_as_ours(tmp_path: Path, name: str) -> None:
    """Our loader would refuse the rows, or start them without what they need."""
    location = place(tmp_path, name)
    found = {server.name: server for server in find_servers([location]).found}
    assert list(found) == ["docs", "remote"]
    docs, remote = found["docs"].row, found["remote"].row
    assert (docs["command"], docs["args"]) == ("npx", ["-y", "some-server"])
    env = docs["env"]
    assert isinstance(env, Mapping)
    assert env["MODE"] == "a"
    variable = "${keyring:DOCS_TOKEN}" if name in {"continue", "goose"} else "${DOCS_TOKEN}"
    assert env.get("DOCS_TOKEN", variable) == variable
    assert remote["url"] == "https://example.com/mcp"
    headers = remote["headers"]
    assert isinstance(headers, Mapping)
    assert headers["X-Client"] == "me"
    assert headers.get("Authorization", "Bearer ${REMOTE_TOKEN}") == "Bearer ${REMOTE_TOKEN}"
    json.dumps([docs, remote])


@pytest.mark.parametrize("name", NAMES)
def test_imported_servers_are_taken_out_and_the_rest_stays(tmp_path: Path, name: str) -> None:
    """The client would start them a second time, unconfined; or lose what is no server of ours."""
    location = place(tmp_path, name)
    before = location.path.read_text().splitlines()
    plan = plan_take_out(location, ["docs", "remote", "absent"])
    left = plan.text.splitlines()
    assert "some-server" not in plan.text
    assert "example.com/mcp" not in plan.text
    kept = [line for line in before if "//" in line and "://" not in line] + [
        line for line in before if line.startswith(("#", "[profiles", "GOOSE", "models", "SECURITY", "  developer"))
    ]
    assert all(line in left for line in kept if "local" not in line)
    location.path.write_text(plan.text)
    assert find_servers([location]).found == []


def test_the_examples_cover_every_client() -> None:
    """A new client would be without a test of its format."""
    from quarterdeck.config.clients.known_clients import CLIENTS

    assert [each.name for each in CLIENTS] == NAMES
    assert set(DIALLED) == {each.name for each in CLIENTS if each.shape.url is not None}
