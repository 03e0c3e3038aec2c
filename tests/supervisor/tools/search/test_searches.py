"""What `grep` and `find` promise alike: they look where the session may, and say what they may have missed."""

from pathlib import Path

import pytest
from support.tools.file_tools import Answer, call, context_in
from support.tools.searches import SwappingFs, confines_files, swapping, with_shell, write_tree

from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.search.find import find_tool
from quarterdeck.tools.search.grep import grep_tool

pytestmark = pytest.mark.process

TOOLS = {"grep": grep_tool(), "find": find_tool()}
WANTED = {"grep": {"pattern": "secret|plain"}, "find": {"query": "*"}}

either = pytest.mark.parametrize("name", TOOLS)
confined = pytest.mark.skipif(not confines_files(), reason="commands are not confined here")


async def search(name: str, ctx: ToolContext, path: str = ".") -> Answer:
    return await call(TOOLS[name], ctx, path=path, **WANTED[name])


@either
async def test_nothing_found_and_nothing_that_can_search_are_told_apart(
    name: str, workspace: Path, ctx: ToolContext
) -> None:
    """A model would think that the search went wrong where nothing is, or see a stack trace."""
    nothing = await search(name, ctx)
    assert (nothing.text.startswith(("No match for", "Nothing found:")), nothing.is_error) == (True, False)
    without = await search(name, context_in(workspace))
    assert ("runs no commands" in without.text, without.is_error) == (True, True)


@either
async def test_what_may_not_be_read_is_counted(name: str, workspace: Path, ctx: ToolContext) -> None:
    """A model would take it that nothing is there."""
    write_tree(workspace, {"closed/f": "plain", "g": "plain"})
    (workspace / "closed").chmod(0)
    try:
        answer, alone = await search(name, ctx), await search(name, ctx, "closed")
    finally:
        (workspace / "closed").chmod(0o755)
    assert "g" in answer.text.split("\n")[-1]
    assert "1 path could not be read" in answer.text
    assert ("Permission denied" in alone.text, alone.is_error) == (True, True)


@either
@confined
async def test_a_place_swapped_for_a_link_after_it_was_judged_leads_nowhere(
    name: str, workspace: Path, tmp_path: Path, ctx: ToolContext
) -> None:
    """An agent could read or list its user's files with a race that it always wins."""
    write_tree(tmp_path, {"outside/secret": "very secret", "outside/below/secret": "", "workspace/swapped/f": "plain"})
    (tmp_path / "outside" / "link-to-secret").symlink_to("secret")
    fs = SwappingFs(workspace, tmp_path / "outside")
    answer = await search(name, with_shell(workspace, ctx.shell, fs), "swapped")
    assert (workspace / "swapped").is_symlink()
    assert "secret" not in answer.text.replace("secret|plain", "")


@either
@confined
async def test_directories_swapped_for_links_during_the_search_leak_nothing(
    name: str, workspace: Path, tmp_path: Path, ctx: ToolContext
) -> None:
    """An agent's own process in the background could win the race now and then."""
    write_tree(tmp_path, {f"outside/f{number}-secret": "very secret" for number in range(20)})
    (tmp_path / "outside" / "secret-link").symlink_to("nowhere")
    write_tree(workspace, {f"d{number}/f{number}": "plain" for number in range(20)})
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "outside")
    with swapping([workspace / f"d{number}" for number in range(20)], link):
        for _ in range(10):
            answer = await search(name, ctx)
            assert not answer.is_error
            assert "secret" not in answer.text.replace("secret|plain", "")
