"""What the site adds to the pages when it is built, and what the pages repeat of the code."""

import importlib.util
import re
from types import ModuleType
from typing import Final

import pytest
from support.sandbox.preset_table import to_markdown

from quarterdeck.cli.exits import MEANINGS
from quarterdeck.cli.program import make_program
from quarterdeck.trust.scan.rules import RULES
from quarterdeck_protocol.faults import REMEDIES
from quarterdeck_protocol.policy import PRESET_LIMITS, Limits
from quarterdeck_protocol.policy_values import Preset

from .documents import ROOT, pages, text_of

DOCS: Final = ROOT / "docs"

UNITS: Final = {"MiB": 1 << 20, "GiB": 1 << 30}


def page(name: str) -> str:
    return text_of(DOCS / name)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation_hooks", DOCS / "site" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_marker_of_every_page_is_filled(hooks: ModuleType) -> None:
    """The built page would lack what its reader came for."""
    filled = {each.name: hooks.fill(text_of(each)) for each in pages() if "<!-- generated:" in text_of(each)}
    assert filled.keys() == {"command-line.md", "error-codes.md"}
    assert not any("<!-- generated:" in text for text in filled.values())


def test_every_command_has_its_section_with_its_options(hooks: ModuleType) -> None:
    """The reference would miss a command, or show one as it was."""
    text = hooks.commands()
    for words in command_names():
        assert f"### quarterdeck {' '.join(words)}\n" in text
    assert "--portable-schemas" in text
    assert "\x1b" not in text


def test_every_code_has_its_section_with_its_remedy(hooks: ModuleType) -> None:
    """Who looks a code up would find nothing."""
    text = hooks.error_codes()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == sorted(REMEDIES)
    assert text.count("**Fix:**") == text.count("**Example:**") == len(REMEDIES)


def test_the_table_of_commands_names_every_command() -> None:
    """A command that nobody is told of is not there for its users."""
    table = page("command-line.md").partition("## What all commands share")[0]
    rows = [re.findall(r"[\w-]+", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    commands = command_names()
    assert ("ledger", "verify") in commands
    assert [words for words in commands if not any(words[0] in row and set(words) <= set(row) for row in rows)] == []


def test_the_table_of_exit_codes_says_the_same_as_the_help() -> None:
    """One of the two would be wrong about what a script is told."""
    table = page("command-line.md").partition("| exit code | meaning |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", table.replace("`", ""), re.MULTILINE))
    assert rows == {str(int(code)): meaning for code, meaning in MEANINGS.items()}


def test_every_rule_of_the_scan_is_named() -> None:
    """Somebody who finds a rule's id in a log would look for it in vain."""
    assert [rule for rule in RULES if f"`{rule}`" not in page("trust.md")] == []


def test_the_table_of_presets_is_what_the_code_decides() -> None:
    """A user would choose a preset by what it did once."""
    assert to_markdown() in page("sandbox.md")


@pytest.mark.parametrize("limit", Limits.model_fields)
def test_every_limit_is_told_with_its_values(limit: str) -> None:
    """A user would wonder which limit a server hit, or rely on one that is not there."""
    [row] = re.findall(rf"^\| `{limit}` \| .* \| (.*) \| (.*) \|$", page("sandbox.md"), re.MULTILINE)
    values = [getattr(Limits(), limit), {**Limits().model_dump(), **PRESET_LIMITS[Preset.STRICT]}[limit]]
    assert [amount(told) for told in row] == [None if value is None else float(value) for value in values]


def amount(told: str) -> float | None:
    number, _, unit = told.partition(" ")
    return None if number == "none" else float(number) * UNITS.get(unit, 1)


def command_names() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in make_program().commands.items():
        inner = getattr(command, "commands", None)
        found += [(name, each) for each in inner] if inner else [(name,)]
    return found
