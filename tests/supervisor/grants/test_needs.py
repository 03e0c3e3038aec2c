"""What servers ask for: by their rows and by what is known of their packages; and what nobody is ever offered."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.config.places import use_places

from quarterdeck.config.places.paths import state_dir
from quarterdeck.grants.needs import (
    NOTHING_KNOWN,
    Known,
    Need,
    known_of,
    known_packages,
    needs_of,
    only_reads,
    sandbox_of,
    writing_tools,
)
from quarterdeck_protocol.addresses import parse_destination
from quarterdeck_protocol.configs import StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.policy import SandboxPolicy

FILESYSTEM = "@modelcontextprotocol/server-filesystem"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("notes", ".ssh", ".claude", ".config/Claude", ".config/quarterdeck", ".aws", ".kube"):
        (home / name).mkdir(parents=True)
    for name in (".ssh/id", ".netrc", ".claude.json", ".aws/credentials", ".kube/config", ".npmrc", "notes/a.md"):
        (home / name).touch()
    (home / ".config/Claude/claude_desktop_config.json").write_text("{}")
    for name in ("npx", "uvx"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    use_places(monkeypatch, tmp_path)
    return home


def row(*words: object, env: dict[str, str] | None = None, **sandbox: Any) -> StdioServerConfig:
    command, *args = map(str, words)
    policy = SandboxPolicy.model_validate(sandbox)
    return StdioServerConfig(id="s", command=command, args=tuple(args), env=env or {}, sandbox=policy)


def test_each_need_has_its_reason_and_its_access(home: Path) -> None:
    """A person would be asked for a folder, and not be told who asks."""
    variable = {"MEMORY_FILE_PATH": f"{home}/notes/new/memory.json", "OUT_DIR": f"{home}/out"}
    found = needs_of(row("npx", "-y", FILESYSTEM, home / "notes", env=variable), os.environ)
    assert found.problems == ()
    assert [(need.key, need.value, need.reason, need.is_new) for need in found.needs] == [
        ("read", f"{home}/notes", "argument 3", False),
        ("write", f"{home}/notes/new", "variable MEMORY_FILE_PATH", True),
        ("write", f"{home}/out", "variable OUT_DIR", True),
    ]
    assert "write_file, edit_file and 2 more will fail" in found.needs[0].remark
    found = needs_of(row("uvx", "arxiv-mcp-server", "--storage-path", home / "papers"), os.environ)
    assert [(need.key, need.reason) for need in found.needs] == [("write", "argument 3 (--storage-path)")]


def test_a_variable_that_a_package_is_known_to_write_is_offered_to_be_written(home: Path) -> None:
    """A server for spreadsheets could not save one, as the name of its variable does not say that it writes."""
    variable = {"EXCEL_FILES_PATH": f"{home}/notes"}
    [known] = needs_of(row("uvx", "excel-mcp-server", "stdio", env=variable), os.environ).needs
    [unknown] = needs_of(row("uvx", "excel-like-server", "stdio", env=variable), os.environ).needs
    assert (known.key, unknown.key) == ("write", "read")
    [vault] = needs_of(row("npx", "-y", "obsidian-mcp", home / "notes"), os.environ).needs
    assert (vault.key, vault.value) == ("write", f"{home}/notes")


def test_known_hosts_are_offered_where_the_network_is_narrow_and_given_only_to_a_list(home: Path) -> None:
    """A row that says "none" would be opened by a yes to all; or a list would lack the host of a server's work."""
    words = ("npx", "-y", "tavily-mcp")
    assert needs_of(row(*words), os.environ).needs == ()
    [host] = needs_of(row(*words, network=["example.com:443"]), os.environ).needs
    assert (host.value, host.reason, host.is_default) == ("api.tavily.com:443", "known of tavily-mcp", True)
    assert sandbox_of({"sandbox": {"network": ["example.com:443"]}}, [host]) == {
        "network": ["example.com:443", "api.tavily.com:443"]
    }
    [host] = needs_of(row(*words, network="none"), os.environ).needs
    assert not host.is_default
    assert sandbox_of({"sandbox": {"network": "none"}}, [host]) == {"network": ["api.tavily.com:443"]}
    assert needs_of(row(*words, network=["api.tavily.com:443"]), os.environ).needs == ()


DECOYS = [
    "{home}", "{home}/..", "/", "/home", "/etc", "/run/docker.sock", "{home}/.ssh", "{home}/.ssh/id", "{home}/.netrc",
    "{home}/.claude", "{home}/.claude.json", "{home}/.config", "{home}/.config/Claude",
    "{home}/.config/Claude/claude_desktop_config.json", "{home}/.config/quarterdeck", "{home}/.aws/credentials",
    "{home}/.kube/config", "{home}/.npmrc", "{state}", "{state}/servers/s", "{home}/link", "{home}/.ssh/new/x.db",
    "{home}/.config/quarterdeck/new", "{home}/.claude/store/x.db", "{state}/new/x.db", "{home}/fifo",
]  # fmt: skip
"""Paths that hold what is nobody's to give by a yes to all, existing and not."""


