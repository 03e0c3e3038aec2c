"""What a session's commands run under: the user's tools and nothing else of theirs."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox.homes import ELF, Home, make_home
from support.processes.identities import give_to_commands

from quarterdeck.tools.commands import command_policy
from quarterdeck.tools.commands.command_policy import CommandPolicy, UserPrograms, find_user_programs
from quarterdeck.tools.commands.shell import CommandSetup
from quarterdeck.tools.installed import ripgrep_path
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_sandbox.doctor.probe import known_machine

from .command_sessions import ENVIRON, lay_out, session

pytestmark = pytest.mark.process  # a policy asks the gate, once for each process of the tests


@pytest.fixture
def bench(tmp_path: Path) -> CommandPolicy:
    """One whose user has a home."""
    home = make_home(tmp_path)
    return replace(lay_out(tmp_path), user_home=home.user)


def shown(setup: CommandSetup) -> list[str]:
    """What is shown for the tools, our own searcher left out."""
    return [path for path in setup.policy.read if os.path.basename(path) != "rg"]


def test_commands_may_change_the_workspace_and_the_allowed_directories(bench: CommandPolicy, tmp_path: Path) -> None:
    """An agent could not work, or could change what it was not given."""
    setup = replace(bench, allowed=(f"{tmp_path}/more/",)).setup()
    assert setup.policy.write == (bench.workspace, f"{tmp_path}/more")
    assert setup.requester.places.private == bench.private
    assert shown(setup) == []


def test_a_policy_of_the_users_is_kept(bench: CommandPolicy, tmp_path: Path) -> None:
    """What a user wrote about network and limits would be dropped."""
    policy = SandboxPolicy.model_validate(
        {"preset": "strict", "read": ["/opt"], "write": [str(tmp_path)], "limits": {"wall_s": 7}}
    )
    setup = replace(bench, policy=policy).setup()
    assert setup.policy.write == (str(tmp_path), bench.workspace)
    assert setup.policy.network is NetworkMode.NONE
    assert setup.policy.limits.wall_s == 7
    assert setup.policy.read[0] == "/opt"


def test_a_trusted_policy_stays_as_it_is(bench: CommandPolicy) -> None:
    """Commands that are not confined need nothing shown, and no view is built for them."""
    setup = replace(bench, policy=SandboxPolicy.model_validate({"preset": "trusted"})).setup()
    assert (setup.policy.read, setup.policy.write) == ((), ())
    assert setup.env["HOME"] == str(bench.home)


def test_the_environment_is_the_allow_list_and_what_the_policy_names(bench: CommandPolicy) -> None:
    """A token in our environment would be in every command's."""
    environ = {**ENVIRON, "GITHUB_TOKEN": "secret", "EDITOR": "vi", "HOME": "/home/u"}
    policy = SandboxPolicy.model_validate({"environment": ["EDITOR"]})
    env = replace(bench, environ=environ, policy=policy).setup().env
    assert env["EDITOR"] == "vi"
    assert env["HOME"] == str(bench.home)
    assert env["TMPDIR"] == str(bench.tmp)
    assert "GITHUB_TOKEN" not in env


def test_a_tool_that_may_not_be_shown_is_left_out(bench: CommandPolicy, tmp_path: Path) -> None:
    """One odd folder on the PATH would keep every command from starting."""
    ours, opened, hidden, closed = (tmp_path / name for name in ("state/tools", "opened", "hidden", "closed"))
    for prefix in (ours, opened, hidden, closed):
        (prefix / "bin").mkdir(parents=True)
        (prefix / "lib" / "python3.12").mkdir(parents=True)
        (prefix / "lib" / "python3.12" / "os.py").touch()
    closed.chmod(0o700)
    setup = replace(
        bench,
        environ={"PATH": ":".join(f"{prefix}/bin" for prefix in (ours, opened, hidden, closed))},
        policy=SandboxPolicy.model_validate({"hidden": [str(hidden)]}),
    ).setup()
    # Who commands run as, when we are root, is whoever owns the workspace.
    owner = os.stat(bench.workspace).st_uid
    assert shown(setup) == [str(closed), str(opened)][owner != os.geteuid() :]


