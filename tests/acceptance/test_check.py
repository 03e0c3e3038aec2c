"""`quarterdeck check`, as it is typed: a sound server passes, a flawed one is found out, and nothing is left behind."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from support.config.places import write_config
from support.processes.commands import OURSELVES, forks
from support.processes.http_servers import forked_http_server
from support.processes.programs import server_argv

from quarterdeck.check.run import check as run_check
from quarterdeck.check.scenario import Wishes
from quarterdeck.check.verdicts import State
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy

FLAWS: Final = {
    "prints": "clean-stdout",
    "lies": "read-only-kept",
    "careless": "call-judged",
    "unstructured": "call-structured",
    "bad-schema": "schema-valid",
    "bare-array": "schema-openai",
    "asks": "asks-declared",
    "twice": "reply-once",
    "shouts": "error-plain",
    "fragile": "survives-garbage",
    "orders": "text-suspicious",
}
"""Of `checked.py`, and the check that finds each."""

PLENTY_S: Final = "120"
"""Of time for one answer, on the busiest machine."""

OF_BUSY_MACHINES: Final = {"greeted-soon", "idle"}
"""Checks that a sound server fails where others take the processor."""

Check = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "TMPDIR": str(temporary),
        "QUARTERDECK_STATE_DIR": str(tmp_path / "state"),
        "QUARTERDECK_RUNTIME_DIR": str(tmp_path / "run"),
    }

    def check_it(*words: str) -> "subprocess.CompletedProcess[str]":
        ended = forks().run(OURSELVES, ("check", *words), environ)
        assert list(temporary.iterdir()) == []
        return subprocess.CompletedProcess(words, ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    return check_it


def command(*flaws: str) -> list[str]:
    """The command line of `checked.py`, and what it may read."""
    words = server_argv("checked", *flaws)
    return ["--read", str(Path(words[-1 - len(flaws)]).parent), "--", *words]


def found(document: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["state"] for each in document["checks"]}


def test_a_sound_server_passes_in_both_eras(check: Check) -> None:
    """Its author would look for mistakes that are none."""
    ended = check("--json", "--call-timeout", PLENTY_S, *command())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert document["eras"] == ["2025-11-25", "2026-07-28"]
    states = found(document)
    assert {check for check, state in states.items() if state == "found"} <= OF_BUSY_MACHINES
    assert {states[check] for check in FLAWS.values()} == {"passed"}
    assert document["measured"]["calls"] >= 8


def test_each_flaw_is_found_by_the_check_that_is_for_it(check: Check, tmp_path: Path) -> None:
    """A broken server would be published as sound."""
    junit, sarif = tmp_path / "report.xml", tmp_path / "report.sarif"
    files = ("--junit", str(junit), "--sarif", str(sarif))
    ended = check("--json", "--call-timeout", PLENTY_S, *files, *command(*FLAWS))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    states = found(json.loads(ended.stdout))
    assert {check for check in FLAWS.values() if states[check] != "found"} == set()
    assert 'name="clean-stdout"' in junit.read_text()
    assert json.loads(sarif.read_text())["version"] == "2.1.0"


@pytest.mark.nightly
def test_a_server_that_a_call_ends_is_started_again(check: Check) -> None:
    """One tool that crashes would hide what is wrong with all others."""
    ended = check("--call-timeout", PLENTY_S, "--ignore", "quiet-end", *command("crashes", "lies"))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "call-survived: expected: The server goes on running when its tools are called" in ended.stdout
    assert "read-only-kept" in ended.stdout


@pytest.mark.nightly
def test_a_tool_that_hangs_is_called_once(check: Check) -> None:
    """Each of its calls would take as long again, and the time of all others."""
    ended = check("--json", "--call-timeout", "1", *command("hangs"))
    document = json.loads(ended.stdout)
    assert found(document)["call-answered"] == "found"
    assert any("of count: one had no answer" in remark for remark in document["remarks"])


def test_a_program_that_is_no_server_and_one_that_is_not_there_are_told_apart(check: Check) -> None:
    """Whoever mistyped a name would look for a mistake in the server."""
    ended = check("--json", "--timeout", PLENTY_S, "--", sys.executable, "-c", "raise SystemExit('usage: x FILE')")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert [each for each, state in found(document).items() if state == "found"] == ["greeting"]
    assert "usage: x FILE" in document["stderr"]
    ended = check("--", "no-such-program")
    assert ended.returncode == 4
    assert "no-such-program" in ended.stderr
    assert "options first: quarterdeck check -c FILE SERVER" in ended.stderr
    ended = check("https://example.com/mcp")
    assert ended.returncode == 2
    assert "by the id of its row, not by https://example.com/mcp" in ended.stderr


def test_a_package_that_cannot_be_fetched_is_told_by_what_its_runner_said_first(check: Check, tmp_path: Path) -> None:
    """Whoever mistyped a package would read of a cache that holds nothing."""
    runner = tmp_path / "yarn"
    runner.write_text('#!/bin/sh\necho "${npm_config_offline:-no such package}" >&2\nexit 1\n')
    runner.chmod(0o755)
    ended = check("--json", "--timeout", PLENTY_S, "--", str(runner), "dlx", "mistyped")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert [each for each, state in found(document).items() if state == "found"] == ["greeting"]
    assert document["stderr"].strip() == "no such package"


def test_a_configured_server_is_checked_as_its_row_says_and_may_change_nothing(check: Check, tmp_path: Path) -> None:
    """Its own folder would be changed by made-up calls, or its key be shown in a report."""
    own = tmp_path / "own"
    own.mkdir()
    kept = own / "kept.txt"
    kept.write_text("kept")
    program = (
        "import json, os, sys\n"
        f"try: os.remove({str(kept)!r})\n"
        "except OSError: pass\n"
        "sys.stderr.write('the key is ' + os.environ['API_KEY'])\n"
        "sys.exit(1)\n"
    )
    row = {
        "command": sys.executable,
        "args": ["-c", program],
        "env": {"API_KEY": "sk-4f9a8b7c6d5e4f3a2b1c0d9e"},
        "sandbox": {"write": [str(own)], "network": "full"},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"notes": row}}))
    ended = check("-c", str(file), "notes")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "the key is" in ended.stdout
    assert "sk-4f9a" not in ended.stdout
    assert kept.read_text() == "kept"
    assert "no server" in check("-c", str(file), "other").stderr


def test_what_there_is_no_time_for_is_named_and_blamed_on_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound server would fail in a pipeline that is short of time."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(tmp_path / "run"))
    words = server_argv("checked")
    policy = SandboxPolicy.model_validate({"read": [str(Path(words[-1]).parent)], "network": "none"})
    config = StdioServerConfig(id="checked", command=words[0], args=tuple(words[1:]), sandbox=policy)
    report = asyncio.run(run_check(config, Wishes(timeout_s=0.5), called="checked"))
    found = {each.check.id for each in report.outcomes if each.state is State.FOUND}
    assert found <= {"greeting", *OF_BUSY_MACHINES}
    assert any("--timeout" in remark for remark in report.remarks)


@pytest.mark.nightly
def test_a_server_that_takes_decoys_is_found_out(check: Check) -> None:
    """A server would pass that reads keys and passes them on."""
    words = server_argv("thief")
    ended = check("--call-timeout", PLENTY_S, "--read", str(Path(words[-1]).parent), "--json", "--", *words)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    states = found(document)
    assert (states["decoys-kept"], states["secrets-unopened"]) == ("found", "found")
    observed = document["observed"]
    assert (observed["is_complete"], observed["unwatched"]) == (True, "")
    taken = {(each["path"], each["carrier"]) for each in observed["taken"]}
    assert taken == {
        ("~/.aws/credentials", "the answer to initialize"),
        ("~/.netrc", "its stderr"),
        ("~/.ssh/id_ed25519", "the answer to tools/call of sync"),
    }
    opened = {each["path"]: each["tools"] for each in observed["touched"] if each["did"] == "opened"}
    assert opened == {
        "~/.aws/credentials": [],
        "~/.netrc": ["sync"],
        "~/.ssh/id_ed25519": ["sync"],
        "~/Documents/Notes/meeting.md": ["list_notes"],
        "~/Documents/budget.csv": ["list_notes"],
    }
    assert observed["hosts"] == [{"host": "collector.example:443", "tools": ["sync"]}]
    needs = {(each["key"], each["path"]) for each in observed["needs"]}
    assert needs == {("read", "~/Documents"), ("write", "~/Desktop"), ("write", "~/Downloads")}


def far(file: Path, url: str, **members: object) -> Path:
    return write_config(file, far={"url": url, **members})


def test_a_sound_remote_server_passes_in_both_eras(check: Check, tmp_path: Path) -> None:
    """Its author would look for mistakes that are none; or its user's token would be shown."""
    secret = "tok-4f9a8b7c6d5e4f3a2b1c0d9e"
    with forked_http_server("--require-token", secret) as url:
        file = far(tmp_path / "mcp.json", url, headers={"Authorization": f"Bearer {secret}"})
        ended = check("--json", "--call-all", "--call-timeout", PLENTY_S, "-c", str(file), "far")
        refused = check("-c", str(far(tmp_path / "other.json", url)), "far")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert (document["eras"], document["measured"]["tools"]) == (["2025-11-25", "2026-07-28"], 4)
    assert document["measured"]["calls"] >= 8
    states = found(document)
    tried = {each for each in states if each.startswith("http-")} | {"survives-garbage", "call-result", "progress"}
    assert {each: states[each] for each in tried} == dict.fromkeys(tried, "passed")
    of_processes = {"clean-stdout", "ends-with-stdin", "read-only-kept", "closed-world-kept", "memory", "idle"}
    assert {states[each] for each in of_processes} == {"untried"}
    assert any("no process of this machine" in remark for remark in document["remarks"])
    assert secret not in ended.stdout
    assert refused.returncode == 1
    assert "HTTP status 401 without a message: it wants other credentials" in " ".join(refused.stdout.split())


