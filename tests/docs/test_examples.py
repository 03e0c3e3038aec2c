"""Everything that the documentation shows works: commands, configuration, programs."""

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click
import jsonschema
import pytest
from support.processes.running import output

from quarterdeck.cli.program import hoist_state_dir, make_program
from quarterdeck.config.load.file import load_config_file
from quarterdeck.config.load.json_schema import config_schema

from .document_stage import Stage, open_stage
from .documents import PROGRAM, Block, blocks, blocks_of, own_commands, pages, spans

HELP_TOPICS: Final = ("help", "--version", "--help")
"""First words that are no commands; the program answers them itself."""

DOCTOR_FINDS_GAPS: Final = frozenset({0, 1})
"""How `doctor` ends on a machine that can run servers, whatever it lacks."""

IN_A_COROUTINE: Final = "import asyncio\n\nasync def main():\n{}\n\nasyncio.run(main())\n"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with open_stage() as stage:
        yield stage


@cache
def program() -> click.Group:
    return make_program()


def resolve(arguments: list[str]) -> tuple[click.Context, list[str]]:
    """The command that the words name, and what is left of them.

    Raises:
        click.UsageError: there is no such command.
    """
    context = click.Context(program(), info_name=PROGRAM)
    rest = hoist_state_dir(arguments)
    while rest and rest[0].startswith("--state-dir"):
        del rest[: 1 if "=" in rest[0] else 2]
    while isinstance(context.command, click.Group) and rest:
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = click.Context(command, info_name=name, parent=context)
    return context, rest


def test_every_command_line_is_one_that_the_program_takes() -> None:
    """A reader would type a command or an option that is not there."""
    lines = [line for block in blocks("sh") for line in block.lines()]
    for arguments in [arguments for line in lines for arguments in own_commands(line)]:
        if arguments and arguments[0] in HELP_TOPICS:
            continue
        context, rest = resolve(arguments)
        context.command.make_context(context.info_name, list(rest), parent=context.parent)


def test_commands_that_are_named_in_a_sentence_exist_with_their_options() -> None:
    """A reader would be sent to a command or an option that is not there."""
    wrong = []
    for page, span in spans():
        words = re.findall(r"[^\s\[\](),…]+", span)[1:]
        if not words or words[0] in HELP_TOPICS or words[0].isupper():
            continue
        words = [word for word in words if not re.fullmatch(r"\w+(/\w+)+", word)]
        try:
            context, rest = resolve(words)
        except click.UsageError:
            wrong.append((page, span))
            continue
        known = {"--state-dir", "--help", "-h", "--"} | {name for each in context.command.params for name in each.opts}
        options = rest[: rest.index("--")] if "--" in rest else rest
        wrong += [
            (page, span)
            for word in options
            if word.startswith("-") and len(word) > 1 and word.split("=")[0] not in known
        ]
    assert wrong == []


def shown(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == "sh" and not block.not_run]


def page_by_tier(page: Path) -> object:
    """The page; one that checks a server of the SDK, which it starts a dozen times, is tried by night."""
    has_own_server = any(block.stage == "own server" for block in shown(page))
    return pytest.param(page, marks=pytest.mark.nightly) if has_own_server else page


def endings(line: str) -> frozenset[int]:
    """How a command line may end: as its comment says, else well."""
    said = re.search(r"# .*ends with (\d+)", line)
    return frozenset({int(said[1])} if said else DOCTOR_FINDS_GAPS if line.split()[1] == "doctor" else {0})


@pytest.mark.process
@pytest.mark.parametrize("page", [page_by_tier(page) for page in pages() if shown(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_run_from_its_top_to_its_end(page: Path, stage: Stage) -> None:
    """A reader who follows the page would be stopped by an error."""
    for block in shown(page):
        stage.prepare(block.stage)
        for line in block.lines():
            ended = stage.run(line)
            assert ended.returncode in endings(line), (line, ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.page)
def test_every_configuration_is_read_without_a_complaint(block: Block, tmp_path: Path) -> None:
    """A reader would copy a key that is not there; an editor would underline it."""
    written = json.loads(block.text)
    document = {"mcpServers": {"example": written}} if "command" in written else written
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(document))
    loaded = load_config_file(path, {"HOME": "/home/me", "TOKEN": "t"}, keyring=lambda name: f"the secret {name}")
    assert [*loaded.broken, *loaded.native_problems, *loaded.top_problems] == []
    jsonschema.Draft202012Validator(config_schema()).validate(document)


def slow_at_night(block: Block) -> object:
    """The block; one that is a run of pytest with servers is tried by night, as the plugin has tests of its own."""
    return pytest.param(block, marks=pytest.mark.nightly) if "def test_" in block.text else block


@pytest.mark.process
@pytest.mark.parametrize("block", [slow_at_night(block) for block in blocks("python")], ids=lambda block: block.page)
def test_every_program_runs(block: Block, stage: Stage) -> None:
    """The first thing that somebody copies would not work."""
    stage.prepare(block.stage)
    is_test = "def test_" in block.text
    has_loop = "async with" not in block.text or "asyncio.run" in block.text
    text = block.text if has_loop else IN_A_COROUTINE.format(textwrap.indent(block.text, "    "))
    text = text.replace("/home/me", str(stage.root))
    if is_test:
        program = stage.work / "test_example.py"
        program.write_text(text)
        options = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        output(sys.executable, *options, program, cwd=stage.work, env=stage.env)
        return
    ended = stage.forked("python", [text])
    assert ended.returncode == 0, ended.stderr
    if "everything__echo" in block.text:
        assert "hello" in ended.stdout.splitlines()[-1]


def test_what_is_not_run_says_why() -> None:
    """A block that rots would go unnoticed, and nobody would know whether it may run."""
    assert [block.page for block in blocks("sh") if block.not_run and len(block.not_run) < 10] == []
