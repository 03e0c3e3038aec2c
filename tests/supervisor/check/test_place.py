"""The directories in which a server is tried, and the policy under which."""

from pathlib import Path

import pytest

from quarterdeck.check.place import Place, changes, harmless
from quarterdeck_protocol.policy import SandboxPolicy


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.make()
    return made


def test_what_changes_in_a_servers_folders_is_told(place: Place) -> None:
    """A tool that says it only reads could remove files unseen."""
    before = place.look()
    (place.work / "new").write_text("1")
    (place.work / "sample.txt").write_text("")
    (place.work / "folder" / "inner.json").unlink()
    found = changes(before, place.look())
    assert (found.made, found.changed, found.shrunk) == (("work/new",), ("work/sample.txt",), ("work/sample.txt",))
    assert found.removed == ("work/folder/inner.json",)


def test_caches_and_links_do_not_count(place: Place) -> None:
    """A tool would be blamed for a cache of its runtime, or a look follow a link out of the folder."""
    before = place.look()
    (place.home / ".cache").mkdir()
    (place.work / ".git" / "index").write_text("")
    assert changes(before, place.look()).any == ()
    (place.work / "out").symlink_to("/")
    assert changes(before, place.look()).any == ("work/out",)


def test_files_are_put_back_and_no_link_is_followed(place: Place, tmp_path: Path) -> None:
    """A server that puts a link in place of a sample would have us overwrite what is the user's."""
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("theirs")
    (place.work / "sample.txt").unlink()
    (place.work / "sample.txt").symlink_to(theirs)
    place.fill()
    assert theirs.read_text() == "theirs"
    assert (place.work / "sample.txt").read_text().startswith("one")
    outside = tmp_path / "outside"
    outside.mkdir()
    (place.work / "folder" / "inner.json").unlink()
    (place.work / "folder").rmdir()
    (place.work / "folder").symlink_to(outside)
    place.fill()
    assert list(outside.iterdir()) == []
    (outside / "secret.txt").write_text("")
    assert not any("secret" in path for path in place.look())


def test_a_tree_without_end_is_looked_at_in_time(place: Place) -> None:
    """A server that makes folders within folders would end the check."""
    deep = place.work
    for _ in range(200):
        deep = deep / "d"
        deep.mkdir()
    assert max(path.count("/") for path in place.look()) < 30


def test_a_policy_keeps_what_can_be_seen_and_loses_what_can_be_changed() -> None:
    """Tools that are called with made-up values would change what is the user's."""
    given = SandboxPolicy.model_validate(
        {"read": ["/a"], "write": ["/b"], "hidden": ["/a/c"], "grants": ["ssh-agent"], "network": "full"}
    )
    policy = harmless(given, "none")
    assert (policy.read, policy.write, policy.hidden, policy.grants) == (("/a", "/b"), (), ("/a/c",), ())
    assert policy.network == "none"
    assert harmless(SandboxPolicy.model_validate({"preset": "trusted"}), "none").confines_files
