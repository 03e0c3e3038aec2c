"""Searching the contents of files."""

import codecs
import os
from pathlib import Path
from typing import Any

import pytest
from support.tools.file_tools import Answer, call
from support.tools.searches import PlayedShell, with_shell, write_tree

from quarterdeck.tools.context import ExecResult, OnOutput, Stream, ToolContext
from quarterdeck.tools.search.grep import MAX_MATCHES, grep_tool
from quarterdeck_protocol.tools import CancelToken

pytestmark = pytest.mark.process

GREP = grep_tool()


async def grep(ctx: ToolContext, pattern: str, **given: Any) -> Answer:
    return await call(GREP, ctx, pattern=pattern, **given)


def lines_of(answer: Answer) -> list[str]:
    assert not answer.is_error, answer.text
    return [line for line in answer.text.split("\n") if line.partition(": ")[0].rpartition(":")[2].isdigit()]


async def test_matching_lines_come_with_path_and_number_sorted_by_path(workspace: Path, ctx: ToolContext) -> None:
    """A model could not go to what it has found."""
    write_tree(
        workspace,
        {"b.py": "no\nneedle one\n", "a/z.py": "x\nx\nneedle two\r\n", "a-b.py": "needle", "c.py": "needles\nneedle"},
    )
    answer = await grep(ctx, r"needle\b")
    assert answer.text == (
        "4 matches in 4 files for 'needle\\b' in the working directory:\n"
        "a/z.py:3: needle two\na-b.py:1: needle\nb.py:2: needle one\nc.py:2: needle"
    )


async def test_hidden_files_are_searched_and_ignored_binary_and_huge_ones_are_not(
    workspace: Path, ctx: ToolContext
) -> None:
    """A search would drown in what was built or installed, or miss a project's settings."""
    write_tree(
        workspace,
        {
            ".env": "needle",
            ".github/ci.yml": "needle",
            ".git/config": "needle",
            "kept.txt": "needle",
            "built/out.js": "needle",
            "deep/x.log": "needle",
            "deep/kept.log": "needle",
            "deep/.gitignore": "!kept.log",
            ".gitignore": "built/\n*.log\n",
            ".ignore": "kept.t?t",
            "program.bin": b"\0needle",
        },
    )
    with (workspace / "huge.txt").open("wb") as file:
        file.write(b"needle\n")
        file.truncate(5 << 30)
    found = lines_of(await grep(ctx, "needle"))
    assert [line.partition(":")[0] for line in found] == [".env", ".github/ci.yml", "deep/kept.log"]


async def test_a_path_that_is_named_is_searched_whatever_it_is(workspace: Path, ctx: ToolContext) -> None:
    """A model could not look into an installed package, a long log, or a repository's own settings."""
    write_tree(
        workspace, {".gitignore": "node_modules\n*.log\n", "node_modules/p/i.js": "needle", ".git/config": "needle"}
    )
    (workspace / "long.log").write_bytes(b"hay\n" * (6 << 20) + b"needle\n")
    assert lines_of(await grep(ctx, "needle", path="node_modules")) == ["node_modules/p/i.js:1: needle"]
    assert lines_of(await grep(ctx, "needle", path=".git")) == [".git/config:1: needle"]
    assert lines_of(await grep(ctx, "needle", path="long.log")) == [f"long.log:{(6 << 20) + 1}: needle"]


async def test_rules_above_the_named_directory_hold(workspace: Path, ctx: ToolContext) -> None:
    """A search in a part of a project would find what one in the whole leaves out."""
    write_tree(workspace, {".gitignore": "*.log\n", "src/a.log": "needle", "src/a.py": "needle"})
    assert lines_of(await grep(ctx, "needle", path="src")) == ["src/a.py:1: needle"]


async def test_a_binary_file_that_matches_is_said(workspace: Path, ctx: ToolContext) -> None:
    """A model would take it that the file has no such text."""
    write_tree(workspace, {"a.bin": b"needle\0", "b.txt": b"needle\n" + b"hay\n" * 100_000 + b"\0"})
    assert "1 binary file matched" in (await grep(ctx, "needle", path="a.bin")).text
    answer = await grep(ctx, "needle")
    assert lines_of(answer) == ["b.txt:1: needle"]
    assert "1 binary file matched" in answer.text


@pytest.mark.parametrize(
    ("flags", "pattern", "numbers"),
    [
        ("", "one", [1]),
        ("i", "one", [1, 2]),
        ("gimsuy", "^one$", [1, 2]),
        ("guy", "ONE", [2]),
        ("m", r"ONE\nt.*o", [2, 3]),
        ("s", "ONE.two", [2, 3]),
        ("ss", "(?-s)ONE.two", []),
    ],
)
async def test_flags_mean_what_they_say(
    workspace: Path, ctx: ToolContext, flags: str, pattern: str, numbers: list[int]
) -> None:
    """A model could not search without case, or over line ends."""
    write_tree(workspace, {"f": "one\nONE\ntwo\n"})
    found = lines_of(await grep(ctx, pattern, flags=flags))
    assert [int(line.split(":")[1]) for line in found] == numbers