def test_what_a_remote_server_does_wrong_in_http_is_found(check: Check, tmp_path: Path) -> None:
    """Any page in a browser could use it; or a client would go on in a session that is gone."""
    with forked_http_server(name="careless_http") as url:
        file = far(tmp_path / "mcp.json", url)
        ended = check("--json", "--call-timeout", PLENTY_S, "-c", str(file), "far")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    wrong = {each for each, state in found(document).items() if state == "found"}
    sessions = {"http-session-unknown", "http-session-ended"}
    assert wrong == {"http-accepted", "http-get", "http-origin", "http-version"} | sessions
    assert document["measured"]["calls"] > 0  # both of its tools say that they only read


@pytest.mark.nightly
def test_a_remote_servers_tools_are_called_that_say_that_they_only_read(check: Check, tmp_path: Path) -> None:
    """A made-up call would change what is kept in a service, which nothing confines."""
    with forked_http_server("--legacy") as url:
        ended = check("-c", str(far(tmp_path / "mcp.json", url)), "far")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 tools not said to only read (echo, add, slow, progress): --call-all calls such tools" in " ".join(
        ended.stdout.split()
    )
    assert "call-result" not in ended.stdout
    assert "--network" in check("-c", str(tmp_path / "mcp.json"), "--network", "none", "far").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--write", "/tmp", "--", "x"), "--write"),
        (("--policy", "policy.json", "--", "x"), "made-up calls"),
        (("--ignore", "no-such-check", "--", "x"), "there is no such check"),
        (("--network", "everywhere", "--", "x"), "network"),
    ],
)
def test_what_it_must_not_do_or_does_not_know_is_refused(
    check: Check, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    """Tools that are called with made-up values would change what is the user's."""
    (tmp_path / "policy.json").write_text('{"write": ["/tmp"]}')
    ended = check(*(str(tmp_path / word) if word == "policy.json" else word for word in words))
    assert ended.returncode == 2, ended.stdout
    assert said in ended.stderr
