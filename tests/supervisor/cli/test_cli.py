"""The entry point."""

import subprocess
import sys
from typing import Final

import pytest
from support.processes.running import output

from quarterdeck import cli
from quarterdeck.cli.exits import MEANINGS, ExitCode

pytestmark = pytest.mark.process


def test_native_windows_gets_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A Windows user would see a traceback about fcntl."""
    monkeypatch.setattr(cli.sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "WSL" in err


def test_the_module_can_be_run() -> None:
    """Where the script is not on PATH, nothing could be started."""
    assert output(sys.executable, "-m", "quarterdeck.cli", "--version").startswith("quarterdeck ")


NEEDED: Final = (
    "quarterdeck.cli.run.serve",
    "quarterdeck.cli.source",
    "quarterdeck.app",
    "quarterdeck.daemon.control.server",
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


def test_every_exit_code_is_explained_and_distinct() -> None:
    """A script's author would look in vain, or two endings not be told apart."""
    assert set(MEANINGS) == set(ExitCode)
    assert all(MEANINGS.values())
    assert len({int(code) for code in ExitCode}) == len(ExitCode)
    assert all(0 <= code < 256 for code in ExitCode)
