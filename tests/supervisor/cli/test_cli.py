"""The entry point."""

import subprocess
import sys

import pytest

from quarterdeck import cli


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    """Every command, and every shell completion, would take a second to start."""
    heavy = {"anyio", "asyncio", "mcp", "mcp_types", "pydantic", "rich", "structlog", "click", "zmq"}
    program = f"import sys, quarterdeck.cli; print(sorted({heavy!r} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "[]\n"


def test_a_command_that_asks_a_running_serve_loads_neither_the_sdk_nor_pydantic() -> None:
    """`ps` would take as long as a start of the whole product."""
    heavy = {"anyio", "mcp", "mcp_types", "pydantic", "structlog", "zmq"}
    program = (
        "import sys; from quarterdeck.cli.program import make_program; import quarterdeck.control.client; "
        "make_program().commands['ps'].make_context('ps', ['--config', 'mcp.json', '--log-level', 'info']); "
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "[]\n"


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
    ended = subprocess.run(
        [sys.executable, "-m", "quarterdeck.cli", "--version"], check=True, capture_output=True, text=True
    )
    assert ended.stdout.startswith("quarterdeck ")
