"""What a process creates for other programs to run: found, moved whole, given back; whatever it does meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes.running import output
from support.sandbox.machine_facts import ROOT_ONLY, USER_ONLY, mounted

from quarterdeck_sandbox.policy.mounts import AbsentHook, View
from quarterdeck_sandbox.run import quarantine
from quarterdeck_sandbox.run.quarantine import (
    ASIDE,
    Caught,
    HookGuard,
    give_back,
    kept_at,
    quarantine_entries,
    quarantine_notice,
    remove_entry,
)
from quarterdeck_sandbox.view.git_repository import repositories

NAMES = (".envrc", ".vscode", ".cursor/mcp.json", ".git/commondir")


class Place:
    """A folder that a process may write, and a quarantine."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.quarantine = tmp_path / "proj", tmp_path / "state" / "quarantine"
        (self.folder / ".git").mkdir(parents=True)
        self.view = View(absent=tuple(AbsentHook(str(self.folder), name) for name in NAMES))
        self.guard = HookGuard(self.view, str(self.quarantine), "fs")

    def write(self, name: str, text: str = "evil") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def caught(self) -> dict[str, Caught]:
        """What is taken away now, by its path from the folder."""
        return {os.path.relpath(each.path, self.folder): each for each in self.guard.look()}

    def entry(self) -> tuple[str, str, quarantine.QuarantineEntry]:
        [(identity, entry)] = quarantine_entries(str(self.quarantine)).items()
        return str(self.quarantine), identity, entry


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_appears_is_moved_away_and_kept(place: Place) -> None:
    """The user's next `git status` would run it; or what the user needs would be deleted."""
    assert place.caught() == {}
    place.write(".git/commondir", "../evil")
    place.write(".vscode/tasks.json")
    found = place.caught()
    assert sorted(found) == [".git/commondir", ".vscode"]
    assert sorted(os.listdir(place.folder)) == [".git"]
    assert Path(found[".git/commondir"].kept).read_text() == "../evil"
    assert (Path(found[".vscode"].kept) / "tasks.json").read_text() == "evil"
    entries = quarantine_entries(str(place.quarantine)).values()
    assert {(entry.owner, entry.path) for entry in entries} == {
        ("fs", f"{place.folder}/.git/commondir"),
        ("fs", f"{place.folder}/.vscode"),
    }
    assert place.quarantine.stat().st_mode & 0o777 == 0o700
    assert place.caught() == {}


def test_one_below_a_folder_that_is_made_later_is_found(place: Place) -> None:
    """The folder would be made first, and looked at once."""
    place.guard.look()
    (place.folder / ".cursor").mkdir()
    assert place.caught() == {}
    place.write(".cursor/mcp.json")
    assert list(place.caught()) == [".cursor/mcp.json"]
    assert (place.folder / ".cursor").is_dir()


def test_one_that_is_made_again_is_found_again(place: Place) -> None:
    """The first would be a decoy."""
    for text in ("one", "two", "three"):
        place.write(".envrc", text)
        assert Path(place.caught()[".envrc"].kept).read_text() == text


def test_a_change_time_that_was_set_back_hides_nothing(place: Place) -> None:
    """A program sets the times of its own folders."""
    before = place.folder.stat()
    place.guard.look()
    place.write(".envrc")
    os.utime(place.folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(place.caught()) == [".envrc"]


@pytest.mark.parametrize("target", ["/etc/passwd", "nowhere", "."])
def test_a_link_is_moved_and_not_followed(place: Place, target: str) -> None:
    """A file of the user's would be moved in its place."""
    (place.folder / ".envrc").symlink_to(target)
    kept = Path(place.caught()[".envrc"].kept)
    assert kept.is_symlink()
    assert os.readlink(kept) == target


def test_a_link_on_the_way_is_what_is_moved(place: Place, tmp_path: Path) -> None:
    """What it leads to may be the user's, and lie where we may write and the program may not."""
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "mcp.json").write_text("mine")
    (place.folder / ".cursor").symlink_to(tmp_path / "users")
    assert list(place.caught()) == [".cursor"]
    assert (tmp_path / "users" / "mcp.json").read_text() == "mine"


