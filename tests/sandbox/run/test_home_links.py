"""The links of a private home: `~` means what the user means by it, whatever the home's process has put there."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck_sandbox.policy.confinement import UnixUser
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.run import home_links
from quarterdeck_sandbox.run.home_links import MAX_LINKS, MAX_NOTES, link_home


class Site(msgspec.Struct):
    """A user with a home, and one server's private home."""

    root: Path

    @property
    def user(self) -> Path:
        return self.root / "u"

    @property
    def home(self) -> Path:
        return self.root / "s" / "home"

    def link(self, *granted: str | Path, user_home: Path | None = None, owner: UnixUser | None = None) -> list[str]:
        """Lay the links for these paths, relative to the user's home; return the notes."""
        places = Places(self.home, self.root / "s" / "tmp", user_home or self.user)
        return list(link_home(places, [os.path.join(self.user, path) for path in granted], owner))

    def folders(self, *names: str) -> None:
        for name in names:
            (self.user / name).mkdir(parents=True, exist_ok=True)

    def links(self) -> dict[str, str]:
        """All links of the private home, and where they lead."""
        found = [path for path in self.home.rglob("*") if path.is_symlink()]
        return {str(path.relative_to(self.home)): os.readlink(path) for path in found}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(Path(os.path.realpath(tmp_path)))
    made.home.mkdir(parents=True)
    made.folders("Documents/notes", "projects/x/sub", "projects/y", ".config/app", "secret")
    return made


def test_what_is_granted_is_at_the_same_place_below_the_private_home(site: Site) -> None:
    """A notes server would answer with an empty list, because `~/Documents` meant another folder."""
    file = site.user / "plan.txt"
    file.write_text("the plan")
    assert site.link("projects/x", "projects/x/sub", ".config/app", "plan.txt", "/usr/share") == []
    assert site.links() == {
        name: str(site.user / name) for name in ("Documents", "projects/x", ".config/app", "plan.txt")
    }
    assert (site.home / "plan.txt").read_text() == "the plan"
    assert os.listdir(site.home / "projects") == ["x"]
    (site.home / ".config" / "own").touch()  # the folders above a link are the server's own
    assert not (site.user / ".config" / "own").exists()


def test_the_folders_that_everyone_has_are_never_silently_empty(site: Site) -> None:
    """A server would write into a folder of its own, and the user never find the file; other names would be told."""
    site.folders("Musik", "Bilder/Alle", ".hidden", ".config")
    lines = ("$HOME/Musik", "$HOME/Bilder/Alle", "$HOME/", "$HOME/.hidden", "$HOME/../out", "/abs", "$HOME/missing")
    text = "".join(f'XDG_{"ABCDEFG"[at]}_DIR="{line}"\n' for at, line in enumerate(lines))
    (site.user / ".config" / "user-dirs.dirs").write_text(f"# comment\n{text}not a line")
    assert site.link("Documents/notes") == []
    assert site.links() == {name: str(site.user / name) for name in ("Documents", "Musik", "Bilder/Alle")}


def test_a_home_that_is_a_link_is_looked_for_where_it_leads(site: Site) -> None:
    """A granted `~/Documents` would not be there: inside, the link that a home is exists only for grants through it."""
    linked = site.root / "home"
    linked.symlink_to(site.user)
    assert site.link("Documents", str(linked / "projects/x"), user_home=linked) == []
    assert site.links() == {"Documents": str(site.user / "Documents"), "projects/x": str(linked / "projects/x")}


def test_what_is_no_longer_granted_has_no_link(site: Site) -> None:
    """A server would be led to what was taken from it; or lose what it made itself."""
    site.link("projects/x", "projects/y", "secret", "plan")
    (site.home / "secret").unlink()
    (site.home / "secret").symlink_to("/elsewhere")
    assert site.link("projects") == []  # where two links were, of which the folder is empty now
    assert site.links() == {
        "Documents": str(site.user / "Documents"),
        "projects": str(site.user / "projects"),
        "secret": "/elsewhere",
    }
    assert site.link("projects/x") == []
    assert "projects/x" in site.links()
    assert "projects" not in site.links()


