"""The product without the extra `native`: servers work, and the native tools that lack something say what."""

import os
import sysconfig
import venv
from pathlib import Path

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT
from support.serves.native_serves import make_project, native, text_of

LEFT_OUT = ("ddgs", "primp", "lxml", "justhtml", "rg", "ripgrep")


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """A Python with every package that this one has, but those that only native tools use."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(LEFT_OUT) and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return home / "bin" / "python"


@pytest.mark.nightly
def test_servers_answer_and_native_tools_say_what_they_lack(interpreter: Path, own_directories: Path) -> None:
    """Whoever leaves the extra out would have nothing at all; or a broken tool, and not know what to install."""
    config = write_config(own_directories / "mcp.json", echo=row("echo"))
    workspace = make_project(own_directories / "workspace")
    words = ("serve", "-c", str(config), *PATIENT, *native(workspace, "authoring"))
    kept = [folder for folder in os.environ["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(folder, "rg"))]
    environ = os.environ | {"PATH": os.pathsep.join(kept)}
    argv = [str(interpreter), "-m", "quarterdeck.cli", *words]
    with RawStdioClient(argv, env=environ, deadline_s=DEADLINE_S) as client:
        client.initialize()
        assert client.call("echo__echo", text="hello")["content"][0]["text"] == "hello"
        for tool, arguments, lack in (
            ("websearch", {"query": "cats"}, "ddgs"),
            ("grep", {"pattern": "x"}, "rg (ripgrep)"),
            ("find", {"query": "x"}, "rg (ripgrep)"),
        ):
            result = client.call(tool, **arguments)
            assert result["isError"], tool
            assert f"{lack} is not installed: install it with `pip install 'quarterdeck[native]'`" in text_of(result)
