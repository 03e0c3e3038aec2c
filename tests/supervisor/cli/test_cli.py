"""The entry point."""

import sys

import pytest
from support.processes.running import loaded_by, output

from quarterdeck import cli


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    """Every command, and every shell completion, would take a second to start."""
    heavy = {"anyio", "asyncio", "mcp", "mcp_types", "pydantic", "rich", "structlog", "click", "zmq"}
    assert not loaded_by("import quarterdeck.cli") & heavy


def test_a_command_that_asks_a_running_serve_loads_neither_the_sdk_nor_pydantic() -> None:
    """`ps` would take as long as a start of the whole product."""
    heavy = {"anyio", "mcp", "mcp_types", "pydantic", "structlog", "zmq"}
    code = (
        "from quarterdeck.cli.program import make_program; import quarterdeck.control.client; "
        "make_program().commands['ps'].make_context('ps', ['--config', 'mcp.json', '--log-level', 'info'])"
    )
    assert not loaded_by(code) & heavy


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