def test_one_that_is_gone_when_it_is_taken_is_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that removes it at the wrong moment would fail the call."""
    path = place.write(".envrc")
    monkeypatch.setattr(quarantine, "_write", lambda *_: path.unlink(missing_ok=True))
    assert place.caught() == {}
    assert list(place.quarantine.iterdir()) == []


def _no_room(place: Place) -> None:
    place.quarantine.parent.mkdir()
    place.quarantine.write_text("no folder")


def _is_full(place: Place) -> None:
    place.quarantine.mkdir(parents=True)
    for number in range(quarantine.MAX_ENTRIES):
        (place.quarantine / str(number)).mkdir()


@pytest.mark.parametrize(("spoil", "why"), [(_no_room, "File exists"), (_is_full, "1000 entries are in it")])
def test_where_it_cannot_be_kept_it_is_made_harmless_where_it_lies(
    place: Place, spoil: Callable[[Place], None], why: str
) -> None:
    """With a disk that is full, a program would have its way."""
    spoil(place)
    place.write(".git/commondir")
    [caught] = place.caught().values()
    assert caught.kept.startswith(f"{place.folder}/.git/{ASIDE}")
    assert Path(caught.kept).read_text() == "evil"
    assert not (place.folder / ".git/commondir").exists()
    assert why in caught.told
    assert f"renamed to {caught.kept}" in caught.told


@pytest.mark.process
@ROOT_ONLY
def test_on_a_full_disk_it_is_made_harmless_where_it_lies(place: Place) -> None:
    """There is no room for a copy, nor for the note of where it came from."""
    place.quarantine.mkdir(parents=True)
    with mounted(place.quarantine, "-t", "tmpfs", "-o", "size=8k,nr_inodes=4", "none"):
        (place.quarantine / "filler").write_bytes(b"x" * 8192)
        place.write(".envrc")
        [caught] = place.caught().values()
        assert caught.kept.startswith(f"{place.folder}/{ASIDE}")
        assert Path(caught.kept).read_text() == "evil"
        assert "No space left on device" in caught.why
        assert [path.name for path in place.quarantine.iterdir()] == ["filler"]


@pytest.mark.process
@ROOT_ONLY
def test_a_quarantine_on_another_filesystem_gets_a_copy(place: Place) -> None:
    """What can only be copied would stay where it is."""
    place.quarantine.mkdir(parents=True)
    with mounted(place.quarantine, "-t", "tmpfs", "none"):
        place.write(".vscode/deep/tasks.json")
        (place.folder / ".vscode/link").symlink_to("/etc/passwd")
        os.mkfifo(place.folder / ".vscode/pipe")
        [caught] = place.caught().values()
        assert caught.kept.startswith(str(place.quarantine))
        assert (Path(caught.kept) / "deep/tasks.json").read_text() == "evil"
        assert os.readlink(Path(caught.kept) / "link") == "/etc/passwd"
        assert os.listdir(place.folder) == [".git"]
        give_back(*place.entry())
        assert (place.folder / ".vscode/deep/tasks.json").read_text() == "evil"
        assert place.caught() == {}


@pytest.mark.process
@ROOT_ONLY
def test_one_that_is_too_large_for_a_copy_stays_under_a_name_that_nothing_reads(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program would fill the state directory's disk, and its user's time."""
    monkeypatch.setattr(quarantine, "MAX_COPIED_BYTES", 10)
    place.quarantine.mkdir(parents=True)
    with mounted(place.quarantine, "-t", "tmpfs", "none"):
        place.write(".envrc", "x" * 11)
        [caught] = place.caught().values()
        assert "too large" in caught.why
        assert Path(caught.kept).parent == place.folder
        give_back(*place.entry())
        assert (place.folder / ".envrc").exists()


@USER_ONLY
def test_one_in_a_folder_that_was_closed_is_told_of(place: Place) -> None:
    """It would pass in silence."""
    place.write(".git/commondir")
    (place.folder / ".git").chmod(0o500)
    try:
        [caught] = place.caught().values()
    finally:
        (place.folder / ".git").chmod(0o700)
    assert caught.kept == ""
    assert "could not be moved away (Permission denied): remove it" in caught.told


def test_what_is_given_back_stays(place: Place) -> None:
    """A server that runs on would have it taken away again; or any later one would pass for it."""
    place.write(".envrc")
    place.guard.look()
    give_back(*place.entry())
    assert (place.folder / ".envrc").read_text() == "evil"
    assert place.caught() == {}
    assert kept_at(*place.entry()) == ""
    (place.folder / ".envrc").rename(place.folder / "old")
    place.write(".envrc", "another")
    assert list(place.caught()) == [".envrc"]


def test_nothing_is_given_back_over_what_is_there(place: Place) -> None:
    """What the user made meanwhile would be lost."""
    place.write(".envrc")
    place.guard.look()
    place.write(".envrc", "mine")
    arguments = place.entry()
    with pytest.raises(FileExistsError, match="there is something again"):
        give_back(*arguments)
    assert (place.folder / ".envrc").read_text() == "mine"
    assert kept_at(*place.entry())


def test_what_is_removed_is_gone(place: Place) -> None:
    """The user could not get rid of it."""
    place.write(".vscode/tasks.json")
    place.guard.look()
    remove_entry(*place.entry())
    assert quarantine_entries(str(place.quarantine)) == {}


def test_what_is_broken_in_a_quarantine_hides_nothing_else(place: Place) -> None:
    """One entry that was cut off would hide all others."""
    place.write(".envrc")
    place.guard.look()
    (place.quarantine / "1").mkdir()
    (place.quarantine / "1" / "entry.json").write_text("{")
    assert len(quarantine_entries(str(place.quarantine))) == 1


def test_an_answer_gets_a_line_for_each() -> None:
    """A client would not learn why its file is gone."""
    assert quarantine_notice([Caught("/p/.envrc", "/q/1")]) == (
        "[quarterdeck] /p/.envrc was created, which other programs run or obey: it was moved into quarantine; "
        "quarterdeck quarantine list shows it"
    )
    assert quarantine_notice(()) == ""


@pytest.mark.process
def test_a_submodule_that_is_added_is_taken_away(tmp_path: Path) -> None:
    """`git status` of the user's repository obeys the configuration of each of its submodules."""
    top = tmp_path / "proj"
    top.mkdir()
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C")
    output(*git, top, "init", "-q")
    guard = HookGuard(View(repositories=tuple(repositories(str(top)))), str(tmp_path / "quarantine"), "fs")
    assert guard.look() == ()
    output(*git, top, "init", "-q", "sub")
    assert guard.look() == ()  # a repository that git finds in another one, and does not obey there
    output(*git, top / "sub", "commit", "-q", "--allow-empty", "-m", "x")
    output(*git, top, "add", "sub")
    assert [each.path for each in guard.look()] == [f"{top}/sub/.git"]
    (top / "sub/.git").mkdir()
    assert [each.path for each in guard.look()] == [f"{top}/sub/.git"]