def test_tools_are_looked_for_once_for_many_sessions(bench: CommandPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session's first command would take a tenth of a second longer."""
    searches: list[object] = []
    monkeypatch.setattr(
        command_policy, "find_user_programs", lambda *given: (searches.append(given), find_user_programs(*given))[1]
    )
    assert bench.setup().env == bench.setup().env
    assert len(searches) == 1
    monkeypatch.setattr(command_policy, "TOOLS_S", -1.0)
    bench.setup()
    assert len(searches) == 2


async def test_commands_run_with_the_users_tools_in_private_places(tmp_path: Path) -> None:
    """An agent could not use the interpreter that the project is made for."""
    tool = tmp_path / "tools" / "bin" / "greet"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho hello from $0\n")
    tool.chmod(0o755)
    bench = lay_out(tmp_path, {"PATH": f"{tool.parent}:/usr/bin:/bin"})
    (tmp_path / "user" / "notes").write_text("private")
    async with session(tmp_path, bench) as s:
        done = await s.shell.exec("greet; echo $HOME $TMPDIR; touch made; echo x >$HOME/kept")
        again = await s.shell.exec("cat $HOME/kept")
    assert done.stdout == f"hello from {tool}\n{bench.home} {bench.tmp}\n"
    assert (s.workspace / "made").exists()
    assert again.stdout == "x\n"
    if known_machine().bubblewrap.works:
        async with session(tmp_path, bench) as s:
            hidden = await s.shell.exec(f"cat {tmp_path}/user/notes; echo y >>{tool}; ls {tmp_path}/state; exit 0")
        assert "private" not in hidden.stdout
        assert "hello" in tool.read_text()
        assert "y\n" not in tool.read_text()


@pytest.mark.skipif(ripgrep_path() is None, reason="ripgrep is not installed")
async def test_of_our_own_environment_only_the_searcher_is_shown(tmp_path: Path) -> None:
    """`grep` and `find` could not run; or `pip` would be ours, and change nothing of the user's."""
    program = ripgrep_path()
    assert program is not None
    async with session(tmp_path) as s:
        done = await s.shell.exec(f"{program} --version; command -v rg; ls {program.parent}")
    assert done.stdout.startswith("ripgrep ")
    if known_machine().bubblewrap.works and not program.is_relative_to("/usr"):
        assert done.stdout.splitlines()[-2:] == [str(program), "rg"]


async def test_what_is_wrong_with_the_workspace_is_said_by_every_command(tmp_path: Path) -> None:
    """A model would try again and again, and no user learn what to do."""
    bench = replace(lay_out(tmp_path), allowed=(f"{tmp_path}/gone",))
    async with session(tmp_path, bench) as s:
        for _ in range(2):
            with pytest.raises(OSError, match="gone"):
                await s.shell.exec("true")
        (tmp_path / "gone").mkdir()
        give_to_commands(tmp_path / "gone")
        assert (await s.shell.exec("true")).code == 0


PYENV = '#!/usr/bin/env bash\nprogram="${{0##*/}}"\nexec "{0}/libexec/pyenv" exec "$program" "$@"\n'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = make_home(tmp_path)
    (home.user / "work").mkdir()
    return home


def packed(home: Home, *folders: Path | str) -> UserPrograms:
    """What a PATH of these folders, then the system's, takes."""
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    work = str(home.user / "work")
    return find_user_programs({"PATH": path}, work, str(home.user), {}, (work,))


def relative(home: Home, programs: UserPrograms) -> list[str]:
    """What is shown, from the home."""
    return [os.path.relpath(path, home.user) for path in programs.read]


def test_the_systems_programs_need_nothing(home: Home) -> None:
    """Every start would mount what is shown anyway."""
    assert packed(home).path == "/usr/bin:/bin"
    assert packed(home, "relative", "", "/no/such/folder") == packed(home)


@pytest.mark.parametrize("place", ["venvs/tools", "work/.venv"])
def test_a_virtual_environment_is_shown_with_its_python(home: Home, place: str) -> None:
    """The user's `python` would be a dangling link, also in the project's activated environment, the most usual."""
    home.venv(place, home.python("py"))
    programs = packed(home, home.user / place / "bin")
    assert relative(home, programs) == ["py", place]
    assert programs.path.split(":")[0] == str(home.user / place / "bin")


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
    programs = packed(home, root / "shims")
    assert programs.path == f"{root}/versions/3.11.0/bin:/usr/bin:/bin"
    assert relative(home, programs) == [".pyenv/versions/3.11.0"]


def test_programs_in_a_home_are_shown_with_what_they_link_to(home: Home) -> None:
    """Tools of `uv tool install` and `pipx` would be dangling links, or the whole home open."""
    home.venv(".local/share/uv/tools/black", home.python(".local/share/uv/python/cpython-3.12"))
    script = home.program(
        ".local/share/uv/tools/black/bin/black", f"#!{home.user}/.local/share/uv/tools/black/bin/python\n"
    )
    home.link(".local/bin/black", script)
    home.program(".local/bin/mine", "#!/bin/sh\n")
    home.file(".local/bin/notes")
    programs = packed(home, home.user / ".local/bin")
    assert relative(home, programs) == [
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
    programs = packed(home, home.user / ".cargo/bin")
    assert relative(home, programs) == [".cargo/bin", ".rustup"]
    assert programs.env == {"RUSTUP_HOME": str(home.user / ".rustup")}


def test_a_path_through_a_whole_home_or_credentials_shows_neither(home: Home) -> None:
    """A careless PATH would open keys and everything else to every command."""
    home.file(".ssh/id", "key")
    home.program(".ssh/bin/tool", ELF)
    home.program("tool", ELF)
    home.link("bin/leak", home.user / ".ssh/id").parent.mkdir(exist_ok=True)
    programs = packed(home, home.user, home.user / ".ssh/bin", home.user / "bin", "/")
    assert not any(os.path.realpath(path).startswith(f"{home.user}/.ssh") for path in programs.read)
    assert str(home.user) not in programs.read
    assert "/" not in programs.read


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
