"""The documentation names what there is: every module of the large packages, every command, every rule of the scan."""

import re
from pathlib import Path

import pytest

from quarterdeck.cli.program import make_program
from quarterdeck.trust.scan.rules import RULES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAP = (ROOT / "supervisor" / "README.md").read_text()


@pytest.mark.parametrize("package", ["trust", "ledger", "config", "cli"])
def test_the_map_names_every_module_of_a_package_and_no_other(package: str) -> None:
    """A newcomer would look for a module that is gone, or not find out what one is for."""
    table = MAP[MAP.index(f"| `{package}/` |") :].split("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in re.findall(r"`([\w/]+)`", line.split("|")[1])}
    folder = ROOT / "supervisor" / "quarterdeck" / package
    modules = {each.stem for each in folder.glob("*.py")} - {"__init__", "__main__"}
    assert named == modules | {f"{each.parent.name}/" for each in folder.glob("*/__init__.py")}


def test_the_table_of_commands_names_every_command() -> None:
    """A command that nobody is told of is not there for its users."""
    table = README[README.index("## Commands") : README.index("| exit code |")]
    rows = [re.findall(r"[\w-]+", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    commands = command_names()
    assert ("ledger", "verify") in commands
    assert [words for words in commands if not any(words[0] in row and set(words) <= set(row) for row in rows)] == []


def test_every_rule_of_the_scan_is_named() -> None:
    """Somebody who finds a rule's id in a log would look for it in vain."""
    assert [rule for rule in RULES if f"`{rule}`" not in README] == []


def command_names() -> list[tuple[str, ...]]:
    """Every command as the words that call it."""
    found: list[tuple[str, ...]] = []
    for name, command in make_program().commands.items():
        inner = getattr(command, "commands", None)
        found += [(name, each) for each in inner] if inner else [(name,)]
    return found