@pytest.mark.parametrize("decoy", DECOYS)
def test_homes_keys_tokens_clients_files_and_our_own_places_are_never_offered(home: Path, decoy: str) -> None:
    """A person who says yes to all would give a server their keys."""
    (state_dir() / "servers/s").mkdir(parents=True)
    (home / "link").symlink_to(home / ".ssh")
    os.mkfifo(home / "fifo")
    path = decoy.format(home=home, state=state_dir())
    for words, env in ((("x", path), {}), (("x", "--db-path", path), {}), (("x",), {"MEMORY_FILE_PATH": path})):
        found = needs_of(row("npx", "-y", *words, env=env), os.environ)
        assert found.needs == (), found
    for name in ("@modelcontextprotocol/server-memory", "kubernetes-mcp-server"):
        found = needs_of(row("npx", "-y", name, env={"MEMORY_FILE_PATH": path}), os.environ)
        assert found.needs == (), found


def test_credentials_of_a_known_package_are_told_and_not_offered(home: Path) -> None:
    """A cluster would be handed over by a yes to all."""
    found = needs_of(row("npx", "-y", "kubernetes-mcp-server@latest"), os.environ)
    assert found.needs == ()
    [problem] = found.problems
    assert '"grants": ["kube"]' in problem
    assert needs_of(row("npx", "-y", "kubernetes-mcp-server", grants=["kube"]), os.environ).problems == ()


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("uvx", "--from", "git+https://example.com/x", "arxiv-mcp-server"), {}),
        (("uvx", "--from", "other", "arxiv-mcp-server"), {}),
        (("uvx", "--index-url", "https://example.com/simple", "arxiv-mcp-server"), {}),
        (("uvx", "--extra-index-url", "https://example.com/simple", "arxiv-mcp-server"), {}),
        (("uvx", "arxiv-mcp-server"), {"UV_INDEX_URL": "https://example.com/simple"}),
        (("uvx", "/tmp/arxiv-mcp-server"), {}),
        (("npx", "-y", f"{FILESYSTEM}@npm:evil"), {}),
        (("npx", "-y", "--registry", "https://example.com", FILESYSTEM), {}),
        (("npx", "-y", FILESYSTEM), {"npm_config_registry": "https://example.com"}),
        (("npx", "-y", f"./{FILESYSTEM}"), {}),
        (("npx", "-y", f"github:x/{FILESYSTEM}"), {}),
        (("npx", "-y", "evil", FILESYSTEM), {}),
        (("node", FILESYSTEM), {}),
    ],
)
def test_a_package_that_claims_a_known_name_from_elsewhere_is_not_known(
    words: tuple[str, ...], env: dict[str, str]
) -> None:
    """A stranger's program would ask in the name of one that is known."""
    assert known_of(row(*words, env=env)) is NOTHING_KNOWN
    unsealed = row("uvx", "arxiv-mcp-server").model_copy(update={"seal": False})
    assert known_of(unsealed) is NOTHING_KNOWN
    assert known_of(row("uvx", "Arxiv_MCP.server==0.8.2", "--storage-path", "/x")).name == "arxiv-mcp-server"
    assert known_of(row("npx", "-y", f"{FILESYSTEM}@latest", "/x")).name == FILESYSTEM


def test_what_is_known_is_well_formed() -> None:
    """An entry with a mistake would be found by a user, at a question."""
    for packages in known_packages().values():
        for name, known in packages.items():
            assert known != Known(name=name), "it says something"
            for host in known.hosts:
                assert str(parse_destination(host)) == host
                assert not host.startswith("localhost")


def test_tools_write_by_their_annotations_else_by_what_is_known(home: Path) -> None:
    """A tool that can only fail would be listed as any other; or a server that may write be told that it may not."""
    known = Known(writing_tools=("save", "load"))
    definitions = {
        "save": {"name": "save"},
        "load": {"annotations": {"readOnlyHint": True}},
        "put": {"annotations": {"readOnlyHint": False}},
        "drop": {"annotations": {"destructiveHint": True}},
        "odd": {"annotations": {"readOnlyHint": "no"}},
        "worse": None,
    }
    assert writing_tools(known, definitions) == ["save", "put", "drop"]
    assert writing_tools(known, {}) == ["save", "load"]
    script = home / "notes/server.py"
    script.touch()
    assert only_reads(row("npx", "-y", FILESYSTEM, read=[str(home / "notes")]))
    assert not only_reads(row("python", script, read=[str(home / "notes")]))
    assert not only_reads(row("npx", "-y", FILESYSTEM, read=["/a"], write=[str(home / "notes")]))
    assert not only_reads(row("npx", "-y", FILESYSTEM))


def test_servers_without_a_sandbox_of_ours_need_nothing(home: Path) -> None:
    """A remote server, or one that is trusted, would be asked for."""
    assert needs_of(StreamableHttpServerConfig(id="s", url="https://example.com/mcp"), os.environ).needs == ()
    assert needs_of(row("npx", "-y", FILESYSTEM, home / "notes", preset="trusted"), os.environ).needs == ()


def test_what_is_given_joins_what_the_row_has() -> None:
    """A yes would take away what was given before."""
    needs = [Need("write", "/b", ""), Need("grants", "browser", ""), Need("network", "a:1", "")]
    written = {"sandbox": {"read": ["/a"], "grants": ["display"], "network": "internet", "limits": {"processes": 9}}}
    assert sandbox_of(written, needs) == {
        "read": ["/a"], "write": ["/b"], "grants": ["display", "browser"], "network": ["a:1"],
        "limits": {"processes": 9},
    }  # fmt: skip
