"""What git's own files say of submodules and of files that a look at a repository runs; git itself writes them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes.running import output

from quarterdeck_sandbox.policy.mounts import AbsentHook, Repository
from quarterdeck_sandbox.view.git_repository import (
    git_dir_of,
    gitlinks,
    named_files,
    new_submodules,
    repositories,
    submodules,
)

pytestmark = pytest.mark.process

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")
LONG = "n" * 200


def git(folder: Path, *words: str) -> None:
    output("git", *IDENTITY, "-C", folder, *words)


def repository(folder: Path, object_format: str = "sha1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", f"--object-format={object_format}")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return folder


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_submodules_are_found_in_every_kind_of_index(tmp_path: Path, object_format: str, version: int) -> None:
    """A server would write the one that we cannot read."""
    top = repository(tmp_path / "top", object_format)
    for number in range(20):
        for name in (f"a/file{number}", f"{LONG}/{LONG}/{number}"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(name)
    for name in ("sub", "deep/er/module"):
        repository(top / name, object_format)
    git(top, "add", ".")
    git(top, "update-index", "--index-version", str(version if version != 3 else 2))
    if version == 3:
        (top / "intended").write_text("x")
        git(top, "add", "--intent-to-add", "intended")
    index = (top / ".git/index").read_bytes()
    assert index[7] == version
    assert gitlinks(index) == ["deep/er/module", "sub"]


def test_a_split_index_is_read_whole(tmp_path: Path) -> None:
    """A submodule would be in the part that is not read."""
    top = repository(tmp_path)
    repository(top / "sub")
    git(top, "add", "sub")
    git(top, "update-index", "--split-index")
    assert [path.name for path in (top / ".git").glob("sharedindex.*")]
    assert gitlinks((top / ".git/index").read_bytes()) == []
    assert submodules(f"{top}/.git") == ["sub"]


@given(st.binary(max_size=200), st.integers(0, 5), st.integers(0, 3))
def test_whatever_an_index_says_is_no_error(data: bytes, version: int, count: int) -> None:
    """A server writes the index, and would fail every call, or our start."""
    header = b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big")
    for index in (data + b"\0\0\xe0\0", header + data + b"\0\0\xe0\0" + data):
        assert all(".." not in path.split("/") for path in gitlinks(index))


def test_a_repository_is_found_with_its_submodules_and_theirs(tmp_path: Path) -> None:
    """One two levels down would be left open."""
    top = repository(tmp_path)
    repository(top / "sub")
    repository(top / "sub/inner")
    git(top / "sub", "add", "inner")
    git(top, "add", "sub")
    folder = str(top)
    assert list(repositories(folder)) == [
        Repository(folder, "", f"{top}/.git", ("sub",)),
        Repository(folder, "sub", f"{top}/sub/.git", ("inner",)),
        Repository(folder, "sub/inner", f"{top}/sub/inner/.git"),
    ]


def test_a_folder_in_a_repository_has_the_submodules_that_lie_in_it(tmp_path: Path) -> None:
    """Their `.git` may be written, and the repository above asks them."""
    top = repository(tmp_path)
    for name in ("libs/one", "other"):
        repository(top / name)
        git(top, "add", name)
    found = list(repositories(f"{top}/libs"))
    assert {each.name for each in found} == {"one"}


def test_a_submodule_that_comes_later_is_new(tmp_path: Path) -> None:
    """A server adds one, and the user's next `git status` obeys its configuration."""
    top = repository(tmp_path)
    [before] = repositories(str(top))
    assert list(new_submodules(before)) == []
    repository(top / "sub")
    git(top, "add", "sub")
    assert list(new_submodules(before)) == [AbsentHook(str(top), "sub/.git")]


def test_a_git_that_is_a_file_is_followed(tmp_path: Path) -> None:
    """A worktree's index is elsewhere."""
    top = repository(tmp_path / "top")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert git_dir_of(f"{tmp_path}/tree/.git") == f"{top}/.git/worktrees/tree"
    (tmp_path / "odd").write_text("gitdir: nowhere")
    assert git_dir_of(f"{tmp_path}/odd") == git_dir_of(f"{tmp_path}/none") == ""
    os.mkfifo(tmp_path / "pipe")
    assert git_dir_of(f"{tmp_path}/pipe") == ""


def test_what_a_configuration_has_git_run_at_a_look_is_found(tmp_path: Path) -> None:
    """A server would write a file that the user's configuration trusts."""
    top = repository(tmp_path)
    git(top, "config", "core.hooksPath", ".husky/_")
    git(top, "config", "core.fsmonitor", "tools/watch --quick")
    git(top, "config", "include.path", "../.gitconfig")
    git(top, "config", "--add", "include.path", "~/elsewhere")
    assert sorted(named_files(str(top))) == [
        f"{top}/.gitconfig",
        f"{top}/.husky/_/post-index-change",
        f"{top}/tools/watch",
    ]
    git(top, "config", "core.fsmonitor", "true")
    assert len(list(named_files(str(top)))) == 2
    assert list(named_files(f"{top}/nothing")) == []
