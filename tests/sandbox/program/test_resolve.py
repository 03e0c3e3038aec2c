"""Finding what a program needs, in homes as people have them."""

import os
from pathlib import Path

import pytest
from sandbox.homes import ELF, Home, make_home

from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.program.resolve import Program

PYENV = '#!/usr/bin/env bash\nprogram="${{0##*/}}"\nexec "{0}/libexec/pyenv" exec "$program" "$@"\n'
ASDF = '#!/usr/bin/env bash\n# asdf-plugin: nodejs 20.1.0\nexec {0}/bin/asdf exec "node" "$@"\n'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path)


def needs(program: Program) -> list[str]:
    return [prefix.path for prefix in program.prefixes]


def refused(home: Home, command: str | Path, *, code: str, path: tuple[Path, ...] = (), **env: str) -> str:
    with pytest.raises(LaunchError) as caught:
        home.resolve(home.plan(command, path=path, **env))
    assert caught.value.code == code
    return str(caught.value)


def test_a_program_of_the_system_needs_nothing(home: Home) -> None:
    """Every receipt would list what everybody sees anyway."""
    assert home.resolve(home.plan("sh")) == Program("/usr/bin/sh")


def test_a_virtual_environment_brings_the_python_that_it_was_made_from(home: Home) -> None:
    """Its interpreter would be a dangling link inside."""
    base = home.python("py")
    python = home.venv("proj/.venv", base)
    script = home.program("proj/.venv/bin/server", f"#!{python}\n")
    for command in (python, script):
        program = home.resolve(home.plan(command))
        assert program.path == str(command)
        assert needs(program) == [str(home.user / "proj/.venv"), str(home.user / "py")]


def test_an_environment_cannot_say_that_a_package_in_opt_is_its_python(home: Home) -> None:
    """A server that can write to its environment would read all of that package at its next start."""
    python = home.venv("proj/.venv", Path("/opt/no-such-package/python"))
    python.unlink()
    python.symlink_to("/usr/bin/python3")
    assert needs(home.resolve(home.plan(python))) == [str(home.user / "proj/.venv")]


def test_a_pipe_in_an_environment_is_not_waited_for(home: Home) -> None:
    """A server could have its next start never end."""
    python = home.venv("proj/.venv", Path("/usr/bin/python3"))
    os.mkfifo(home.file("proj/.venv/lib/python3.12/site-packages/x").with_name("pipe.pth"))
    assert needs(home.resolve(home.plan(python))) == [str(home.user / "proj/.venv")]


def test_an_editable_install_is_found_where_its_environment_says(home: Home) -> None:
    """A server under development would not find its own package."""
    home.file("proj/src/server.py")
    python = home.venv("proj/.venv", Path("/usr/bin/python3"))
    home.file("proj/.venv/lib/python3.12/site-packages/_proj.pth", f"import os\n# no\n{home.user}/proj/src\n")
    program = home.resolve(home.plan(python))
    assert needs(program) == [str(home.user / "proj/.venv"), str(home.user / "proj/src")]
    assert program.prefixes[1].said_by == (f"{home.user}/proj/.venv/lib/python3.12/site-packages/_proj.pth",)


def test_an_environment_cannot_refer_to_a_whole_home(home: Home) -> None:
    """A line in a file of an installed package would show everything."""
    home.file(".ssh/id")
    python = home.venv("venv", Path("/usr/bin/python3"))
    home.file("venv/lib/python3.12/site-packages/evil.pth", f"{home.user}\n/\n{home.user}/.ssh\n../../../../..\n")
    assert needs(home.resolve(home.plan(python))) == [str(home.user / "venv")]


def test_a_tool_of_pipx_leads_to_its_environment_and_leaves_its_link(home: Home) -> None:
    """`~/.local/bin` holds links only; all of it would be shown, or none of what it takes."""
    python = home.venv(".local/share/pipx/venvs/tool", Path("/usr/bin/python3"))
    script = home.program(".local/share/pipx/venvs/tool/bin/tool", f"#!{python}\n")
    link = home.link(".local/bin/tool", script)
    home.program(".local/bin/other")
    program = home.resolve(home.plan("tool", path=[link.parent]))
    assert needs(program) == [str(home.user / ".local/share/pipx/venvs/tool")]
    assert program.links == ((str(link), str(script)),)


def test_a_node_of_nvm_brings_its_whole_version(home: Home) -> None:
    """Npx is a link into its packages and looks for node on the PATH."""
    node = home.program(".nvm/versions/node/v20/bin/node", ELF)
    home.file(".nvm/versions/node/v20/include/node/node.h")
    home.program(".nvm/versions/node/v20/lib/node_modules/npm/bin/npx-cli.js", "#!/usr/bin/env node\n")
    home.link(".nvm/versions/node/v20/bin/npx", "../lib/node_modules/npm/bin/npx-cli.js")
    program = home.resolve(home.plan("npx", path=[node.parent]))
    assert needs(program) == [str(home.user / ".nvm/versions/node/v20")]
    assert not program.links
    assert not program.env


