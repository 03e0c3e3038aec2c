"""Finding files and directories by name."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.tools.file_tools import Answer, call
from support.tools.searches import PlayedShell, SwappingFs, confines_files, session_in, swapping, with_shell, write_tree

from quarterdeck.tools.context import DirectoryEntry, ExecResult, OnOutput, Stream, ToolContext
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.search import find as find_module
from quarterdeck.tools.search.find import MAX_SHOWN, find_tool
from quarterdeck_protocol.tools import CancelToken

pytestmark = [pytest.mark.anyio, pytest.mark.process]

FIND = find_tool()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Where the session works."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
async def ctx(workspace: Path, tmp_path: Path) -> AsyncIterator[ToolContext]:
    """The session."""
    async with session_in(workspace, tmp_path / "state") as opened:
        yield opened


async def find(ctx: ToolContext, query: str, **given: Any) -> Answer:
    """Look."""
    return await call(FIND, ctx, query=query, **given)


def paths_of(answer: Answer) -> list[str]:
    """What was found, without the header."""
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
    answer = await find(ctx, "secret", path="out")
    assert answer.is_error
    assert "outside" in answer.text


async def test_names_of_any_kind_are_shown_on_one_line(workspace: Path, ctx: ToolContext) -> None:
    """A hostile name would look like several, or break the whole answer."""
    write_tree(workspace, {"new\nline": "", "-rf": "", "ünïcode": ""})
    os.close(os.open(os.fsencode(workspace) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    assert paths_of(await find(ctx, "*")) == ["-rf", "caf\\udce9", "new\\nline", "ünïcode"]


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
    monkeypatch.setattr(find_module, "_MAX_ENTRIES", 50)
    write_tree(workspace, {f"f{number:04}": "" for number in range(1000)})
    assert (await find(ctx, "f099?", type="file")).text.startswith("10 found: files named 'f099?'")
    (workspace / "link").symlink_to("f0007")
    assert "Links and empty directories were not looked for everywhere" in (await find(ctx, "f099?")).text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "query is missing"),
        ({"query": ""}, "must not be empty"),
        ({"query": 1}, "expected a string"),
        ({"query": "src/*.py"}, "path 'src' and query '*.py'"),
        ({"query": "/"}, "has a slash"),
        ({"query": "x" * 256}, "longer than 255"),
        ({"query": "x", "type": "link"}, '"dir", "file"'),
        ({"query": "x", "type": None}, "one of"),
        ({"query": "x", "path": "f"}, "f is a file"),
        ({"query": "x", "path": "nowhere"}, "nowhere does not exist"),
        ({"query": "x", "path": ".."}, "outside"),
        ({"query": "x", "path": "a\0b"}, "NUL"),
        ({"query": "x", "path": 1}, "expected a string"),
        ({"query": "x", "limit": 1}, "no parameter"),
    ],
)
async def test_wrong_input_is_explained(workspace: Path, ctx: ToolContext, given: dict[str, object], said: str) -> None:
    """A model would not know what to mend."""
    write_tree(workspace, {"f": ""})
    answer = await call(FIND, ctx, **given)
    assert answer.is_error
    assert said in answer.text


async def test_what_may_not_be_read_is_counted(workspace: Path, ctx: ToolContext) -> None:
    """A model would take it that nothing is there."""
    write_tree(workspace, {"closed/f": "", "f": ""})
    (workspace / "closed").chmod(0)
    try:
        answer = await find(ctx, "f")
        alone = await find(ctx, "f", path="closed")
    finally:
        (workspace / "closed").chmod(0o755)
    assert "f" in paths_of(answer)
    assert "1 path could not be read" in answer.text
    assert alone.is_error
    assert "Permission denied" in alone.text


@pytest.mark.skipif(not confines_files(), reason="commands are not confined here")
async def test_a_place_swapped_for_a_link_after_it_was_judged_leads_nowhere(
    workspace: Path, tmp_path: Path, ctx: ToolContext
) -> None:
    """An agent could list its user's files with a race that it always wins."""
    write_tree(tmp_path, {"outside/secret": "", "outside/below/secret": "", "workspace/swapped/f": ""})
    (tmp_path / "outside" / "link-to-secret").symlink_to("secret")
    fs = SwappingFs(workspace, tmp_path / "outside")
    answer = await find(with_shell(workspace, ctx.shell, fs), "*", path="swapped")
    assert (workspace / "swapped").is_symlink()
    assert "secret" not in answer.text


@pytest.mark.skipif(not confines_files(), reason="commands are not confined here")
async def test_directories_swapped_for_links_during_the_search_leak_nothing(
    workspace: Path, tmp_path: Path, ctx: ToolContext
) -> None:
    """An agent's own process in the background could win the race now and then."""
    write_tree(tmp_path, {f"outside/secret{number}": "" for number in range(20)})
    (tmp_path / "outside" / "secret-link").symlink_to("nowhere")
    write_tree(workspace, {f"d{number}/plain{number}": "" for number in range(20)})
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "outside")
    with swapping([workspace / f"d{number}" for number in range(20)], link):
        for _ in range(15):
            assert not [path for path in paths_of(await find(ctx, "*")) if "secret" in path]


class StubbornFs(LocalFs):
    """Never comes to the end of a directory."""

    async def list_directory(self, path: str, most: int) -> tuple[Sequence[DirectoryEntry], int]:
        """Wait."""
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
