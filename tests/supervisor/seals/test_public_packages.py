"""Public servers, sealed and started without a network and with an empty home: equal to what a runner starts."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from support.clients.direct_client import open_direct
from support.servers.real_servers import install_tools

from quarterdeck.seals.install import InstallSettings, seal
from quarterdeck.seals.launch import launch_of
from quarterdeck.seals.request import PackageRequest, request_of
from quarterdeck.seals.store import SealStore

pytestmark = pytest.mark.nightly

LINES = (
    "npx -y @modelcontextprotocol/server-everything",
    "npx -y @modelcontextprotocol/server-filesystem /tmp",
    "npx -y @modelcontextprotocol/server-memory",
    "npx -y @modelcontextprotocol/server-sequential-thinking",
    "npx -y @modelcontextprotocol/server-puppeteer",
    "uvx mcp-server-time",
    "uvx mcp-server-fetch",
    "uvx mcp-server-git",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with uv on it."""
    found = install_tools(tmp_path_factory.getbasetemp())
    return os.environ["PATH"] if found.missing else os.pathsep.join((found.argv[0], os.environ["PATH"]))


@pytest.mark.parametrize("line", LINES)
async def test_a_public_server_offers_from_its_seal_what_it_offers_from_its_runner(
    line: str, path: str, tmp_path: Path
) -> None:
    """A sealed server would start with other tools, or not at all."""
    command, *args = line.split()
    environ = {**os.environ, "PATH": path, "PUPPETEER_SKIP_DOWNLOAD": "true"}  # its browser comes from elsewhere
    program = shutil.which(command, path=path)
    if program is None:
        pytest.skip(f"{command} is not installed")
    asked = request_of(command, args)
    assert isinstance(asked, PackageRequest)
    sealed = await seal(asked, SealStore(tmp_path / "seals"), InstallSettings(environ, Path.home()))
    launch = launch_of(sealed, asked, path)
    read = [word for path in launch.read for word in ("--read", path)]
    confined = ("-m", "quarterdeck.cli", "sandbox", "run", "--network", "none", *read, "--", launch.command)
    state = {"QUARTERDECK_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
    async with open_direct(sys.executable, [*confined, *launch.args], state) as connection:
        found = await connection.list_tools()
    async with open_direct(program, args, environ) as connection:
        assert found == await connection.list_tools()
