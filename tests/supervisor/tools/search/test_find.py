"""Finding files and directories by name."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools.file_tools import Answer, call
from support.tools.searches import PlayedShell, with_shell, write_tree

from quarterdeck.tools.context import DirectoryEntry, ExecResult, OnOutput, Stream, ToolContext
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.search import find as find_module
from quarterdeck.tools.search.find import MAX_QUERY_CHARS, MAX_SHOWN, Listing, NameQuery, find_tool
from quarterdeck_protocol.tools import CancelToken

pytestmark = pytest.mark.process

FIND = find_tool()


async def find(ctx: ToolContext, query: str, **given: Any) -> Answer:
    return await call(FIND, ctx, query=query, **given)


def paths_of(answer: Answer) -> list[str]:
    assert not answer.is_error, answer.text
    return [] if answer.text.startswith("Nothing") else answer.text.split("\n")[1:]


async def test_files_and_directories_are_found_by_name_at_any_depth(workspace: Path, ctx: ToolContext) -> None:
    """A model could not find its way in a project."""
    write_tree(workspace, {"src/app/Main.py": "", "src/main/x.txt": "", "domain.txt": "", "mai.n": "", ".main": ""})
    answer = await find(ctx, "main")
    assert answer.text == (
        "4 found: files and directories with a name that contains 'main' in the working directory:\n"
        ".main\ndomain.txt\nsrc/app/Main.py\nsrc/main/"
    )
    assert paths_of(await find(ctx, "main", type="dir")) == ["src/main/"]
    assert paths_of(await find(ctx, "main", type="file", path="src")) == ["src/app/Main.py"]
    assert paths_of(await find(ctx, "*.TXT")) == ["domain.txt", "src/main/x.txt"]
    assert paths_of(await find(ctx, "?ai*")) == ["mai.n", "src/app/Main.py", "src/main/"]


async def test_ignored_files_are_not_found_unless_their_directory_is_named(workspace: Path, ctx: ToolContext) -> None:
    """A search would drown in what was built or installed."""
    write_tree(
        workspace,
        {
            ".gitignore": "built/\n*.log\n",
            "built/x": "",
            "built/deep/x": "",
            "logs/x.log": "",
            "x/y": "",
            ".git/x": "",
            "module/.git": "gitdir: elsewhere",
            "module/x": "",
        },
    )
    assert paths_of(await find(ctx, "x")) == ["module/x", "x/"]
    assert paths_of(await find(ctx, "*", type="dir")) == ["module/", "x/"]
    assert paths_of(await find(ctx, "x", path="built")) == ["built/deep/x", "built/x"]
    assert paths_of(await find(ctx, "x", path=".git")) == [".git/x"]


async def test_directories_without_any_file_are_found(workspace: Path, ctx: ToolContext) -> None:
    """A model would not find the directory that it has just made."""
    write_tree(workspace, {".gitignore": "*.log\n", "a/f": "", "ignored/x.log": ""})
    for name in ("empty/in/empty", "a/empty", "ignored/empty", "fresh/.git/refs"):
        (workspace / name).mkdir(parents=True)
    assert paths_of(await find(ctx, "*", type="dir")) == [
        "a/",
        "a/empty/",
        "empty/",
        "empty/in/",
        "empty/in/empty/",
        "fresh/",
    ]
    assert paths_of(await find(ctx, "empty", type="file")) == []


async def test_links_are_found_as_files_and_not_followed(workspace: Path, tmp_path: Path, ctx: ToolContext) -> None:
    """A link would lead a search out of the workspace, or around in circles; or would not be found."""
    write_tree(tmp_path, {"outside/secret": "", "workspace/f": ""})
    (workspace / "out").symlink_to(tmp_path / "outside")
    (workspace / "up").symlink_to(".")
    (workspace / "broken").symlink_to("nowhere")
    os.mkfifo(workspace / "pipe")
    assert paths_of(await find(ctx, "*")) == ["broken", "f", "out", "pipe", "up"]
    assert paths_of(await find(ctx, "*", type="dir")) == []


async def test_many_are_cut_and_counted(workspace: Path, ctx: ToolContext) -> None:
    """A broad query would fill a model's memory."""
    write_tree(workspace, {f"f{number:04}": "" for number in range(MAX_SHOWN + 7)})
    answer = await find(ctx, "f")
    assert answer.text.startswith(f"{MAX_SHOWN + 7} found:")
    assert "The other 7 are not shown" in answer.text
    assert paths_of(answer)[1:] == [f"f{number:04}" for number in range(MAX_SHOWN)]


