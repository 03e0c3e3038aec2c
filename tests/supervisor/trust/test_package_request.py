"""Which package a command line asks for, and which of its words says so."""

import pytest

from quarterdeck.trust.package_request import Ecosystem, Request, request_of, runner_of

NPM, UV, PIPX, VENV = Ecosystem.NPM, Ecosystem.UV, Ecosystem.PIPX, Ecosystem.VENV


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("npx -y @scope/server@1.2 /data", Request(NPM, "@scope/server", "@scope/server@1.2")),
        ("/usr/bin/npx server", Request(NPM, "server", "server")),
        ("npx.cmd server@latest", Request(NPM, "server", "server@latest")),
        ("npx --package=other -- run it", Request(NPM, "other", "other")),
        ("npx -p other run", Request(NPM, "other", "other")),
        ("npx --registry https://example.org server", Request(NPM, "server", "server")),
        ("npm exec --yes -- server --flag", Request(NPM, "server", "server")),
        ("npm x server", Request(NPM, "server", "server")),
        ("uvx mcp-server-time --local-timezone UTC", Request(UV, "mcp-server-time", "mcp-server-time")),
        ("uvx --python 3.12 --with extra server==1.0", Request(UV, "server", "server==1.0")),
        ("uvx --from server[cli]>=2 run", Request(UV, "server", "server[cli]>=2")),
        ("uvx server@latest", Request(UV, "server", "server@latest")),
        ("uvx --from git+https://example.org/x.git server", Request(UV, "server", "server")),
        ("uvx --from ./here server", Request(UV, "server", "server")),
        ("uv tool run server", Request(UV, "server", "server")),
        ("pipx run server==1.0 --flag", Request(PIPX, "server", "server==1.0")),
        ("pipx run --python 3.12 --spec server[cli]>=2 run", Request(PIPX, "server", "server[cli]>=2")),
        ("/v/bin/python3.11 -m pkg.sub --flag", Request(VENV, "pkg.sub", "pkg.sub", is_module=True)),
        ("/v/bin/mcp-server-time", Request(VENV, "mcp-server-time", "mcp-server-time")),
    ],
)
def test_runners_are_asked_for_packages(line: str, request_: Request) -> None:
    """Options of the runner, versions and extras are no part of the name."""
    command, *args = line.split()
    assert request_of(command, args) == request_


@pytest.mark.parametrize(
    "line",
    [
        *("npx", "npx -y", "npx ./here", "npx ../../etc", "npx -p", "npm run build", "uvx"),
        *("uvx https://example.org/x.whl", "uv run server.py", "python server.py", "python -m", "node server.js"),
        *("pipx", "pipx run https://example.org/x.py", "server", "npx .hidden", "npx a/../b"),
    ],
)
def test_what_names_no_package_asks_for_none(line: str) -> None:
    """Nothing is guessed, and no place in a home is made of it."""
    command, *args = line.split()
    assert request_of(command, args) is None


@pytest.mark.parametrize(
    ("line", "runner"),
    [
        *(("npx -y server", "npm"), ("/usr/bin/npx.cmd server", "npm"), ("npm exec server", "npm")),
        *(("uvx server", "uv"), ("uv tool run server", "uv"), ("uv run server.py", "uv")),
        *(("pipx run server", "pipx"), ("bunx server", "bun"), ("bun x server", "bun"), ("pnpm dlx server", "pnpm")),
        *(("npm install server", None), ("uv", None), ("node server.js", None), ("python -m server", None)),
    ],
)
def test_who_fetches_what_it_runs_is_known(line: str, runner: str | None) -> None:
    """A first start by the others would have no more time than a server that hangs."""
    command, *args = line.split()
    assert runner_of(command, args) == runner
