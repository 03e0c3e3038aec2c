"""The map in each source root's README names its folders, as they are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/quarterdeck*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_map_names_every_folder_and_no_other(package: Path) -> None:
    """A newcomer would look for a folder that is gone, or not find out what one is for."""
    text = (package.parent / "README.md").read_text()
    named = re.findall(r"^\| `([\w/]+)/` \|", text, re.MULTILINE)
    assert named == sorted(str(path.parent.relative_to(package)) for path in package.glob("*/**/__init__.py"))
