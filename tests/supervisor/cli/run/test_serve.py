"""Where `serve --http` listens, and what every `serve` does first."""

import socket
from pathlib import Path

import anyio
import pytest
from support.config.places import use_places, write_config

import quarterdeck_sandbox
from quarterdeck.cli.exits import ExitCode
from quarterdeck.cli.program import run
from quarterdeck.cli.run import serve as serve_module
from quarterdeck.cli.run.serve import Face, _serve
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.messages import ServeRequest


def test_a_port_that_is_taken_ends_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would say that it serves, start every server, and end with the number of an error."""
    use_places(monkeypatch, tmp_path)
    monkeypatch.setattr(serve_module, "_serve", None)
    file = tmp_path / "mcp.json"
    write_config(file)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["serve", "-c", str(file), "--http", str(port)]) == ExitCode.NO_ANSWER
    error, fix = capsys.readouterr().err.splitlines()
    assert error == f"error[no_answer]: cannot listen on 127.0.0.1:{port}: another program listens on this port"
    assert "another port" in fix


def test_the_lock_that_is_followed_is_the_users_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with `write` of that folder would write itself into the lock that it is held to."""
    write_config(tmp_path / "mcp.json")
    served: list[Settings] = []

    async def keep(_: object, settings: Settings, *__: object, **___: object) -> None:
        served.append(settings)

    monkeypatch.setattr(serve_module, "_serve", keep)
    monkeypatch.setattr(serve_module, "raise_open_files_limit", lambda: None)
    monkeypatch.setattr(serve_module, "read_lock", lambda _: None)
    words = ["serve", "-c", str(tmp_path / "mcp.json"), "--locked", "--lock-file", str(tmp_path / "my.lock")]
    assert run(words) == 0
    assert {f"{tmp_path}/my.lock", f"{tmp_path}/lock.ignore"} <= set(served[0].trusted)


def test_a_serve_gives_the_memory_of_large_results_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay as large as it was at its busiest moment."""

    class DoneError(Exception):
        """What is looked for was done; there is nothing to serve."""

    def give_back() -> bool:
        raise DoneError

    monkeypatch.setattr(quarterdeck_sandbox, "give_back_large_blocks", give_back)
    with pytest.raises(DoneError):
        anyio.run(_serve, ServeRequest(cwd="/"), Settings(), None, None, lambda _: None, Face())
