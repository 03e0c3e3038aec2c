"""What is said of the tree, in the maps of the source roots and for whoever contributes, is how the tree is."""

import importlib.util
import re
import tomllib
from types import ModuleType
from typing import Final

import pytest

from .documents import ROOT, text_of

PATH: Final = re.compile(r"`((?:protocol|sandbox|worker|supervisor|tests|docs)/[\w./-]*|[A-Z]+\.md)`")

ROOTS: Final = ("protocol", "sandbox", "worker", "supervisor")


@pytest.fixture(scope="module")
def maps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation_maps", ROOT / "docs" / "site" / "maps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("root", ROOTS)
def test_the_map_of_a_source_root_is_its_tree(root: str, maps: ModuleType) -> None:
    """A newcomer would look for a module that is gone, or not find out what one is for: run docs/site/maps.py."""
    [package] = [package for package in maps.PACKAGES if package.startswith(f"{root}/")]
    table = maps.to_markdown(ROOT / package)
    assert table in text_of(ROOT / root / "README.md")
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [where for where, what, *_ in rows if not what.strip()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_that_is_named_exists(page: str) -> None:
    """A newcomer would look for a file that is gone."""
    named = PATH.findall(text_of(ROOT / page))
    assert len(named) >= 4
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ["docs/architecture.md", *(f"{root}/README.md" for root in ROOTS)])
def test_every_module_that_is_named_exists(page: str, maps: ModuleType) -> None:
    """A newcomer would start reading at a file that is gone."""
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+|(?:[a-z_]+/)*[a-z_]+\.py)`", text_of(ROOT / page))
    packages = [ROOT / package for package in maps.PACKAGES]
    places = [*(package / name for package in packages for name in named), *(ROOT / name for name in named)]
    there = {str(place) for place in places if place.exists() or place.with_suffix(".py").exists()}
    assert named
    assert [name for name in named if not any(place.endswith(f"/{name}") for place in there)] == []


def test_the_rooms_of_the_architecture_are_those_that_are_enforced() -> None:
    """A newcomer would import what may not be imported."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == ["quarterdeck"]]
    table = text_of(ROOT / "docs" / "architecture.md").partition("| room | what it does |")[2].partition("\n\n")[0]
    rooms = [re.findall(r"`(\w+)`", line.split(" | ")[0]) for line in table.splitlines()[2:]]
    assert rooms == [layer.split(" | ") for layer in layers]
