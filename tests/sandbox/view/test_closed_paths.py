"""Within what a process may write, what it may not: found, closed or refused."""

import os
import shutil
from pathlib import Path

import pytest
from sandbox.homes import Home, make_home

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, View
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.view import closed_paths
from quarterdeck_sandbox.view.closed_paths import (
    Closing,
    Hook,
    close_within,
    find_hooks,
    is_hook,
    missing_hooks,
    outermost,
    steps,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = make_home(tmp_path)
    home.file("proj/src/main.py")
    return home


def close(home: Home, *protected: Path | str, write: tuple[str, ...] = ("proj",), can_close: bool = True) -> Closing:
    """What is closed to a process that may write these folders of the home."""
    named = tuple(str(home.user / name) for name in write)
    view = home.view(**SandboxPolicy.model_validate({"write": named}).model_dump(include={"write"}))
    return close_within(view, named, tuple(map(str, protected)), can_close=can_close, remedy="get a machine that can")


def refused(home: Home, *protected: Path | str, **how: object) -> str:
    with pytest.raises(LaunchError) as caught:
        close(home, *protected, **how)  # type: ignore[arg-type]
    assert caught.value.code == "sandbox_refused"
    return str(caught.value)


def test_what_lies_in_a_writable_folder_is_closed_and_in_the_receipt(home: Home) -> None:
    """A server would write itself a row that is not confined."""
    config, other = home.file("proj/mcp.json"), home.file("elsewhere/mcp.json")
    found = close(home, config, other)
    assert found.paths == (str(config),)
    assert found.shown == (f"read-only: {config} (code or configuration that quarterdeck trusts)",)
    assert found.gaps == ()


def test_nothing_is_closed_where_nothing_of_the_kind_may_be_written(home: Home) -> None:
    """Every start would pay for one program more."""
    config = home.file("elsewhere/mcp.json")
    found = close(home, config)
    assert (found.paths, found.shown, found.gaps) == ((), (), ())
    assert close(home, config, write=()) == Closing()


def test_a_link_is_closed_with_its_folder_and_what_it_leads_to(home: Home) -> None:
    """Either could be changed in place of the other."""
    real = home.file("proj/real/mcp.json")
    link = home.link("proj/conf/mcp.json", real)
    assert close(home, link).paths == (str(link.parent), str(real))


def test_a_link_that_lies_in_the_very_folder_that_may_be_written_is_refused(home: Home) -> None:
    """It would be replaced by a link to another file."""
    real = home.file("elsewhere/mcp.json")
    link = home.link("proj/mcp.json", real)
    message = refused(home, link)
    assert message.startswith(f"{link} is a symbolic link")
    assert f"name {real} itself" in message


def test_of_what_does_not_exist_the_nearest_folder_is_closed(home: Home) -> None:
    """A program would make the file that we look for at our next start."""
    folder = home.file("proj/.config/other").parent
    assert close(home, folder / "quarterdeck/mcp.json").paths == (str(folder),)


def test_what_could_only_be_closed_with_all_of_the_folder_is_told(home: Home) -> None:
    """The receipt would not say that there is something left to watch."""
    names = [home.user / "proj" / name for name in ("a.json", ".b/c.json", "d", "e", "f")]
    (gap,) = close(home, names[0]).gaps
    assert gap == f"filesystem: it could create {names[0]}: what does not exist cannot be made read-only"
    (gap,) = close(home, *names).gaps
    assert f"{names[0]}, {names[1]}, {names[2]} and 2 more:" in gap


def test_a_file_with_a_second_name_is_refused(home: Home) -> None:
    """By its other name it could be written all the same."""
    config = home.file("proj/mcp.json")
    os.link(config, home.user / "proj/src/innocent")
    assert "2 names (hard links)" in refused(home, config)


def test_who_is_to_write_in_what_is_protected_is_refused(home: Home) -> None:
    """The row would do the opposite of what protects it."""
    config = home.file("proj/mcp.json")
    assert '"write" names' in refused(home, config, write=("proj/mcp.json",))
    assert '"write" names' in refused(home, home.user / "proj", write=("proj/src",))


def test_a_machine_that_cannot_close_a_part_refuses_with_what_to_do(home: Home) -> None:
    """It would start with the user's configuration open."""
    config = home.file("proj/mcp.json")
    message = refused(home, config, can_close=False)
    assert f"and with it {config}" in message
    assert "move it elsewhere, or name narrower folders, or get a machine that can" in message


def test_our_own_environment_in_a_workspace_is_closed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands could not run in such a workspace at all, or could write their next sandbox themselves."""
    venv = home.file("proj/.venv/lib/python3.12/site-packages/quarterdeck_sandbox/border.py").parents[4]
    monkeypatch.setattr(closed_paths, "own_code", lambda: (str(venv),))
    assert close(home).paths == (str(venv),)
    assert '"write" names' in refused(home, write=("proj/.venv/lib",))
    assert "cannot close a part" in refused(home, can_close=False)


def test_a_place_of_our_code_that_could_be_made_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would make the folder of packages that our next start looks into, and we would import what is there."""
    missing = home.user / "proj" / "lib"
    monkeypatch.setattr(closed_paths, "own_code", lambda: (str(missing),))
    assert f"could create {missing} there" in refused(home)


def test_hooks_are_closed_where_that_is_possible_and_else_told(home: Home) -> None:
    """A hook would run with the user's next commit, outside of any sandbox."""
    hooks, config = home.file("proj/.git/hooks/x").parent, home.file("proj/.git/config")
    assert close(home).paths == (str(config), str(hooks))
    found = close(home, can_close=False)
    assert found.paths == ()
    assert [gap for gap in found.gaps if str(hooks) in gap]


def test_hooks_that_are_named_themselves_are_open(home: Home) -> None:
    """Nobody could have an agent write a hook."""
    home.file("proj/.git/hooks/x")
    home.file("proj/.git/config")
    assert close(home, write=("proj", "proj/.git")).paths == ()
    assert close(home, write=("proj", "proj/.git/hooks")).paths == (f"{home.user}/proj/.git/config",)
    assert close(home, write=("proj", "proj/src")).paths == (
        f"{home.user}/proj/.git/config",
        f"{home.user}/proj/.git/hooks",
    )


def test_what_could_appear_in_a_repository_is_a_gap_before_anything_runs(home: Home) -> None:
    """The receipt would say `full` of a server that decides what the user's next `git status` runs."""
    home.file("proj/.git/config")
    found = close(home)
    (gap,) = found.gaps
    assert gap.startswith(
        f"filesystem: in {home.user}/proj it could create .git/hooks, .git/config.worktree, .git/commondir and "
    )
    assert "moved into quarantine before an answer goes out" in gap
    names = {hook.name for hook in found.absent}
    assert {".git/hooks", ".git/commondir", ".envrc", ".mcp.json", ".claude/settings.json"} <= names
    assert {hook.folder for hook in found.absent} == {f"{home.user}/proj"}


@pytest.mark.parametrize("write", ["proj/src", "proj/more"])
def test_what_could_appear_within_or_above_a_repository_is_a_gap_too(home: Home, write: str) -> None:
    """Only the repository's own folder would be believed to matter."""
    home.file("proj/.git/config" if write == "proj/src" else "proj/more/inner/.git/config")
    home.file("proj/more/file")
    assert [gap for gap in close(home, write=(write,)).gaps if "it could create" in gap]


def test_a_repository_of_its_own_in_one_of_the_users_is_among_it(home: Home) -> None:
    """In that folder, `git status` would run what the server's configuration says in place of the user's."""
    home.file("proj/.git/config")
    assert ".git" in {hook.name for hook in close(home, write=("proj/src",)).absent}
    assert ".git" not in {hook.name for hook in close(home).absent}


def test_where_no_repository_is_what_appears_is_taken_away_and_no_gap(home: Home) -> None:
    """Every folder that a server may write would be called a weakness."""
    found = close(home)
    assert found.gaps == ()
    assert ".vscode" in {hook.name for hook in found.absent}


def test_what_the_policy_names_itself_may_appear(home: Home) -> None:
    """A server that is there to keep an editor's settings could not."""
    home.file("proj/.git/config")
    home.file("proj/.vscode/tasks.json")
    absent = close(home, write=("proj", "proj/.vscode", "proj/.git")).absent
    assert not [hook for hook in absent if hook.folder == f"{home.user}/proj" and hook.name.startswith((".v", ".git"))]


def test_every_folder_between_is_a_mount_of_its_own() -> None:
    """A folder above a closed file would be renamed, and another put in its place."""
    view = View((Mount(MountKind.WRITE, "/w", "/w"), Mount(MountKind.READ, "/r", "/r")), closed=("/w/a/b/c", "/w/a/d"))
    assert steps(view) == (("/w/a", False), ("/w/a/b", False), ("/w/a/b/c", True), ("/w/a/d", True))
    assert steps(View((Mount(MountKind.WRITE, "/w", "/w"),))) == ()


def test_what_lies_in_what_is_closed_is_closed_with_it() -> None:
    """Each would cost a mount of its own."""
    assert outermost(["/w/b/c", "/w/b", "/w/bb", "/w/a", "/w/a"]) == ("/w/a", "/w/b", "/w/bb")


RUN_BY_OTHERS = (
    *(".git/hooks/pre-commit", ".git/config", ".git/modules/lib/hooks/post-checkout", "sub/.git/info/attributes"),
    *(".git", ".envrc", "sub/.envrc", ".vscode/tasks.json", ".idea/workspace.xml", ".mcp.json", ".cursor/mcp.json"),
    *("lock.ignore", "deck.lock"),
)
NOBODYS = (".cursor/rules/style.md", ".github/workflows/ci.yml", ".gitignore", "hooks/pre-commit", "src/config", "")


def test_a_name_says_whether_others_run_it() -> None:
    """A file tool would plant a hook, or could not write what is nobody's but the project's."""
    assert [path for path in RUN_BY_OTHERS + NOBODYS if is_hook(path.split("/"))] == [*RUN_BY_OTHERS]


def make_git(git: Path) -> None:
    (git / "hooks").mkdir(parents=True)
    for name in ("HEAD", "config"):
        (git / name).write_text("x")


def found(folder: Path) -> dict[str, bool]:
    return {os.path.relpath(hook.path, folder): hook.is_there for hook in find_hooks(str(folder))}


def test_hooks_and_settings_of_a_repository_its_submodules_and_worktrees_are_found(tmp_path: Path) -> None:
    """A hook would be planted where git itself looks for more of them."""
    make_git(tmp_path / ".git")
    make_git(tmp_path / ".git/modules/libs/one")
    make_git(tmp_path / ".git/modules/libs/one/modules/inner")
    (tmp_path / ".git/worktrees/w").mkdir(parents=True)
    for name in ("config.worktree", "commondir", "HEAD"):
        (tmp_path / ".git/worktrees/w" / name).write_text("x")
    (tmp_path / ".envrc").write_text("x")
    one = ".git/modules/libs/one"
    expected = [".envrc", ".git/hooks", ".git/config", f"{one}/hooks", f"{one}/config"]
    expected += [f"{one}/modules/inner/hooks", f"{one}/modules/inner/config", ".git/worktrees/w/config.worktree"]
    expected += [".git/worktrees/w/commondir"]
    assert found(tmp_path) == dict.fromkeys(expected, True)


def test_the_file_that_stands_for_a_repository_elsewhere_is_one(tmp_path: Path) -> None:
    """A worktree would be led to a repository of the program's own, with hooks of its own."""
    (tmp_path / ".git").write_text("gitdir: /elsewhere/.git/worktrees/w\n")
    assert list(find_hooks(str(tmp_path))) == [Hook(f"{tmp_path}/.git")]


def test_a_link_can_only_be_told_of(tmp_path: Path) -> None:
    """It would be believed to be closed."""
    assert found(tmp_path) == {}
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").symlink_to("../elsewhere")
    assert found(tmp_path) == {".git/config": False}
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").symlink_to("../.git")
    assert found(other) == {".git": False}


def test_what_could_be_made_is_known_before(tmp_path: Path) -> None:
    """Git would be led to hooks of a command's own, and nobody would hear of it."""
    assert {f"{tmp_path}/.envrc", f"{tmp_path}/lock.ignore"} <= set(missing_hooks(str(tmp_path)))
    assert f"{tmp_path}/.git/commondir" not in missing_hooks(str(tmp_path))
    make_git(tmp_path / ".git")
    (tmp_path / ".envrc").write_text("x")
    found = list(missing_hooks(str(tmp_path)))
    assert f"{tmp_path}/.git/commondir" in found
    assert not {f"{tmp_path}/.envrc", f"{tmp_path}/.git/hooks"} & set(found)
    shutil.rmtree(tmp_path / ".git/hooks")
    assert f"{tmp_path}/.git/hooks" in missing_hooks(str(tmp_path))


def test_a_repository_of_a_thousand_submodules_is_not_looked_at_whole(tmp_path: Path) -> None:
    """Every command would take a second to start."""
    for number in range(100):
        make_git(tmp_path / f".git/modules/m{number}")
    make_git(tmp_path / ".git")
    assert len(list(find_hooks(str(tmp_path)))) == 2 * (64 + 1)
