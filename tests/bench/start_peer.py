"""FastMCP's proxy over the same echo servers, unconfined: fetched into an environment of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from support.config.places import row, write_config

from .finding import NotMeasuredError
from .peers import ECHO
from .started import listed_by, server_id

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
    python = folder / "bin" / "python"
    try:
        for words in ([sys.executable, "-m", "venv", str(folder)], [str(python), "-m", "pip", "install", "fastmcp"]):
            subprocess.run(words, check=True, capture_output=True, timeout=FETCH_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMeasuredError(f"FastMCP cannot be installed: {error}") from error
    return [str(python), "-c", PROGRAM]


def fastmcp_listed(words: list[str], folder: Path, count: int) -> float:
    """Seconds until it has listed the tools of so many servers."""
    bare = {key: value for key, value in row(ECHO).items() if key in ("command", "args")}
    config = write_config(folder / "fastmcp.json", **{server_id(number): bare for number in range(count)})
    return listed_by([*words, str(config)], folder, count)[1]
