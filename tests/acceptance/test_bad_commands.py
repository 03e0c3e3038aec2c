"""A command that cannot be started is told apart from every other trouble, and named."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers.real_endpoints import assert_fault, fault_at_open

from quarterdeck.interop import StdioServerConfig

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

Config = Callable[[Path], StdioServerConfig]


def script(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "server"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def command(name: str, **settings: str) -> Config:
    return lambda _: StdioServerConfig(id="bad", command=name, **settings)


def file(text: str, mode: int = 0o755) -> Config:
    return lambda folder: StdioServerConfig(id="bad", command=script(folder, text, mode))


def a_folder(folder: Path) -> StdioServerConfig:
    return StdioServerConfig(id="bad", command=str(folder))


def a_refused_name_on_the_path(folder: Path) -> StdioServerConfig:
    script(folder, "#!/bin/sh\n", 0o644)
    return StdioServerConfig(id="bad", command="server", env={"PATH": str(folder)})


def in_a_file(folder: Path) -> StdioServerConfig:
    return StdioServerConfig(id="bad", command="sh", cwd=script(folder, ""))


def in_a_closed_folder(folder: Path) -> StdioServerConfig:
    (folder / "closed").mkdir(mode=0o000)
    return StdioServerConfig(id="bad", command="sh", cwd=str(folder / "closed"))


CASES: dict[str, tuple[Config, str, str]] = {
    "missing": (command("no-such-command"), "command_not_found", "no-such-command is not on the server's PATH"),
    "missing path": (command("/no/such/command"), "command_not_found", "/no/such/command does not exist"),
    "missing interpreter": (file("#!/no/such/interpreter\n"), "command_not_found", "interpreter"),
    "not executable": (file("#!/bin/sh\n", 0o644), "not_executable", "server is not executable"),
    "not executable on PATH": (a_refused_name_on_the_path, "not_executable", "server is not executable"),
    "a folder": (a_folder, "not_executable", "is not executable"),
    "no shebang": (file("echo hello\n"), "not_executable", "lacks a first line"),
    "empty": (file(""), "not_executable", "lacks a first line"),
    "cwd missing": (command("sh", cwd="/no/such/folder"), "bad_cwd", "/no/such/folder does not exist"),
    "cwd a file": (in_a_file, "bad_cwd", "is not a directory"),
    "cwd closed": (in_a_closed_folder, "bad_cwd", "may not be entered"),
}


@pytest.mark.parametrize(("config", "code", "words"), CASES.values(), ids=CASES)
async def test_a_command_that_cannot_start_fails_the_open_with_its_reason(
    config: Config, code: str, words: str, tmp_path: Path
) -> None:
    """A typo in a configuration would else look like a server that hangs."""
    if config is in_a_closed_folder and os.geteuid() == 0:
        pytest.skip("root may enter every folder")
    fault = await fault_at_open(config(tmp_path))
    assert_fault(fault, "spawn_failed", code, "not_sent", words)
    assert fault.dossier is None
