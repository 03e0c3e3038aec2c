"""Write the maps in the source roots' READMEs: `python docs/site/maps.py`.

Each folder, and each module at a package's top, has one line: the first sentence of its docstring.  A test fails when a
map is stale.
"""

import ast
import re
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]

PACKAGES: Final = (
    "protocol/quarterdeck_protocol",
    "sandbox/quarterdeck_sandbox",
    "worker/quarterdeck_worker",
    "supervisor/quarterdeck",
    "plugin/quarterdeck_pytest",
)

BEGIN: Final = "<!-- map: written by docs/site/maps.py from the docstrings -->"
END: Final = "<!-- end of the map -->"

SENTENCE: Final = re.compile(r"(.+?[.!?])(?:\s+[A-Z`(]|$)", re.DOTALL)


def main() -> None:
    """Bring every map up to date."""
    for package in PACKAGES:
        readme = (REPOSITORY / package).parent / "README.md"
        readme.write_text(with_map(readme.read_text(encoding="utf-8"), REPOSITORY / package), encoding="utf-8")


def with_map(text: str, package: Path) -> str:
    """The text of a README with the map of its package between the two comments."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{to_markdown(package)}\n\n{END}{after}"


def to_markdown(package: Path) -> str:
    """A line for each module at the package's top and for each folder, however deep, with the modules in it."""
    rows = [(f"`{path.name}`", _sentence(path), "") for path in _modules(package)]
    for folder in _folders(package):
        names = ", ".join(f"`{path.stem}`" for path in _modules(folder))
        rows.append((f"`{folder.relative_to(package)}/`", _sentence(folder / "__init__.py"), names))
    return "\n".join(["| where | what | modules |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name not in {"__init__.py", "__main__.py"})


def _folders(package: Path) -> list[Path]:
    return sorted({path.parent for path in package.glob("**/*.py")} - {package})


def _sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_bytes())) if path.exists() else None
    paragraph = " ".join((text or "").partition("\n\n")[0].split())
    found = SENTENCE.match(paragraph)
    return (found[1] if found else paragraph).replace("|", "\\|")


if __name__ == "__main__":
    main()
