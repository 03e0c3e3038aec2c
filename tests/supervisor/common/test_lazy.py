"""The helper behind every barrel."""

import sys
from types import ModuleType

import pytest

from quarterdeck.common.lazy import lazy_barrel


@pytest.fixture
def barrel(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_barrel")
    monkeypatch.setitem(sys.modules, "a_barrel", module)
    module.__getattr__, module.__dir__ = lazy_barrel(  # type: ignore[method-assign]
        "a_barrel", {"sqrt": "math", "root": "math:sqrt"}
    )
    return module


def test_a_name_is_loaded_from_its_home_and_kept(barrel: ModuleType) -> None:
    """A barrel would hand out nothing, or look its names up at each use."""
    assert "sqrt" not in vars(barrel)
    assert barrel.sqrt(4) == 2
    assert "sqrt" in vars(barrel)


def test_a_name_may_be_called_otherwise_at_home(barrel: ModuleType) -> None:
    """`__version__` would not be found."""
    assert barrel.root is barrel.sqrt


def test_an_unknown_name_is_an_attribute_error(barrel: ModuleType) -> None:
    """`hasattr` and misspelt imports would fail in confusing ways."""
    with pytest.raises(AttributeError, match="'a_barrel' has no attribute 'cbrt'"):
        _ = barrel.cbrt


def test_names_are_listed_before_they_are_loaded(barrel: ModuleType) -> None:
    """Completion in an editor or a shell would show an empty module."""
    assert {"sqrt", "root"} <= set(dir(barrel))