def test_an_empty_folder_of_its_own_gives_way_and_nothing_else(site: Site) -> None:
    """After an upgrade a server would go on with the empty folder that it once made; or lose its files."""
    (site.home / "Documents").mkdir()
    site.folders("Music")
    (site.home / "Music").mkdir()
    (site.home / "Music" / "song").touch()
    (site.home / "plan").touch()
    (site.home / "projects").symlink_to(site.root)
    notes = site.link("plan", "projects/x", "Music/a")
    assert notes == [
        f"home: ~/Music is a file or folder of its own; the user's is {site.user}/Music",
        f"home: ~/plan is a file or folder of its own; the user's is {site.user}/plan",
        f"home: ~/projects/x is a file or folder of its own; the user's is {site.user}/projects/x",
    ]
    assert site.links() == {
        "Documents": str(site.user / "Documents"),
        "Music/a": str(site.user / "Music/a"),  # in what it has of its own there is room for more
        "projects": str(site.root),
    }
    assert sorted(os.listdir(site.home / "Music")) == ["a", "song"]
    assert not (site.root / "x").exists()


def record(site: Site) -> Path:
    return site.home.with_name(site.home.name + home_links.RECORD)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda site: record(site).write_bytes(b'{"../u/Documents/link": "' + b"x" * 30),
        lambda site: record(site).write_text(msgspec.json.encode({"../out": "/to", "": "", "a//b": "c"}).decode()),
        lambda site: record(site).write_text("[]"),
        lambda site: (record(site).unlink(), record(site).symlink_to("/dev/zero")),
        lambda site: (record(site).unlink(), os.mkfifo(record(site))),
    ],
    ids=["cut", "names outside", "another value", "a link", "a pipe"],
)
def test_a_spoiled_record_removes_nothing_outside(site: Site, spoil: Callable[[Site], object]) -> None:
    """Whoever could write the record could have us remove a link anywhere; or no server would start."""
    out = site.root / "s" / "out"
    out.symlink_to("/to")
    site.link("projects/x")
    spoil(site)
    assert site.link("projects/y") == []
    assert out.is_symlink()
    assert (site.home / "projects" / "y").is_symlink()


@pytest.mark.parametrize(
    "granted",
    [["gone"], ["far/disk"], ["turned"], [], ["secret"]],
    ids=["vanished", "on another disk", "a link elsewhere", "nothing", "a home that is a link"],
)
def test_a_link_leads_to_the_path_whatever_lies_there(site: Site, granted: list[str]) -> None:
    """A user would find in `~/x` something else than in `/home/me/x`."""
    (site.user / "far").symlink_to("/dev/shm")
    (site.user / "turned").symlink_to("/usr")
    aside = site.root / "alias"
    aside.symlink_to(site.user)
    assert site.link(*granted, user_home=aside) == []
    assert site.links() == {"Documents": f"{aside}/Documents"} | {name: f"{site.user}/{name}" for name in granted}


def test_a_home_that_is_the_root_or_lacks_everything_has_no_links(site: Site) -> None:
    """A daemon whose HOME is `/` would have the system linked into each home."""
    assert site.link("projects", user_home=Path("/")) == []
    assert site.link(user_home=site.root / "missing") == []
    assert os.listdir(site.home.parent) == ["home"]


def test_ten_thousand_grants_cost_a_bounded_number_of_links(site: Site) -> None:
    """A start would take seconds for what nobody looks at."""
    granted = [f"p{number}" for number in range(10_000)]
    assert site.link(*granted) == [f"home: it has {MAX_LINKS:,} links, and can have no more"]
    assert len(site.links()) == MAX_LINKS
    for name in granted[:50]:
        (site.home / name).unlink()
        (site.home / name).touch()
    assert len(site.link(*granted)) == MAX_NOTES + 1


def test_a_home_that_cannot_be_changed_starts_all_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk no server would start, for want of a convenience."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "symlink", refuse)
    [note] = site.link()
    assert note.startswith("home: ~/Documents cannot be made (No space left on device)")
    site.home.rmdir()
    [note] = site.link()
    assert note.startswith("home: it has no links (No such file or directory")


@ROOT_ONLY
def test_folders_above_a_link_belong_to_the_server(site: Site) -> None:
    """A server with a user of its own could write nothing beside the link."""
    site.link("projects/x", owner=UnixUser(61_999, 61_999, dedicated=True))
    assert (site.home / "projects").stat().st_uid == 61_999
    assert (site.user / "projects").stat().st_uid == 0
