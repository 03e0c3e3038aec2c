"""The libraries and the program that native tools alone use, and what is said where one is missing.

They are the extra `native`: a tool that lacks one says so in its result, and `doctor` names them all.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

INSTALL: Final = "pip install 'quarterdeck[native]'"
"""What installs all of it, in the environment that quarterdeck runs in."""

_PROGRAM: Final = "rg"

_LIBRARIES: Final = {"ddgs": "websearch", "justhtml": "webfetch"}
"""Each library, and the tool that needs it."""


def is_installed(library: str) -> bool:
    """Whether a library can be imported; it is not."""
    try:
        return importlib.util.find_spec(library) is not None
    except ValueError:
        return False  # somebody put it into sys.modules by hand


def lacks(library: str) -> str:
    """What a tool says that misses a library: a sentence without its full stop."""
    return f"the Python library {library} is not installed: install it with `{INSTALL}` in quarterdeck's environment"


def sentences() -> list[str]:
    """What `doctor` says of it, a sentence for each tool; none when everything is installed."""
    return [
        f"The native tool {tool} cannot work in full: {', '.join(lacking)} not installed."
        for tool, lacking in missing().items()
    ]


def missing() -> dict[str, tuple[str, ...]]:
    """The tools that cannot work in full here, each with what it lacks; empty when everything is installed."""
    lacking: dict[str, tuple[str, ...]] = {}
    for library, tool in _LIBRARIES.items():
        if not is_installed(library):
            lacking[tool] = (*lacking.get(tool, ()), library)
    if ripgrep_path() is None:
        lacking |= dict.fromkeys(("grep", "find"), ("rg",))
    return lacking


def ripgrep_path() -> Path | None:
    """The program, links resolved: the one installed with us, else the user's; None when there is none.

    Whoever confines a session's commands lets them see it.
    """
    beside = (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
    for candidate in (*(folder / _PROGRAM for folder in beside), shutil.which(_PROGRAM)):
        if candidate is not None and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return Path(os.path.realpath(candidate))
    return None
