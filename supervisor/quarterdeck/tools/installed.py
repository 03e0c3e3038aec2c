"""The libraries and the program that native tools alone use, and the messages where one is missing.

They are the extra `native`: a tool that lacks one says so in its result, and `doctor` names them all.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

INSTALL: Final = "pip install 'quarterdeck[native]'"  # installs all of it, in the environment that quarterdeck runs in
_PROGRAM: Final = "rg"
_LIBRARIES: Final = {"ddgs": "websearch", "justhtml": "webfetch"}  # each library, and the tool that needs it


def is_installed(library: str) -> bool:
    """Return whether a library can be imported, without importing it."""
    try:
        return importlib.util.find_spec(library) is not None
    except ValueError:
        return False  # somebody put it into sys.modules by hand


def lacks(library: str) -> str:
    """Describe a missing library in a sentence without its full stop."""
    return f"the Python library {library} is not installed: install it with `{INSTALL}` in quarterdeck's environment"


def sentences() -> list[str]:
    """Return a sentence for `doctor` for each tool that cannot work in full."""
    return [
        f"The native tool {tool} cannot work in full: {', '.join(lacking)} not installed."
        for tool, lacking in missing().items()
    ]


def missing() -> dict[str, tuple[str, ...]]:
    """Return the tools that cannot work in full here, each with what it lacks."""
    lacking: dict[str, tuple[str, ...]] = {}
    for library, tool in _LIBRARIES.items():
        if not is_installed(library):
            lacking[tool] = (*lacking.get(tool, ()), library)
    if ripgrep_path() is None:
        lacking |= dict.fromkeys(("grep", "find"), ("rg",))
    return lacking


def ripgrep_path() -> Path | None:
    """Return ripgrep, links resolved: the one installed with us, else the user's, else None.

    A session's commands must be able to see it.
    """
    beside = (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
    for candidate in (*(folder / _PROGRAM for folder in beside), shutil.which(_PROGRAM)):
        if candidate is not None and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return Path(os.path.realpath(candidate))
    return None
