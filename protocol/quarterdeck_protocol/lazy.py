"""Modules whose names are loaded on first use (PEP 562), so that importing one costs nothing.

Such a module lists its names once, as imports under `TYPE_CHECKING`: type checkers follow them, and the same lines are
read from the module's source when a name is first asked for.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader


def lazy_barrel(barrel: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a module; the former answers `__all__`, too.

    The module's names are those imported as `from there import name as name` (PEP 484's re-export), or as another name,
    which strict type checkers do not take for exported. Imports without `as` serve its own annotations.
    """

    @cache
    def homes() -> dict[str, tuple[str, str]]:
        spec = sys.modules[barrel].__spec__
        source = _source_of(spec) if spec else None
        if source is None:
            raise ImportError(f"the source of {barrel} is not installed, and its names are listed there", name=barrel)
        return _homes(source, spec.parent if spec else None)

    def resolve(name: str) -> object:
        if name == "__all__":
            return sorted(homes())
        home = homes().get(name)
        if home is None:
            raise AttributeError(f"module {barrel!r} has no attribute {name!r}")
        module, original = home
        value = getattr(import_module(module), original)
        setattr(sys.modules[barrel], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[barrel]), *homes()})

    return resolve, names


def _source_of(spec: ModuleSpec) -> str | None:
    # pytest's loader, through which it imports every package that brings a plugin of its, gives none.
    read = getattr(spec.loader, "get_source", None) or SourceFileLoader(spec.name, spec.origin or "").get_source
    source: str | None = read(spec.name)
    return source


def _homes(source: str, package: str | None) -> dict[str, tuple[str, str]]:
    import ast  # costs milliseconds where nothing else has loaded it
    from importlib.util import resolve_name

    return {
        alias.asname: (resolve_name("." * line.level + (line.module or ""), package), alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
        if alias.asname is not None
    }
