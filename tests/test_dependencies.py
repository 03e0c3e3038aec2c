"""What is installed with the product, against what the product imports."""

import ast
import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]

MODULES = {"python-dotenv": "dotenv", "python-ulid": "ulid"}
"""Where a distribution and its module have two names."""


def imported() -> set[str]:
    """The packages that our code names in an import, in whichever function."""
    files = chain.from_iterable(
        ROOT.glob(f"{part}/**/*.py") for part in ("protocol", "sandbox", "worker", "supervisor")
    )
    found = set()
    for node in chain.from_iterable(ast.walk(ast.parse(file.read_bytes())) for file in files):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_what_is_installed_is_imported() -> None:
    """Everybody would install, and have to trust, a library that nothing needs."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[<>=;\[ ]", each, maxsplit=1)[0] for each in wanted]
    assert {MODULES.get(name, name) for name in names} - imported() == set()
