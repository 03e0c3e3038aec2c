"""Names that are looked for."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.search import find
from quarterdeck.tools.search.find import MAX_QUERY_CHARS, Listing, NameQuery


@pytest.mark.parametrize(
    ("query", "name", "is_match"),
    [
        ("read", "README.md", True),
        ("read", "thread.py", True),
        ("read", "rea.d", False),
        ("[id]", "[id].tsx", True),
        (".", "plain", False),
        ("*.py", "a.PY", True),
        ("*.py", "a.pyc", False),
        ("*.py", ".py", True),
        ("test_*", "test_a.py", True),
        ("test_*", "a_test_b.py", False),
        ("*a*b*", "xaybz", True),
        ("*a*b*", "xbya", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("?", "a", True),
        ("?", "ab", False),
        ("?", "", False),
        ("file??.txt", "file07.txt", True),
        ("*", "", True),
        ("**", "anything\n", True),
        ("[ab]*", "a", False),
        ("{a,b}*", "a", False),
        ("caf\u00e9*", "cafe\u0301.txt", True),
        ("STRASSE", "stra\u00dfe", True),
        ("?ink", "\udcffink", True),
    ],
)
def test_a_name_is_looked_for_by_a_part_or_by_a_pattern_for_the_whole(query: str, name: str, is_match: bool) -> None:
    """A model would not find the file that it describes."""
    assert NameQuery(query).matches(name) is is_match


@given(st.text(alphabet="ab*?.", min_size=1, max_size=8), st.text(alphabet="ab.", max_size=8))
def test_patterns_mean_what_they_say(query: str, name: str) -> None:
    """Some combination of stars would miss files, or find wrong ones."""
    known = {"*": ".*", "?": "."}
    expected = "".join(known.get(char, re.escape(char)) for char in query)
    if not {"*", "?"} & set(query):
        expected = f".*{expected}.*"
    assert NameQuery(query).matches(name) == bool(re.fullmatch(expected, name, re.DOTALL))


def test_no_pattern_is_slow() -> None:
    """A model could hold up every session with one pattern."""
    query = NameQuery("*a" * (MAX_QUERY_CHARS // 4) + "*" + "?a" * (MAX_QUERY_CHARS // 4) + "*b")
    assert not any(query.matches("a" * 255 + end) for end in ("c",) * 1000)


NAMES = st.sampled_from([b"a", b"b", b"cc", b"caf\xe9"])
FILES = st.lists(st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: b"/w/" + b"/".join(parts) + b".x"))


def listing_of(query: str, files: list[bytes], place: bytes = b"/w", *, wants: str = "fd", most: int = 1000) -> Listing:
    """A listing of all of them."""
    listing = Listing(NameQuery(query), place, most, wants_files="f" in wants, wants_directories="d" in wants)
    for path in files:
        listing.add_file(path)
    return listing


@given(FILES)
def test_every_directory_that_holds_a_file_is_known_with_what_it_holds(files: list[bytes]) -> None:
    """A directory would not be found, or not looked into for links."""
    expected: dict[bytes, set[bytes]] = {b"/w": set()}
    for file in files:
        path = file
        while path != b"/w":
            parent = path.rpartition(b"/")[0]
            expected.setdefault(parent, set()).add(path)
            path = parent
    listing = listing_of("*", sorted(set(files)))
    assert listing.directories == {directory: len(held) for directory, held in expected.items()}
    found = listing.first()
    assert {path[:-1] for path in found if path.endswith(b"/")} == set(expected) - {b"/w"}
    assert {path for path in found if not path.endswith(b"/")} == set(files)
    assert len(found) == len(set(found)) == listing.total


@pytest.mark.parametrize(
    ("wants", "found"), [("f", [b"/w/ab/ab.x"]), ("d", [b"/w/ab/"]), ("fd", [b"/w/ab/", b"/w/ab/ab.x"])]
)
def test_only_what_is_wanted_is_found(wants: str, found: list[bytes]) -> None:
    """A search for directories would drown in files."""
    assert listing_of("ab", [b"/w/ab/ab.x", b"/w/c"], wants=wants).first() == found


def test_the_root_of_all_files_can_be_searched() -> None:
    """A session that may read everything would find nothing."""
    listing = listing_of("*", [b"/a", b"/b/c"], b"/")
    assert listing.first() == [b"/a", b"/b/", b"/b/c"]
    assert listing.directories == {b"/": 2, b"/b": 1}
    assert not listing.is_cut


@given(FILES, st.integers(1, 5))
def test_the_first_ones_are_kept_whatever_their_order(files: list[bytes], most: int) -> None:
    """The same search would show other files each time."""
    files = sorted(set(files))
    listing = listing_of("*", files[::-1], wants="f", most=most)
    assert listing.first() == sorted(files, key=lambda path: path.split(b"/"))[:most]
    assert listing.total == len(files)


def test_no_more_is_kept_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk full of files would fill our memory."""
    monkeypatch.setattr(find, "_SLACK", 3)
    monkeypatch.setattr(find, "MAX_DIRECTORIES", 4)
    listing = listing_of("*", [b"/w/%d" % number for number in range(1000, 0, -1)], most=2)
    assert (listing.first(), listing.total, listing.is_cut) == ([b"/w/1", b"/w/10"], 1000, False)
    listing = listing_of("nothing", [b"/w/%d/x/y/f" % number for number in range(9)])
    assert (len(listing.directories), listing.is_cut) == (4, True)
