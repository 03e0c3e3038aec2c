"""A module that says that it is pure, in its docstring or by its folder's, is: values in, values out."""

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

CLAIM: Final = re.compile(r"\b(?:Pure|Impure)\b")
"""What a docstring says of its module, and a folder's of all below it that says nothing else."""

EFFECTS: Final = frozenset(
    {"anyio", "asyncio", "concurrent", "ctypes", "datetime", "fcntl", "keyring", "mcp", "multiprocessing"}
    | {"os", "psutil", "random", "resource", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3"}
    | {"ssl", "subprocess", "tempfile", "threading", "time", "uvicorn", "watchfiles"}
)
"""Modules with a clock, chance, files, processes, sockets or an event loop."""

CORES: Final = {
    *("protocol/quarterdeck_protocol", "sandbox/quarterdeck_sandbox/policy"),
    *("supervisor/quarterdeck/fleet/core", "supervisor/quarterdeck/ledger/events"),
    *(f"supervisor/quarterdeck/trust/{folder}" for folder in ("diff", "judge", "lock", "scan")),
}
"""Folders whose word may not get lost; a new one that says it is pure is checked without being here."""


@cache
def docstring(module: Path) -> str:
    """What the module, or the folder whose `__init__` it is, says of itself; empty where there is none."""
    text = module.read_text(encoding="utf-8") if module.exists() else ""
    return ast.get_docstring(ast.parse(text)) or "" if CLAIM.search(text) else ""  # most are not worth the parsing


def is_pure(module: Path) -> bool:
    """Whether the module is to be pure: by its own word, else by that of the nearest folder that has one."""
    words = (docstring(place) for place in (module, *(folder / "__init__.py" for folder in module.parents)))
    return next((found[0] == "Pure" for found in map(CLAIM.search, words) if found), False)


def imported(module: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(module.read_bytes())))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in whole | parts}


def test_a_module_that_says_it_is_pure_imports_nothing_with_effects() -> None:
    """What decides would wait, look at a clock or touch a file, and no test with plain values would show it."""
    roots = ("protocol", "sandbox", "worker", "supervisor", "plugin")
    modules = filter(is_pure, chain.from_iterable((ROOT / root).rglob("*.py") for root in roots))
    breaches = {str(module.relative_to(ROOT)): imported(module) & EFFECTS for module in modules}
    assert len(breaches) > 60
    assert {module: names for module, names in breaches.items() if names} == {}


def test_the_folders_of_the_cores_say_that_they_are_pure() -> None:
    """A core whose folder has lost the word would be checked by nobody."""
    assert [folder for folder in sorted(CORES) if not is_pure(ROOT / folder / "__init__.py")] == []


def test_the_one_module_of_the_protocol_with_effects_says_so() -> None:
    """Its sockets would be taken for a breach of the promise around it."""
    assert not is_pure(ROOT / "protocol/quarterdeck_protocol/io.py")
