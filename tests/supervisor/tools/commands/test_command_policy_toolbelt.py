"""The user's tools, in homes as people have them."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from sandbox.homes import ELF, Home, make_home

from quarterdeck.tools.commands import command_policy
from quarterdeck.tools.commands.command_policy import Toolbelt, pack

PYENV = '#!/usr/bin/env bash\nprogram="${{0##*/}}"\nexec "{0}/libexec/pyenv" exec "$program" "$@"\n'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """One with a workspace."""
    home = make_home(tmp_path)
    (home.user / "work").mkdir()
    return home


def packed(home: Home, *folders: Path | str, environ: Mapping[str, str] | None = None) -> Toolbelt:
    """What a PATH of these folders, then the system's, takes."""
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    work = str(home.user / "work")
    return pack({"PATH": path}, work, str(home.user), environ or {}, (work,))


def relative(home: Home, belt: Toolbelt) -> list[str]:
    """What is shown, from the home."""
    return [os.path.relpath(path, home.user) for path in belt.read]


def test_the_systems_programs_need_nothing(home: Home) -> None:
    """Every start would mount what is shown anyway."""
    assert packed(home).path == "/usr/bin:/bin"
    assert packed(home, "relative", "", "/no/such/folder") == packed(home)


def test_a_virtual_environment_is_shown_with_its_python(home: Home) -> None:
    """The user's `python` would be a dangling link."""
    home.venv("venvs/tools", home.python("py"))
    belt = packed(home, home.user / "venvs/tools/bin")
    assert relative(home, belt) == ["py", "venvs/tools"]
    assert belt.path.split(":")[0] == str(home.user / "venvs/tools/bin")


def test_the_workspaces_own_environment_brings_its_python(home: Home) -> None:
    """An activated environment in the project, the most usual of all, would not run."""
    home.venv("work/.venv", home.python("py"))
    assert "py" in relative(home, packed(home, home.user / "work/.venv/bin"))


def test_a_file_that_commands_can_change_shows_nothing(home: Home) -> None:
    """A command could have its successors see any folder of the user's."""
    home.venv("work/.venv", Path("/usr/bin/python3"))
    home.file("diary/today")
    home.file("work/.venv/lib/python3.12/site-packages/evil.pth", f"{home.user}/diary\n")
    assert relative(home, packed(home, home.user / "work/.venv/bin")) == ["work/.venv"]


def test_shims_are_replaced_by_what_they_stand_for(home: Home) -> None:
    """Inside, a shim would find neither its manager's settings nor the versions."""
    root = home.user / ".pyenv"
    for version in ("3.12.1", "3.11.0"):
        home.python(f".pyenv/versions/{version}")
        home.program(f".pyenv/versions/{version}/bin/python", ELF)
    for name in ("python", "only-in-no-version"):
        home.program(f".pyenv/shims/{name}", PYENV.format(root))
    home.file(".pyenv/version", "3.12.1\n")
    home.file("work/.python-version", "3.11.0\n")
    belt = packed(home, root / "shims")
    assert belt.path == f"{root}/versions/3.11.0/bin:/usr/bin:/bin"
    assert relative(home, belt) == [".pyenv/versions/3.11.0"]


def test_programs_in_a_home_are_shown_with_what_they_link_to(home: Home) -> None:
    """Tools of `uv tool install` and `pipx` would be dangling links, or the whole home open."""
    home.venv(".local/share/uv/tools/black", home.python(".local/share/uv/python/cpython-3.12"))
    script = home.program(
        ".local/share/uv/tools/black/bin/black", f"#!{home.user}/.local/share/uv/tools/black/bin/python\n"
    )
    home.link(".local/bin/black", script)
    home.program(".local/bin/mine", "#!/bin/sh\n")
    home.file(".local/bin/notes")
    belt = packed(home, home.user / ".local/bin")
    assert relative(home, belt) == [
        ".local/bin",
        ".local/share/uv/python/cpython-3.12",
        ".local/share/uv/tools/black",
    ]


def test_a_link_of_the_system_into_a_package_is_followed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/usr/local/bin/node` is often a link to where node really is."""
    system = home.root / "system"
    monkeypatch.setattr(command_policy, "SYSTEM_FOLDERS", (*command_policy.SYSTEM_FOLDERS, str(system)))
    home.program("node/bin/node", ELF)
    home.file("node/include/node/node.h")
    (system / "bin").mkdir(parents=True)
    (system / "bin" / "node").symlink_to(home.user / "node/bin/node")
    assert relative(home, packed(home, system / "bin")) == ["node"]


def test_rust_finds_its_tools(home: Home) -> None:
    """`cargo` would say that no toolchain is installed, or the registry's token be shown."""
    home.program(".cargo/bin/rustup", ELF)
    home.link(".cargo/bin/cargo", "rustup")
    home.file(".cargo/credentials.toml", "token")
    home.file(".rustup/toolchains/stable/bin/cargo")
    belt = packed(home, home.user / ".cargo/bin")
    assert relative(home, belt) == [".cargo/bin", ".rustup"]
    assert belt.env == {"RUSTUP_HOME": str(home.user / ".rustup")}


def test_a_path_through_a_whole_home_or_credentials_shows_neither(home: Home) -> None:
    """A careless PATH would open keys and everything else to every command."""
    home.file(".ssh/id", "key")
    home.program(".ssh/bin/tool", ELF)
    home.program("tool", ELF)
    home.link("bin/leak", home.user / ".ssh/id").parent.mkdir(exist_ok=True)
    belt = packed(home, home.user, home.user / ".ssh/bin", home.user / "bin", "/")
    assert not any(os.path.realpath(path).startswith(f"{home.user}/.ssh") for path in belt.read)
    assert str(home.user) not in belt.read
    assert "/" not in belt.read


def test_only_so_many_programs_are_looked_at(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a million files would hold the first command for minutes."""
    monkeypatch.setattr(command_policy, "MAX_PROGRAMS", 3)
    looked: list[str] = []
    resolve = command_policy.resolve_program
    monkeypatch.setattr(
        command_policy, "resolve_program", lambda plan, *rest: (looked.append(plan.program), resolve(plan, *rest))[1]
    )
    for number in range(10):
        home.program(f"bin/tool{number}", ELF)
    packed(home, home.user / "bin")
    assert len(looked) == 3
