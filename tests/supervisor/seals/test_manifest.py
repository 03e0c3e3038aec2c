"""The manifest of a seal: what the digest depends on, what no tree may hold, and what an upgrade changes."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.seals.manifest import (
    Changes,
    Difference,
    Entry,
    Kind,
    Manifest,
    Package,
    compare,
    differences,
    digest_of,
    link_problem,
    name_key,
    name_problem,
)
from quarterdeck.seals.request import PackageIndex

FOLDER, FILE, LINK = Kind.FOLDER, Kind.FILE, Kind.LINK

TREE = [
    Entry(".", FOLDER),
    Entry("bin", FOLDER),
    Entry("bin/run", FILE, is_executable=True, size=3, hash="aa"),
    Entry("bin/link", LINK, hash="run"),
    Entry("m.pyc", FILE, size=5, hash="bb"),
]


def test_the_digest_does_not_depend_on_the_order_of_reading() -> None:
    """Two file systems list a folder in different orders, and the same package would be two seals."""
    mixed = TREE.copy()
    random.Random(1).shuffle(mixed)
    assert digest_of(mixed) == digest_of(TREE)
    assert len(digest_of(TREE)) == 64


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (2, {"hash": "ab"}),
        (2, {"size": 4}),
        (2, {"is_executable": False}),
        (2, {"path": "bin/ran"}),
        (3, {"hash": "m.pyc"}),
        (4, {"path": "n.pyc"}),
    ],
)
def test_the_digest_depends_on_every_source_file(place: int, change: dict[str, object]) -> None:
    """Other code would run under an approved digest."""
    other = [msgspec.structs.replace(entry, **change) if at == place else entry for at, entry in enumerate(TREE)]
    assert digest_of(other) != digest_of(TREE)


def test_the_digest_tells_whether_scripts_have_run() -> None:
    """Scripts that a user allowed would be asked for at each start, or run in one that was approved without them."""
    assert digest_of(TREE, has_run_scripts=True) != digest_of(TREE)


def test_the_bytes_of_compiled_files_are_no_part_of_the_digest() -> None:
    """Another machine would compile the same package to another seal."""
    other = [*TREE[:4], Entry("m.pyc", FILE, size=6, hash="cc")]
    assert digest_of(other) == digest_of(TREE)


@given(st.lists(st.tuples(st.text("ab/.", min_size=1, max_size=6), st.text("ab", max_size=4)), max_size=4))
def test_different_trees_have_different_digests(files: list[tuple[str, str]]) -> None:
    """Two names could be shifted into one another, and a file would be taken for another one."""
    one = {Entry(path, FILE, size=len(text), hash=text) for path, text in files}
    other = {Entry(path + text, FILE, size=len(text), hash=text) for path, text in files}
    assert (digest_of(one) == digest_of(other)) == (one == other)


@pytest.mark.parametrize(
    ("path", "target", "problem"),
    [
        ("bin/l", "run", ""),
        ("bin/l", "../bin/run", ""),
        ("bin/l", ".", ""),
        ("bin/l", "..", ""),
        ("l", "bin//run", ""),
        ("bin/l", "link", ""),
        ("l", "/etc/passwd", "is a link to an absolute path"),
        ("l", "..", "is a link out of the tree"),
        ("bin/l", "../../x", "is a link out of the tree"),
        ("bin/l", "../../tree/bin/run", "is a link out of the tree"),
        ("l", "bin/link/..", "is a link through something that is no folder"),
        ("l", "bin/run/../../..", "is a link through something that is no folder"),
        ("l", "none/../../x", "is a link through something that is no folder"),
        ("l", "none", "is a link to nothing"),
        ("l", "a\nb", "is a link to a name that no entry may have"),
    ],
)
def test_a_link_leads_to_an_entry_of_the_tree_through_folders(path: str, target: str, problem: str) -> None:
    """A server would read, or a check would follow, a file outside of what was sealed."""
    kinds = {entry.path: entry.kind for entry in TREE}
    assert link_problem(Entry(path, LINK, hash=target), kinds) == problem


@pytest.mark.parametrize(
    ("name", "is_fine"), [("é ü.js", True), ("a\nb", False), ("a\x1b[2J", False), ("a\udcff", False)]
)
def test_names_are_text_that_can_be_written_down(name: str, is_fine: bool) -> None:
    """A manifest could not hold the name, or a terminal would obey it."""
    assert (name_problem(name) == "") is is_fine


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("README", "readme", True),
        ("\u00e9", "e\u0301", True),
        ("\u00c9", "e\u0301", True),
        ("straße", "STRASSE", True),
        ("a", "b", False),
        ("a-b", "a_b", False),
    ],
)
def test_names_that_a_file_system_may_take_for_one_are_known(one: str, other: str, is_same: bool) -> None:
    """On another machine one file would replace the other."""
    assert (name_key(one) == name_key(other)) is is_same


def test_an_upgrade_names_what_came_went_and_changed() -> None:
    """A user would approve a new dependency, or a new install script, without seeing it."""

    def package(name: str, version: str, script: str = "", integrity: str = "") -> Package:
        return Package(name, version, integrity or f"sha512-{name}{version}", 1, script=script)

    def manifest(*packages: Package) -> Manifest:
        return Manifest(index=PackageIndex.NPM, name="server", version="1", words="npx server", packages=packages)

    a1, a2, a3, b1 = package("a", "1"), package("a", "2"), package("a", "3"), package("b", "1")
    c1, c2 = package("c", "1", "install"), package("c", "2", "install")
    d1, d2, e1 = package("d", "1"), package("d", "2", "postinstall"), package("e", "1", "install")
    other_b1 = package("b", "1", integrity="sha512-other")
    found = compare(manifest(a1, a2, b1, c1, d1), manifest(a2, a3, other_b1, c2, d2, e1))
    assert found == Changes(added=(e1,), changed=((a1, a3), (b1, other_b1), (c1, c2), (d1, d2)), scripts=(d2, e1))
    assert compare(manifest(a1, a2, b1), manifest(a3)) == Changes(removed=(a2, b1), changed=((a1, a3),))
    assert compare(manifest(a1, b1), manifest(b1, a1)) == Changes()


def test_differences_say_which_path_and_since_when() -> None:
    """A user could not tell a disk's mistake from a program that changes what runs."""
    now = [TREE[0], TREE[1], msgspec.structs.replace(TREE[2], hash="cc"), Entry("new", FILE), TREE[4]]
    times = {".": 1.0, "bin": 2.0, "bin/run": 3.0, "new": 4.0, "m.pyc": 5.0}
    assert differences(TREE, now, times) == [
        Difference("bin/link", "removed", 2.0),
        Difference("bin/run", "changed", 3.0),
        Difference("new", "added", 4.0),
    ]
    assert differences(TREE, list(reversed(TREE)), times) == []
