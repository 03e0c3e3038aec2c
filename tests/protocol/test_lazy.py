"""Modules whose names are loaded on first use."""

import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

BARREL = '''"""A barrel."""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from collections.abc import Callable
    from math import sqrt as root
    from math import sqrt as sqrt

    from .inner import NUMBER as NUMBER, WORD as __version__

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
'''
"""The name of a standard function, the same by another name, and two names of a module beside it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "a_barrel"
    package.mkdir()
    (package / "__init__.py").write_text(BARREL, encoding="utf-8")
    (package / "inner.py").write_text('NUMBER = 7\nWORD = "1.2"\n', encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("a_barrel", "a_barrel.inner"):  # and forgotten again afterwards
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        del sys.modules[module]
    invalidate_caches()
    return package


@pytest.fixture
def barrel(folder: Path) -> ModuleType:
    return import_module("a_barrel")


def test_a_name_is_loaded_from_its_home_on_first_use_and_kept(barrel: ModuleType) -> None:
    """A barrel would hand out nothing, or look its names up at each use."""
    assert "sqrt" not in vars(barrel)
    assert barrel.sqrt(4) == 2
    assert "sqrt" in vars(barrel)


def test_importing_a_barrel_imports_none_of_its_homes(barrel: ModuleType) -> None:
    """The command line would start as slowly as if it used all of them."""
    assert "a_barrel.inner" not in sys.modules
    assert barrel.NUMBER == 7
    assert "a_barrel.inner" in sys.modules


def test_a_name_may_be_called_otherwise_at_home(barrel: ModuleType) -> None:
    """`__version__` would not be found."""
    assert barrel.root is barrel.sqrt
    assert barrel.__version__ == "1.2"


def test_an_unknown_name_is_an_attribute_error(barrel: ModuleType) -> None:
    """`hasattr` and misspelt imports would fail in confusing ways."""
    with pytest.raises(AttributeError, match="'a_barrel' has no attribute 'cbrt'"):
        _ = barrel.cbrt
    with pytest.raises(ImportError, match="cannot import name 'cbrt' from 'a_barrel'"):
        exec("from a_barrel import cbrt", {})


def test_names_are_listed_before_they_are_loaded(barrel: ModuleType) -> None:
    """Completion in an editor or a shell would show an empty module."""
    assert {"sqrt", "root", "NUMBER", "__version__"} <= set(dir(barrel))
    assert barrel.__all__ == ["NUMBER", "__version__", "root", "sqrt"]


def test_a_submodule_of_a_barrel_can_be_imported_from_it(barrel: ModuleType) -> None:
    """A package with a barrel would hide its modules from whoever looks inside."""
    found: dict[str, ModuleType] = {}
    exec("from a_barrel import inner", found)
    assert found["inner"].NUMBER == 7


def test_the_source_is_found_where_the_loader_gives_none(barrel: ModuleType, pytestconfig: pytest.Config) -> None:
    """An installed quarterdeck would have no names within pytest, which loads its packages by a loader of its own."""
    assert barrel.__spec__ is not None
    barrel.__spec__.loader = AssertionRewritingHook(pytestconfig)
    assert barrel.sqrt(9) == 3


def test_a_barrel_without_its_source_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names would be missing from an installation of compiled files, for no reason that anybody could see."""
    barrel = import_module("a_barrel")
    assert barrel.__spec__ is not None
    monkeypatch.setattr(type(barrel.__spec__.loader), "get_source", lambda loader, name: None)
    with pytest.raises(ImportError, match="the source of a_barrel is not installed"):
        _ = barrel.sqrt
