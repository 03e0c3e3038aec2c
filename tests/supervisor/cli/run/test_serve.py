"""Where `serve --http` listens, and what every `serve` does first."""

import socket
from pathlib import Path

import anyio
import pytest
from support.config.places import use_places, write_config

import quarterdeck_sandbox
from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.program import run
from quarterdeck.cli.run import serve as serve_module
from quarterdeck.cli.run.serve import Plan, _serve, check_names, parse_address
from quarterdeck.cli.source import Source
from quarterdeck.config.settings import Settings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("localhost:0", ("localhost", 0)),
        ("localhost", ("localhost", 8808)),
        ("9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("localhost:", ("localhost", 8808)),
        ("[::1]:9000", ("::1", 9000)),
        ("[::1]", ("::1", 8808)),
        ("0.0.0.0:65535", ("0.0.0.0", 65_535)),
    ],
)
def test_an_address_may_be_given_in_part(text: str, address: tuple[str, int]) -> None:
    """Users would have to look up what the rest is."""
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["::1", "::1:80", "a:b", "a:70000", "a:-1", "[::1", "[::1]80", "a:٣"])
def test_anything_else_is_a_usage_error(text: str) -> None:
    """It would listen somewhere else than meant, or end in a traceback."""
    with pytest.raises(CommandError, match=r"is not HOST:PORT") as refused:
        parse_address(text)
    assert refused.value.code == ExitCode.USAGE


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


def test_a_name_that_no_request_could_have_is_a_usage_error() -> None:
    """The clients that it was meant for would be locked out."""
    check_names(["deck.example", "deck.example:443", "::1", "[fd00::1]:80"])
    with pytest.raises(CommandError, match=r"--allow-host 'https://deck.example' is not a host name") as refused:
        check_names(["deck.example", "https://deck.example"])
    assert refused.value.code == ExitCode.USAGE


def test_the_lock_that_is_followed_is_the_users_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with `write` of that folder would write itself into the lock that it is held to."""
    write_config(tmp_path / "mcp.json")
    plans: list[Plan] = []

    async def keep(plan: Plan) -> None:
        plans.append(plan)

    monkeypatch.setattr(serve_module, "_serve", keep)
    monkeypatch.setattr(serve_module, "raise_open_files_limit", lambda: None)
    monkeypatch.setattr(serve_module, "read_lock", lambda _: None)
    words = ["serve", "-c", str(tmp_path / "mcp.json"), "--locked", "--lock-file", str(tmp_path / "my.lock")]
    assert run(words) == 0
    assert {f"{tmp_path}/my.lock", f"{tmp_path}/lock.ignore"} <= set(plans[0].settings.trusted)


def test_a_serve_gives_the_memory_of_large_results_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay as large as it was at its busiest moment."""

    class DoneError(Exception):
        """What is looked for was done; there is nothing to serve."""

    def give_back() -> bool:
        raise DoneError

    monkeypatch.setattr(quarterdeck_sandbox, "give_back_large_blocks", give_back)
    with pytest.raises(DoneError):
        anyio.run(_serve, Plan(Source(()), Settings(), http=None, lock=None, portable_schemas=False))
