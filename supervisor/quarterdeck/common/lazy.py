"""Barrels that resolve their names on first use (PEP 562), so that importing one costs nothing.

A barrel lists where each of its names lives; type checkers read the same list as imports under `TYPE_CHECKING`.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_barrel(barrel: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a barrel module.

    Args:
        barrel: the module's `__name__`.
        homes: for each name the module that defines it, as `module`, or as `module:name` where it is called otherwise.
    """

    def resolve(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {barrel!r} has no attribute {name!r}")
        module, _, original = home.partition(":")
        value = getattr(import_module(module), original or name)
        setattr(sys.modules[barrel], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[barrel]), *homes})

    return resolve, names