async def test_a_huge_directory_is_searched_for_files_to_its_end(
    workspace: Path, ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of data would hold up every session, or hide what is in it."""
    monkeypatch.setattr(find_module, "MAX_ENTRIES", 50)
    write_tree(workspace, {f"f{number:04}": "" for number in range(1000)})
    assert (await find(ctx, "f099?", type="file")).text.startswith("10 found: files named 'f099?'")
    (workspace / "link").symlink_to("f0007")
    assert "Links and empty directories were not looked for everywhere" in (await find(ctx, "f099?")).text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"query": "src/*.py"}, "path 'src' and query '*.py'"),
        ({"query": "/"}, "has a slash"),
        ({"query": "x" * 256}, "longer than 255"),
        ({"query": "x", "path": "f"}, "f is a file"),
        ({"query": "x", "path": "nowhere"}, "nowhere does not exist"),
        ({"query": "x", "path": ".."}, "outside"),
        ({"query": "x", "path": "a\0b"}, "NUL"),
    ],
)
async def test_wrong_input_is_explained(workspace: Path, ctx: ToolContext, given: dict[str, object], said: str) -> None:
    """A model would not know what to mend."""
    write_tree(workspace, {"f": ""})
    answer = await call(FIND, ctx, **given)
    assert answer.is_error
    assert said in answer.text


class StubbornFs(LocalFs):
    """Never comes to the end of a directory."""

    async def list_directory(self, path: str, most: int) -> tuple[Sequence[DirectoryEntry], int]:
        await anyio.sleep_forever()
        raise AssertionError


def ending(code: int) -> PlayedShell:
    """A shell in which ripgrep finds nothing and ends so."""
    return PlayedShell(lambda *_: ExecResult("", "", code))


async def test_a_walk_without_an_end_is_given_up(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk would hold a call for ever."""
    monkeypatch.setattr(find_module, "WALK_S", 0.01)
    fs = StubbornFs(Roots(workspace), str(workspace))
    answer = await find(with_shell(workspace, ending(1), fs), "x")
    assert "were not looked for everywhere" in answer.text


async def test_a_cancelled_walk_is_an_error(workspace: Path) -> None:
    """A user who stops a search would wait for its end."""
    token = CancelToken()
    ctx = with_shell(workspace, ending(1), StubbornFs(Roots(workspace), str(workspace)))
    async with anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await anyio.lowlevel.checkpoint()
            token.cancel()

        tasks.start_soon(cancel)
        answer = await call(FIND, ctx, token, query="x")
    assert (answer.text, answer.is_error) == ("find was cancelled.", True)


async def test_a_tree_without_an_end_is_given_up(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that something keeps growing would fill our memory, and what was left out would pass for not there."""
    monkeypatch.setattr(find_module, "MAX_DIRECTORIES", 3)

    def play(write: OnOutput, cancel: CancelToken) -> ExecResult:
        for number in range(9):
            write(Stream.STDOUT, b"%b/d%d/f\0" % (os.fsencode(workspace), number))
        assert cancel.cancelled
        raise OSError("the command was cancelled")

    assert "too large to be searched to its end" in (await find(with_shell(workspace, PlayedShell(play)), "x")).text


@pytest.mark.parametrize(
    ("query", "name", "is_match"),
    [
        ("read", "README.md", True),
        ("read", "thread.py", True),
        ("[id]", "[id].tsx", True),
        ("*.py", "a.PY", True),
        ("*.py", "a.pyc", False),
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
    monkeypatch.setattr(find_module, "SLACK", 3)
    monkeypatch.setattr(find_module, "MAX_DIRECTORIES", 4)
    listing = listing_of("*", [b"/w/%d" % number for number in range(1000, 0, -1)], most=2)
    assert (listing.first(), listing.total, listing.is_cut) == ([b"/w/1", b"/w/10"], 1000, False)
    listing = listing_of("nothing", [b"/w/%d/x/y/f" % number for number in range(9)])
    assert (len(listing.directories), listing.is_cut) == (4, True)
