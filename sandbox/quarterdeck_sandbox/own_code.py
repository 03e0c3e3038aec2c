"""Which files and folders hold what runs outside of any sandbox and makes all of them: our code and its interpreter."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Final

_PACKAGES: Final = ("quarterdeck", "quarterdeck_worker", "quarterdeck_sandbox", "quarterdeck_protocol")

_SHARED_PREFIXES: Final = frozenset({"/", "/usr", "/usr/local"})
"""Where an interpreter is one program of many."""


@cache
def own_code() -> tuple[str, ...]:
    """Absolute paths, as they are named; some may not exist yet: whatever lay there would be run at our next start."""
    found = dict.fromkeys(os.path.abspath(path) for path in _named() if path)
    return tuple(path for path in found if path not in _SHARED_PREFIXES)


def _named() -> Iterator[str]:
    for name in _PACKAGES:
        spec = find_spec(name)
        yield from (spec.submodule_search_locations or ()) if spec is not None else ()
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield os.path.realpath(prefix) if os.path.realpath(prefix) in _SHARED_PREFIXES else prefix
    yield from (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield sys.executable
    # A `.pth` file in one of these is run by every start of the interpreter.
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()
    # The command itself, which may be in a folder of its own (`~/.local/bin`).
    if sys.argv and os.path.isfile(sys.argv[0]):
        yield sys.argv[0]