def test_a_link_to_a_folder_on_the_path_is_kept(home: Home) -> None:
    """Fnm links a folder for each shell: what runs there would not find its neighbours."""
    node = home.program(".local/share/fnm/node-versions/v20/installation/bin/node", ELF)
    home.file(".local/share/fnm/node-versions/v20/installation/include/node/node.h")
    shell = home.link("multishell", node.parent.parent)
    program = home.resolve(home.plan("node", path=[shell / "bin"]))
    assert program.path == str(shell / "bin/node")
    assert program.links == ((str(shell), str(node.parent.parent)),)
    assert needs(program) == [str(node.parent.parent)]


def test_packages_of_a_project_are_shown_without_the_project(home: Home) -> None:
    """A tool among a project's packages would bring the project's secrets along."""
    home.file("proj/.env")
    home.program("proj/node_modules/tool/cli.js", "#!/usr/bin/env sh\n")
    home.link("proj/node_modules/.bin/tool", "../tool/cli.js")
    program = home.resolve(home.plan(home.user / "proj/node_modules/.bin/tool"))
    assert needs(program) == [str(home.user / "proj/node_modules")]


def test_a_script_of_ones_own_is_shown_alone(home: Home) -> None:
    """`~/bin` is full of other things."""
    script = home.program("bin/start")
    assert needs(home.resolve(home.plan(script))) == [str(script)]


def test_a_script_of_pip_install_user_finds_its_packages(home: Home) -> None:
    """They are looked for in the home, which is another one inside."""
    script = home.program(".local/bin/tool", "#!/usr/bin/python3\n")
    home.file(".local/lib/python3.11/site-packages/tool.py")
    program = home.resolve(home.plan(script))
    assert needs(program) == [str(script), str(home.user / ".local/lib/python3.11/site-packages")]
    assert program.env == {"PYTHONUSERBASE": str(home.user / ".local")}


def test_uv_finds_its_other_half_and_the_pythons_it_installed(home: Home) -> None:
    """Uvx executes the uv beside it; every Python would be downloaded once more."""
    uvx, uv = home.program(".local/bin/uvx", ELF), home.program(".local/bin/uv", ELF)
    python = home.python(".local/share/uv/python/cpython-3.12.1-linux")
    program = home.resolve(home.plan("uvx", path=[uv.parent]))
    assert needs(program) == [str(uv), str(uvx), str(python.parent.parent)]
    assert program.env["PATH"].endswith(f":{python.parent}")


@pytest.mark.parametrize("said", ["file", "environment", "global", "beginning"])
def test_a_shim_of_pyenv_is_seen_through(home: Home, said: str) -> None:
    """It looks for versions above the working directory, which is hidden inside."""
    root = home.user / ".pyenv"
    shim = home.program(".pyenv/shims/python3.12", PYENV.format(root))
    home.python(".pyenv/versions/3.11.9")
    python = home.python(".pyenv/versions/3.12.1")
    env = {}
    match said:
        case "file":
            home.file(".local/state/quarterdeck/.python-version", "3.12.1\n")
        case "environment":
            env["PYENV_VERSION"] = "3.12.1"
        case "global":
            home.file(".pyenv/version", "3.12.1\n")
        case "beginning":
            home.file(".pyenv/version", "3.12\n")
    program = home.resolve(home.plan("python3.12", path=[shim.parent], **env))
    assert program.path == str(python)
    assert needs(program) == [str(python.parent.parent)]
    assert program.env["PATH"].startswith(f"{python.parent}:{shim.parent}:")


def test_a_shim_without_its_version_says_which_and_who_asked(home: Home) -> None:
    """Pyenv's own complaint would come from inside, about files that are hidden there."""
    shim = home.program(".pyenv/shims/python", PYENV.format(home.user / ".pyenv"))
    asked = home.file(".pyenv/version", "3.9.1\n")
    message = refused(home, "python", path=(shim.parent,), code="command_not_found")
    assert message.startswith(f"pyenv has no python in 3.9.1 (asked for by {asked})")


def test_a_shim_for_the_systems_version_stands_for_the_next_on_the_path(home: Home) -> None:
    """It would find itself, and so for ever."""
    shim = home.program(".pyenv/shims/sh", PYENV.format(home.user / ".pyenv"))
    program = home.resolve(home.plan("sh", path=[shim.parent], PYENV_VERSION="system"))
    assert program.path == "/usr/bin/sh"
    assert str(shim.parent) not in program.env["PATH"].split(os.pathsep)


@pytest.mark.parametrize("version", ["../../../../..", "/", "..", "3.1/../../.."])
def test_a_version_leads_nowhere_but_to_versions(home: Home, version: str) -> None:
    """A project's file would name any program of this machine."""
    shim = home.program(".pyenv/shims/tool", PYENV.format(home.user / ".pyenv"))
    home.program("bin/tool")
    refused(home, "tool", path=(shim.parent,), code="command_not_found", PYENV_VERSION=version)


