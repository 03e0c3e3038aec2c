"""Other programs over the same echo servers, unconfined, each fetched into an environment of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from support.config.places import write_config

from .finding import NotMeasuredError
from .started import bare, echoes, listed_by

FETCH_S: Final = 180.0
"""For a registry to give it and all that it needs."""

PROGRAM: Final = """\
import json, sys
from fastmcp.server import create_proxy
create_proxy(json.load(open(sys.argv[1]))).run(show_banner=False)
"""


def fetch_fastmcp(folder: Path) -> list[str]:
    """The command line of its proxy, which a configuration file is to follow.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    return [str(fetch_programs(folder, "fastmcp") / "python"), "-c", PROGRAM]


def fetch_programs(folder: Path, package: str) -> Path:
    """The folder of the programs of an environment with this package of PyPI.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    programs = folder / "bin"
    install = [str(programs / "python"), "-m", "pip", "install", package]
    try:
        for words in ([sys.executable, "-m", "venv", str(folder)], install):
            subprocess.run(words, check=True, capture_output=True, timeout=FETCH_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMeasuredError(f"{package} cannot be installed: {error}") from error
    return programs


def fastmcp_listed(words: list[str], folder: Path, count: int) -> float:
    """Seconds until it has listed the tools of so many servers."""
    rows = bare(echoes(count))
    return listed_by([*words, str(write_config(folder / "fastmcp.json", **rows))], folder, rows)
