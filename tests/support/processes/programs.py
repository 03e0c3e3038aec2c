"""The command lines of the pretend servers of `tests/servers`."""

import sys
from pathlib import Path
from typing import Final

SERVERS: Final = Path(__file__).resolve().parents[2] / "servers"


def server_argv(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(SERVERS / f"{name}.py"), *arguments]
