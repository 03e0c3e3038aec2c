"""What a `serve` on stdio imports before its client has its tools: a start is mostly imports."""

import subprocess
import sys
from typing import Final

NEEDED: Final = (
    "quarterdeck.cli.run.serve",
    "quarterdeck.cli.source",
    "quarterdeck.app",
    "quarterdeck.control.server",
    "quarterdeck.cli.run.serve_watch",
    "quarterdeck.host.provider",
    "quarterdeck.host.offers.publish",
    "quarterdeck.host.stdio.serve",
)

HEAVY: Final = (
    *("mcp", "mcp_types", "starlette", "uvicorn", "structlog", "rich", "httpx2"),
    *("quarterdeck.trust.scan.rules", "quarterdeck.trust.lock.lockfile"),
)


def test_serving_on_stdio_imports_neither_the_sdk_nor_what_renders_for_people_nor_the_scan() -> None:
    """A client would wait half a second more for its first list, at every start."""
    program = f"import importlib, sys\nfor name in {NEEDED}: importlib.import_module(name)\n"
    program += "import logging; from quarterdeck.cli.log_setup import LogLevel, LogFormat, set_up_logging\n"
    program += "set_up_logging(LogLevel.INFO, LogFormat.JSON); logging.getLogger('quarterdeck').info('said')\n"
    program += f"print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
