"""Secrets of a configuration, and of the variables in it, stand nowhere but where the user wrote them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.config.places import write_config
from support.config.planted_secrets import BY_LOOKS, BY_PLACE, NUMBERS, SECRET
from support.processes.http_servers import forked_http_server
from support.serves.changing_server import connected
from support.serves.shared_serve import open_folder

from quarterdeck.config.places.paths import state_dir

EXPANDED = {
    "PLANTED_TOKEN": "tok-Wq3-first",
    "PLANTED_PLAIN": "second (with) marks & blanks",
    "PLANTED_QUERY": "thirdQueryPart1",
    "PLANTED_PATH": "fourthPathPart1",
    "PLANTED_INHERITED_KEY": "fifth-inherited-9",
}
"""Variables of the user's environment, some of them with names that do not say that they are secret."""

TELLTALE = """
import json, os, sys
print(json.dumps(sys.argv), json.dumps(dict(os.environ)), *sys.argv, *os.environ.values(), file=sys.stderr)
sys.exit(3)
"""
"""A server that tells all that it was given, and dies."""

ORDINARY = "/a-path-that-is-no-secret"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, value in EXPANDED.items():
        monkeypatch.setenv(name, value)
    for name in ("OTHER", "T"):
        monkeypatch.setenv(name, "plain")
    monkeypatch.setenv("PLANTED_FOLDER", ORDINARY)
    with open_folder() as root:
        (root / "telltale.py").write_text(TELLTALE)
        yield root


def rows(folder: Path, url: str) -> dict[str, Any]:
    script = str(folder / "telltale.py")
    planted = [*BY_PLACE, *NUMBERS, *((secret,) for secret in BY_LOOKS)]
    options = [*(arg for args in planted for arg in args), "${PLANTED_PLAIN}", "--at", "${PLANTED_FOLDER}"]
    common: dict[str, Any] = {"command": sys.executable, "sandbox": {"read": [str(folder)]}}
    remote = url.replace("/mcp", "/nothing-here/${PLANTED_PATH}?key=${PLANTED_QUERY}")
    return {
        "telltale": {
            **common,
            "args": [script, *options],
            "env": {"API_KEY": "${PLANTED_TOKEN}", "LITERAL_PASSWORD": SECRET, "WHERE": "${PLANTED_FOLDER}"},
            "inherit_env": ["PLANTED_INHERITED_KEY"],
        },
        "remote": {"type": "http", "url": remote, "headers": {"Authorization": "Bearer ${PLANTED_TOKEN}"}},
        "nobody": {"url": f"http://me:{SECRET}@127.0.0.1:9/${{PLANTED_PATH}}?code=${{PLANTED_QUERY}}"},
    }


def unhidden(text: str) -> list[str]:
    planted = {SECRET, "94123456", *BY_LOOKS, *EXPANDED.values()}
    return sorted(secret for secret in planted if secret in text or json.dumps(secret)[1:-1] in text)


async def test_no_secret_stands_in_clear_anywhere(folder: Path) -> None:
    """A token would lie in the ledger for good, or reach a client, a log and a bug report."""
    said: dict[str, str] = {}
    with forked_http_server() as url:
        write_config(folder / "mcp.json", **rows(folder, url))
        async with connected(folder / "mcp.json", folder) as client:
            await client.tools()
            for name in ("telltale", "remote", "nobody"):
                said[f"the answer of {name}"] = str(await client.call(f"{name}__anything"))
                for command in (("inspect", name), ("trust", "diff", name)):
                    said[" ".join(command)] = json.dumps(await client.command(*command))
            for command in (("ps",), ("config", "show"), ("trust", "list", "--all"), ("trust", "scan")):
                said[" ".join(command)] = json.dumps(await client.command(*command))
            said["ledger log"] = json.dumps(await client.ledger("log"))
    said["the log of serve"] = (folder / "serve.log").read_text()
    assert {what: found for what, text in said.items() if (found := unhidden(text))} == {}
    assert "exited with status 3" in said["ps"]
    assert "connect_failed" in said["ps"]
    files = [path for path in state_dir().rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"ledger.db", "stderr.log"}
    held = {path.name: path.read_bytes().decode("utf-8", "replace") for path in files}
    assert {name: found for name, text in held.items() if (found := unhidden(text))} == {}
    # What is ordinary is readable: a user looks for it.
    assert ORDINARY in held["stderr.log"]
    assert url.removesuffix("/mcp") in said["ps"]
