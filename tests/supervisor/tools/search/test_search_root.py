"""Where is searched, and how what lies there is named."""

from pathlib import Path

import pytest
from support.file_tools import context_in

from quarterdeck.tools.context import OutsideRootsError
from quarterdeck.tools.search.ripgrep import Ending, Searched
from quarterdeck.tools.search.search_root import SearchPlace, find_place, what_is_missing


@pytest.mark.parametrize(
    ("cwd", "path", "shown"),
    [
        ("/w", b"/w/a/b", "a/b"),
        ("/w", b"/w", "/w"),
        ("/w", b"/w/", "."),
        ("/w", b"/wide/a", "/wide/a"),
        ("/", b"/a", "a"),
        ("/w", b"/w/caf\xe9\n", "caf\\udce9\\n"),
    ],
)
def test_paths_are_shown_so_that_other_tools_take_them(cwd: str, path: bytes, shown: str) -> None:
    """A model could not read the file that it has found."""
    assert SearchPlace("x", "/w", is_directory=True, cwd=cwd).show(path) == shown


def real_place(path: Path) -> str:
    """Where it is, links resolved."""
    return str(path.resolve())


@pytest.mark.anyio
async def test_a_place_is_where_its_path_leads(tmp_path: Path) -> None:
    """What is found through a link would be named by a path that the tools refuse."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("")
    (tmp_path / "link").symlink_to("a")
    ctx = context_in(tmp_path)
    real = real_place(tmp_path)
    assert await find_place(ctx, "link/f") == SearchPlace("link/f", f"{real}/a/f", is_directory=False, cwd=real)
    assert await find_place(ctx, None) == SearchPlace("the working directory", real, is_directory=True, cwd=real)
    with pytest.raises(OutsideRootsError):
        await find_place(ctx, "..")
    with pytest.raises(FileNotFoundError):
        await find_place(ctx, "nowhere")


@pytest.mark.parametrize(
    ("ending", "unreadable", "complaint", "said"),
    [
        (Ending.COMPLETE, 0, "", []),
        (Ending.ENOUGH, 0, "", []),
        (Ending.DEADLINE, 0, "", ["stopped after 60 s"]),
        (Ending.KILLED, 0, "", ["a limit or a fault of its own"]),
        (Ending.KILLED, 0, "first\nended: too much\n", ["ended: too much"]),
        (Ending.DEADLINE, 1, "", ["stopped after", "1 path could not be read"]),
        (Ending.COMPLETE, 1200, "", ["1,200 paths could not be read"]),
    ],
)
def test_what_may_have_been_missed_is_said(ending: Ending, unreadable: int, complaint: str, said: list[str]) -> None:
    """A model would take a part for the whole."""
    lines = what_is_missing(Searched(ending, unreadable, "", complaint, failed=False))
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))
