"""Programs where people have them, run under the ordinary policy: a home with its tools, and everything else in it."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.config.places import short_folder
from support.processes.running import output, run
from support.sandbox.machine_facts import ROOT_ONLY, bubblewrap_missing, installed_only, installing_missing
from support.servers.real_servers import install_tools

pytestmark = pytest.mark.nightly

INSTALL_S = 300.0
"""Tools are downloaded once for all tests of the module."""

RUN_S = 120.0
"""uvx downloads a package."""

PYENV_SHIM = """#!/usr/bin/env bash
set -e
[ -n "$PYENV_DEBUG" ] && set -x

program="${{0##*/}}"

export PYENV_ROOT="{root}"
exec "{root}/libexec/pyenv" exec "$program" "$@"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command's end, and what its sandbox showed it beyond the system."""

    code: int
    out: str
    err: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a home."""

    home: Path

    def run(self, *command: str | Path, path: str = "", cwd: Path = Path("/"), options: tuple[str, ...] = ()) -> Ran:
        """What `quarterdeck sandbox run` makes of a command."""
        report = self.home / "report.json"
        report.unlink(missing_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYENV", "UV_"))}
        env |= {"HOME": str(self.home), "PATH": os.pathsep.join(filter(None, (path, "/usr/local/bin:/usr/bin:/bin")))}
        argv = [sys.executable, "-m", "quarterdeck.cli", "sandbox", "run", "--json", str(report), *options, "--"]
        done = run(*argv, *command, env=env, within_s=RUN_S, cwd=cwd)
        receipt = json.loads(report.read_text())["receipt"] if report.exists() else None
        shown = receipt["shown"] if receipt else ()
        return Ran(done.returncode, done.stdout, done.stderr, tuple(shown))


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    """A home with secrets in it; apart from /tmp, which is everyone's."""
    with short_folder(parent="/var/tmp") as home:
        for file in (".ssh/id_rsa", ".aws/credentials", "documents/diary"):
            (home / file).parent.mkdir(parents=True)
            (home / file).write_text("secret\n")
        (home / ".gitconfig").write_text("[user]\n\tname = Ada\n")
        yield Person(home)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = install_tools(tmp_path_factory.getbasetemp())
    if found.missing:
        pytest.skip(found.missing)
    return Path(found.argv[0])


def test_a_virtual_environment_in_a_home(person: Person) -> None:
    """The commonest server of all: a project's own Python."""
    venv = person.home / "proj/.venv"
    output(sys.executable, "-m", "venv", "--without-pip", venv, within_s=INSTALL_S)
    (person.home / "proj/.env").write_text("KEY=secret\n")
    ran = person.run(venv / "bin/python", "-c", "import sys, asyncio; print(sys.prefix)")
    assert ran.out == f"{venv}\n", ran.err
    assert f"read: {venv} (a virtual environment)" in ran.shown
    reading = person.run(venv / "bin/python", "-c", f"open('{person.home}/proj/.env')")
    assert (reading.code, "Error" in reading.err) == (1, True)
    if not bubblewrap_missing():  # Landlock hides what is in a file, not that it is there
        look = f"import os; print(os.path.exists('{person.home}/proj/.env'), sorted(os.listdir('{person.home}')))"
        assert person.run(venv / "bin/python", "-c", look).out == "False ['proj']\n"


def test_uvx_from_an_empty_cache(person: Person, tools: Path) -> None:
    """It executes the uv beside it, downloads, and installs below its own home."""
    if reason := installing_missing():
        pytest.skip(reason)
    binaries = person.home / ".local/bin"
    binaries.mkdir(parents=True, exist_ok=True)
    for name in ("uv", "uvx"):
        shutil.copy2(tools / name, binaries / name)
    ran = person.run("uvx", "--python", "/usr/bin/python3", "cowsay", "-t", "moo", path=str(binaries))
    if ran.code and "dns error" in ran.err:
        pytest.skip("no package index within reach of a sandbox")
    assert "moo" in ran.out, ran.err
    assert f"read: {binaries}/uv (the program)" in ran.shown
    assert not any("documents" in line for line in ran.shown)


