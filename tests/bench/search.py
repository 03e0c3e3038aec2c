"""`grep` over a tree of 100,000 files, confined and read into a result, against ripgrep alone with the same words."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from support.config.places import short_folder
from support.tools.file_tools import call
from support.tools.searches import PlayedShell, session_in, with_shell

from quarterdeck.tools.context import ExecResult, ToolContext
from quarterdeck.tools.installed import ripgrep_path
from quarterdeck.tools.search.grep import MAX_MATCHES, grep_tool

from .finding import Finding, NotMeasuredError, Target
from .rounds import Effort, alternate

RATIO: Final = Target(required=1.3, goal=1.15)

DIRECTORIES: Final = 1_000

FILES_EACH: Final = 100

LINES: Final = 20

NEEDLE: Final = "a needle"

NEEDLE_EVERY: Final = 500
"""Files from one that holds it to the next: 200 matches in all."""

DEADLINE_S: Final = 60.0


async def measure(effort: Effort) -> list[Finding]:
    if ripgrep_path() is None:
        raise NotMeasuredError("ripgrep is missing")
    with short_folder() as folder:
        workspace = folder / "workspace"
        await asyncio.to_thread(_plant, workspace)
        async with session_in(workspace, folder / "state", patience_s=None) as ctx:
            matches = DIRECTORIES * FILES_EACH // NEEDLE_EVERY
            ours, bare = await alternate(effort.rounds, _ours(ctx, matches), await _bare(workspace, matches))
    note = f"{DIRECTORIES * FILES_EACH:,} files of {LINES} lines, {matches} matches"
    return [Finding.of_rounds("grep over a tree, against bare ripgrep", "ms", RATIO, ours, bare, note)]


def _plant(workspace: Path) -> None:
    text = "".join(f"the quick brown fox jumps over the lazy dog, line {number}\n" for number in range(LINES))
    for number in range(DIRECTORIES * FILES_EACH):
        folder = workspace / f"part{number // FILES_EACH // 50}" / f"folder{number // FILES_EACH}"
        if number % FILES_EACH == 0:
            folder.mkdir(parents=True)
        extra = f"{NEEDLE}\n" if number % NEEDLE_EVERY == 0 else ""
        (folder / f"file{number}.txt").write_text(text + extra)


def _ours(ctx: ToolContext, matches: int) -> Callable[[], Awaitable[float]]:
    async def sample() -> float:
        started = time.perf_counter()
        answer = await call(grep_tool(), ctx, pattern=NEEDLE, maxMatches=MAX_MATCHES)
        taken_s = time.perf_counter() - started
        assert answer.text.startswith(f"{matches} matches in {matches} files"), answer.text
        return taken_s * 1000

    return sample


async def _bare(workspace: Path, matches: int) -> Callable[[], Awaitable[float]]:
    shell = PlayedShell(lambda *_: ExecResult("", "", 1))
    await call(grep_tool(), with_shell(workspace, shell), pattern=NEEDLE, maxMatches=MAX_MATCHES)
    [command], [environment] = shell.commands, shell.environments

    async def sample() -> float:
        started = time.perf_counter()
        done = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile, or it would be measured too
            ["/bin/sh", "-c", command],
            env={**os.environ, **environment},
            cwd="/",
            capture_output=True,
            timeout=DEADLINE_S,
            check=True,
        )
        taken_s = time.perf_counter() - started
        assert done.stdout.count(b"\n") == matches
        return taken_s * 1000

    return sample
