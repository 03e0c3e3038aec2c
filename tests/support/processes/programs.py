"""The command lines of the pretend servers of `tests/servers`."""

import sys
from pathlib import Path
from typing import Final

SERVERS: Final = Path(__file__).resolve().parents[2] / "servers"

WITH_PACKAGES: Final = frozenset({"conformance", "http_server", "protected"})
"""Those that need what is installed; the others begin without looking for it, hundreds of times in a run."""


def server_argv(name: str, *arguments: str) -> list[str]:
    options = [] if name in WITH_PACKAGES else ["-S"]
    return [sys.executable, *options, str(SERVERS / f"{name}.py"), *arguments]