def test_shims_of_asdf_and_mise_are_seen_through(home: Home) -> None:
    """So are those that look for `.tool-versions` in the home, and for their data."""
    home.file(".tool-versions", "python 3.12\nnodejs 20.1.0 # current\n")
    for data in (".asdf", ".local/share/mise"):
        home.program(f"{data}/installs/nodejs/20.1.0/bin/node", ELF)
        home.file(f"{data}/installs/nodejs/20.1.0/include/node/node.h")
    asdf = home.program(".asdf/shims/node", ASDF.format(home.user / ".asdf"))
    mise = home.link(".local/share/mise/shims/node", home.program(".local/bin/mise", ELF))
    for shim, data in ((asdf, ".asdf"), (mise, ".local/share/mise")):
        program = home.resolve(home.plan("node", path=[shim.parent]))
        version = home.user / data / "installs/nodejs/20.1.0"
        assert program.path == str(version / "bin/node")
        assert needs(program) == [str(version)]


def test_mise_reads_its_own_settings_first(home: Home) -> None:
    """Another version than outside would run."""
    for version in ("18.0.0", "20.1.0", "20.10.0"):
        home.program(f".local/share/mise/installs/node/{version}/bin/node", ELF)
    mise = home.link(".local/share/mise/shims/node", home.program(".local/bin/mise", ELF))
    home.file("mise.toml", '[tools]\nnode = {version = "20"}\n')
    home.file(".tool-versions", "node 18.0.0\n")
    program = home.resolve(home.plan("node", path=[mise.parent]))
    assert program.path.endswith("/installs/node/20.10.0/bin/node")


def test_volta_is_seen_through(home: Home) -> None:
    """Its shims read settings in the home."""
    node = home.program(".volta/tools/image/node/20.1.0/bin/node", ELF)
    home.file(".volta/tools/user/platform.json", '{"node": {"runtime": "20.1.0"}}')
    shim = home.link(".volta/bin/node", home.program(".volta/bin/volta-shim", ELF))
    assert home.resolve(home.plan("node", path=[shim.parent])).path == str(node)


@pytest.mark.parametrize("line", ["#!/usr/bin/env tool", "#!/usr/bin/env -S A=1 tool -x", "#! /usr/bin/env -S -i tool"])
def test_an_interpreter_on_the_path_is_looked_up_on_the_servers(home: Home, line: str) -> None:
    """It would be missing inside, or another."""
    tool = home.program("tools/tool", ELF)
    script = home.program("script", line + "\n")
    program = home.resolve(home.plan(script, path=[tool.parent]))
    assert str(tool) in needs(program)


def test_env_as_a_command_is_seen_through(home: Home) -> None:
    """What it executes would be hidden."""
    tool = home.program("tools/tool")
    assert needs(home.resolve(home.plan("env", "A=1", "tool", path=[tool.parent]))) == [str(tool)]


def test_a_first_line_too_long_for_the_kernel_is_followed_as_written_for_the_shell(home: Home) -> None:
    """Pip and uv write such scripts into environments with long paths."""
    python = home.venv("a venv", Path("/usr/bin/python3"))
    script = home.program("tool", f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n")
    assert str(home.user / "a venv") in needs(home.resolve(home.plan(script)))


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("echo hi\n", "not_executable", "lacks a first line"),
        ("", "not_executable", "lacks a first line"),
        ("#!\n", "not_executable", "has no interpreter"),
        ("#!/nowhere/python\n", "command_not_found", "/nowhere/python"),
        ("#!/etc/passwd\n", "not_executable", "/etc/passwd is not executable"),
        ("#!/usr/bin/env nothing-like-it\n", "command_not_found", "nothing-like-it"),
        (ELF.replace(b"/lib64/ld-linux-", b"/lib64/no-linux-"), "command_not_found", "its loader"),
    ],
)
def test_what_the_kernel_would_refuse_is_refused_before_it_starts(
    home: Home, text: str | bytes, code: str, why: str
) -> None:
    """The refusal would come from inside a sandbox, where the path means something else."""
    if isinstance(text, bytes) and text == ELF:
        pytest.skip("the shell of this machine has another loader")
    if code == "not_executable" and "lacks" in why and set(_formats()) - {"register", "status"}:
        pytest.skip("this kernel was taught more formats")
    assert why in refused(home, home.program("tool", text), code=code)


def _formats() -> list[str]:
    try:
        return os.listdir("/proc/sys/fs/binfmt_misc")
    except OSError:
        return []


def test_scripts_that_interpret_each_other_end(home: Home) -> None:
    """A server's start would never return."""
    script = home.program("a", f"#!{home.user}/b\n")
    home.program("b", f"#!{script}\n")
    assert "too many" in refused(home, script, code="not_executable")
