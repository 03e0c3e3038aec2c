"""The map of the supervisor names what there is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "supervisor" / "README.md").read_text()


@pytest.mark.parametrize("package", ["trust", "ledger", "config", "cli"])
def test_the_map_names_every_module_of_a_package_and_no_other(package: str) -> None:
    """A newcomer would look for a module that is gone, or not find out what one is for."""
    table = MAP[MAP.index(f"| `{package}/` |") :].split("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in re.findall(r"`([\w/]+)`", line.split("|")[1])}
    folder = ROOT / "supervisor" / "quarterdeck" / package
    modules = {each.stem for each in folder.glob("*.py")} - {"__init__", "__main__"}
    assert named == modules | {f"{each.parent.name}/" for each in folder.glob("*/__init__.py")}
