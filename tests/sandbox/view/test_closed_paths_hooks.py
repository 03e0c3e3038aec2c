"""What other programs of the user run in a project."""

import os
import shutil
from pathlib import Path

import pytest

from quarterdeck_sandbox.view.closed_paths import Hook, find_hooks, is_hook, missing_hooks


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".git/hooks/pre-commit", True),
        (".git/config", True),
        (".git/modules/lib/hooks/post-checkout", True),
        ("sub/.git/info/attributes", True),
        (".git", True),
        (".envrc", True),
        ("sub/.envrc", True),
        (".vscode/tasks.json", True),
        (".idea/workspace.xml", True),
        (".mcp.json", True),
        (".cursor/mcp.json", True),
        ("lock.ignore", True),
        ("deck.lock", True),
        (".cursor/rules/style.md", False),
        (".github/workflows/ci.yml", False),
        (".gitignore", False),
        ("hooks/pre-commit", False),
        ("src/config", False),
        ("", False),
    ],
)
def test_a_name_says_whether_others_run_it(path: str, expected: bool) -> None:
    """A file tool would plant a hook, or could not write what is nobody's but the project's."""
    assert is_hook(path.split("/")) is expected


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


def test_what_is_missing_or_a_link_can_only_be_told_of(tmp_path: Path) -> None:
    """It would be believed to be closed."""
    assert found(tmp_path) == {}
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").symlink_to("../elsewhere")
    assert found(tmp_path) == {".git/hooks": False, ".git/config": False}
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