def test_a_tool_that_pipx_installed(person: Person, tools: Path) -> None:
    """A link in ~/.local/bin to a script of an environment elsewhere."""
    home = person.home
    env = {
        **os.environ,
        "HOME": str(home),
        "PIPX_HOME": f"{home}/.local/share/pipx",
        "PIPX_BIN_DIR": f"{home}/.local/bin",
    }
    output(tools / "pipx", "install", "cowsay", env=env, within_s=INSTALL_S)
    ran = person.run("cowsay", "-t", "moo", path=f"{home}/.local/bin")
    assert "moo" in ran.out, ran.err
    assert f"read: {home}/.local/share/pipx/venvs/cowsay (a virtual environment)" in ran.shown


@installed_only("node")
def test_node_of_nvm(person: Person) -> None:
    """Npx is a link to a script that looks for node on the PATH, and starts more of itself."""
    version = person.home / ".nvm/versions/node/v20"
    node = Path(os.path.realpath(shutil.which("node") or ""))
    (version / "bin").mkdir(parents=True)
    (version / "include/node").mkdir(parents=True)
    shutil.copy2(node, version / "bin/node")
    npm = node.parent.parent / "lib/node_modules/npm"
    if not npm.is_dir():
        pytest.skip("npm is not installed")
    shutil.copytree(npm, version / "lib/node_modules/npm", symlinks=True)
    (version / "bin/npx").symlink_to("../lib/node_modules/npm/bin/npx-cli.js")
    path = str(version / "bin")
    program = "require('child_process').spawn('node', ['-p', 'process.execPath'], {stdio: 'inherit'})"
    ran = person.run("node", "-e", program, path=path)
    assert ran.out == f"{version}/bin/node\n", ran.err
    assert ran.shown == (f"read: {version} (a node)",)
    ran = person.run("npx", "--version", path=path)
    assert ran.code == 0, ran.err
    assert ran.out[0].isdigit()


def test_a_shim_of_pyenv(person: Person) -> None:
    """The version is named by a file above the directory that it starts in, which nobody shows."""
    root = person.home / ".pyenv"
    version = root / "versions/proj"
    output(sys.executable, "-m", "venv", "--without-pip", version, within_s=INSTALL_S)
    (root / "shims").mkdir()
    shim = root / "shims/python"
    shim.write_text(PYENV_SHIM.format(root=root))
    shim.chmod(0o755)
    deep = person.home / "work/deep"
    deep.mkdir(parents=True)
    (person.home / "work/.python-version").write_text("proj\n")
    program = "import os, sys, shutil; print(os.getcwd(), sys.prefix, shutil.which('python'))"
    ran = person.run("python", "-c", program, path=str(shim.parent), cwd=deep, options=("--read", str(deep)))
    assert ran.out == f"{deep} {version} {version}/bin/python\n", ran.err
    assert f"read: {version} (a virtual environment)" in ran.shown


@ROOT_ONLY
def test_a_package_in_opt() -> None:
    """It finds its own files beside it."""
    with short_folder(parent="/var/tmp") as home, short_folder(0o755, "/opt") as package:
        tool = package / "bin/tool"
        tool.parent.mkdir()
        tool.write_text('#!/bin/sh\ncat "${0%/bin/*}/share/text"\n')
        tool.chmod(0o755)
        Path(package, "share").mkdir()
        Path(package, "share/text").write_text("found\n")
        ran = Person(Path(home)).run(tool)
        assert ran.out == "found\n", ran.err
        assert ran.shown == (f"read: {package} (a package in /opt)",)


def test_an_argument_that_is_hidden_is_an_error_before_anything_starts(person: Person) -> None:
    """The user learns what to add, and the server never wonders."""
    documents = person.home / "documents"
    ran = person.run("/bin/ls", documents)
    assert ran.code == 125
    told = " ".join(ran.err.split())
    assert f"{documents} is hidden: add --read {documents} or --write {documents}" in told
    assert person.run("/bin/ls", documents, options=("--read", str(documents))).out == "diary\n"


def test_what_it_looked_for_in_vain_is_hinted_at(person: Person) -> None:
    """It names the user's file, although it was looked for in another home."""
    ran = person.run("/bin/sh", "-c", f"cat {person.home}/.aws/credentials")
    assert ran.code == 1
    hints = json.loads((person.home / "report.json").read_text())["dossier"]["hints"]
    assert f'{person.home}/.aws/credentials exists but is hidden; add "grants": ["aws"]' in hints


def test_a_grant_gives_what_it_names(person: Person) -> None:
    """Git would not know who commits."""
    ran = person.run("git", "config", "user.name", options=("--grant", "git-config"))
    assert ran.out == "Ada\n", ran.err
    assert ran.shown == (f"git-config: {person.home}/.gitconfig",)
