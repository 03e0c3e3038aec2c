"""The product without the extra `native`: servers work, and the native tools that lack something say what."""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
from support.config.places import row, write_config
from support.processes.running import run

LEFT_OUT = ("ddgs", "primp", "lxml", "justhtml", "rg", "ripgrep")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with every package that this one has, but those that only native tools use."""
    home = tmp_path_factory.mktemp("without-native") / "venv"
    venv.create(home, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(LEFT_OUT) and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return home / "bin" / "python"


def ran(interpreter: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of the product, where no ripgrep is installed."""
    kept = [folder for folder in os.environ["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(folder, "rg"))]
    return run(interpreter, "-m", "quarterdeck.cli", *words, env=os.environ | {"PATH": os.pathsep.join(kept)})


def test_servers_start_and_answer_without_what_only_native_tools_use(interpreter: Path, own_directories: Path) -> None:
    """Whoever leaves the extra out would have nothing at all."""
    config = write_config(own_directories / "mcp.json", echo=row("echo"))
    called = ran(interpreter, "call", "echo__echo", '{"text": "hello"}', "-c", str(config))
    assert (called.returncode, called.stdout) == (0, "hello\n"), called.stderr


@pytest.mark.parametrize(
    ("tool", "arguments", "lack"),
    [
        ("websearch", {"query": "cats"}, "ddgs"),
        ("grep", {"pattern": "x"}, "rg (ripgrep)"),
        ("find", {"query": "x"}, "rg (ripgrep)"),
    ],
)
def test_a_native_tool_says_what_it_lacks(
    interpreter: Path, own_directories: Path, tmp_path: Path, tool: str, arguments: dict[str, str], lack: str
) -> None:
    """A model would report a broken tool, and its user not know what to install."""
    words = ("call", tool, json.dumps(arguments), "--profile", "authoring", "--workspace", str(tmp_path))
    ended = ran(interpreter, *words)
    assert ended.returncode == 1, ended.stderr
    assert (
        f"{lack} is not installed: install it with `pip install 'quarterdeck[native]'`" in ended.stdout + ended.stderr
    )