async def test_no_more_matches_come_than_wanted_and_that_is_said(workspace: Path, ctx: ToolContext) -> None:
    """A search for a common word would fill a model's memory."""
    write_tree(workspace, {f"f{number}": "needle\n" * 100 for number in range(100)})
    answer = await grep(ctx, "needle")
    assert len(lines_of(answer)) == 200
    assert "There are more matches" in answer.text
    assert len(lines_of(await grep(ctx, "needle", maxMatches=7))) == 7
    assert len(lines_of(await grep(ctx, "needle", maxMatches=10**12))) == MAX_MATCHES
    exact = await grep(ctx, "needle", path="f1", maxMatches=100)
    assert len(lines_of(exact)) == 100
    assert "There are more" not in exact.text


async def test_texts_in_any_encoding_are_shown(workspace: Path, ctx: ToolContext) -> None:
    """A stray byte would break the whole answer."""
    write_tree(
        workspace,
        {
            "latin": b"caf\xe9 needle",
            "marked": codecs.BOM_UTF16_LE + "needle €\n".encode("utf-16-le"),
            "new\nline": "needle",
        },
    )
    os.replace(workspace / "latin", os.fsencode(workspace) + b"/caf\xe9")
    assert lines_of(await grep(ctx, "needle")) == [
        "caf\\udce9:1: caf\ufffd needle",
        "marked:1: needle €",
        "new\\nline:1: needle",
    ]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("a{", r"\{"),
        ("*x", r"\*"),
        ("foo(", r"\("),
        ("foo)", r"\)"),
        ("[a", r"\["),
        ("(?=x)", "without look-around"),
        (r"(x)\1", "without backreferences"),
        (r"a\nb", 'flags has "m"'),
        ("a\nb", 'flags has "m"'),
        ("(((a{500}){500}){500})", "smaller counts"),
        (r"\p{Nonsense}", "escape"),
        ("x" * 10_001, "search for a part"),
        ("a\0b", r"\x00"),
        ("\ud800", "surrogate"),
    ],
)
async def test_a_wrong_pattern_is_told_with_what_to_do(
    ctx: ToolContext, workspace: Path, pattern: str, hint: str
) -> None:
    """A model would try the same pattern again."""
    write_tree(workspace, {"f": "x"})
    answer = await grep(ctx, pattern)
    assert answer.is_error
    assert answer.text.startswith("grep did not search: ")
    assert hint in answer.text
    assert len(answer.text) < 500


async def test_a_catastrophic_pattern_takes_linear_time(workspace: Path, ctx: ToolContext) -> None:
    """A model's pattern would hold up its session for years."""
    write_tree(workspace, {"f": "a" * 100_000 + "!\n"})
    assert (await grep(ctx, "(a+)+$")).text.startswith("No match")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pattern": "x", "flags": "ix!"}, "'!'"),
        ({"pattern": "x", "path": "nowhere"}, "nowhere does not exist"),
        ({"pattern": "x", "path": "../state"}, "outside"),
        ({"pattern": "x", "path": "/etc"}, "outside"),
        ({"pattern": "x", "path": "a\0b"}, "NUL"),
        ({"pattern": "x", "path": "\ud800"}, "surrogate"),
    ],
)
async def test_wrong_input_is_explained(ctx: ToolContext, given: dict[str, object], said: str) -> None:
    """A model would not know what to mend."""
    answer = await call(GREP, ctx, **given)
    assert answer.is_error
    assert said in answer.text


async def test_links_are_not_followed(workspace: Path, tmp_path: Path, ctx: ToolContext) -> None:
    """A link would lead a search out of the workspace, or around in circles."""
    write_tree(tmp_path, {"outside/secret": "needle", "workspace/f": "needle"})
    (workspace / "out").symlink_to(tmp_path / "outside")
    (workspace / "file").symlink_to(tmp_path / "outside" / "secret")
    (workspace / "up").symlink_to(".")
    assert lines_of(await grep(ctx, "needle")) == ["f:1: needle"]
    assert lines_of(await grep(ctx, "needle", path="up")) == ["f:1: needle"]


async def test_what_was_found_before_the_deadline_is_shown(workspace: Path) -> None:
    """A minute's search would be for nothing."""

    def play(write: OnOutput, _: CancelToken) -> ExecResult:
        write(Stream.STDOUT, b"%b/f\x001:found\n" % os.fsencode(workspace))
        raise TimeoutError

    answer = await grep(with_shell(workspace, PlayedShell(play)), "x")
    assert lines_of(answer) == ["f:1: found"]
    assert "stopped after 60 s" in answer.text


async def test_a_cancelled_search_is_an_error(workspace: Path) -> None:
    """Half of the matches would pass for all."""
    token = CancelToken()

    def play(*_: object) -> ExecResult:
        token.cancel()
        raise OSError("the command was cancelled")

    answer = await call(GREP, with_shell(workspace, PlayedShell(play)), token, pattern="x")
    assert (answer.text, answer.is_error) == ("grep was cancelled.", True)
