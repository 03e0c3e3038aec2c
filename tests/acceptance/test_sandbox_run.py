"""`quarterdeck sandbox run`: any command under a policy, as it would be typed."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from support.processes.commands import OURSELVES, forks
from support.processes.forks import Forks
from support.processes.identities import Identity
from support.sandbox.confinements import TIERS

from quarterdeck.trust.configured_servers import read_exposure
from quarterdeck_protocol.policy_values import Tier

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of whoever types."""
    return {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "QUARTERDECK_STATE_DIR": str(tmp_path / "state"),
        "QUARTERDECK_RUNTIME_DIR": str(tmp_path / "run"),
    }


@pytest.fixture
def run(environ: dict[str, str]) -> Run:
    """Run a command line in a fork; its end."""

    def run_it(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        ended = forks().run(OURSELVES, ("sandbox", "run", *words), environ, given=stdin.encode())
        return subprocess.CompletedProcess(words, ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    return run_it


@pytest.mark.parametrize("tier", TIERS)
def test_streams_pass_through_and_the_status_is_the_commands(tier: Tier, run: Run) -> None:
    """A policy could not be tried on what speaks over its streams."""
    script = "cat; echo oops >&2; exit 7"
    ended = run("--tier", tier, "--allow-unsandboxed", "--", "sh", "-c", script, stdin="hello\n")
    assert (ended.returncode, ended.stdout) == (7, "hello\n"), ended.stderr
    assert "oops\n" in ended.stderr
    assert f"sandbox {tier}" in ended.stderr
    assert "exit status 7" in ended.stderr


def test_what_it_may_write_is_remembered(run: Run, tmp_path: Path) -> None:
    """A configuration that a tried program wrote would be the user's word at the next start."""
    folder = tmp_path / "given"
    folder.mkdir()
    assert not read_exposure(tmp_path / "state").covers(folder / "mcp.json")
    run("--write", str(folder), "--", "true")
    assert read_exposure(tmp_path / "state").covers(folder / "mcp.json")


def test_a_name_cannot_write_to_the_terminal(run: Run) -> None:
    """A program that names a file could clear the screen, or write a line that seems to be ours."""
    ended = run("--read", "/no/\x1b]0;title\x07\nquarterdeck: all is well", "--", "true")
    assert ended.returncode == 125
    assert "\x1b" not in ended.stderr
    assert "\nquarterdeck: all" not in ended.stderr


def test_with_json_receipt_and_dossier_are_in_a_file_alone(run: Run, tmp_path: Path) -> None:
    """A script would have to read prose."""
    file = tmp_path / "end.json"
    ended = run("--allow-unsandboxed", "--json", str(file), "--", "sh", "-c", "echo oops >&2; kill -TERM $$")
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "oops\n")
    document = json.loads(file.read_text())
    assert document["dossier"]["signal"] == signal.SIGTERM
    assert document["dossier"]["stderr_tail"] == "oops\n"
    assert document["receipt"]["findings"]


def test_a_report_is_not_written_through_a_link_that_the_command_put_in_its_place(run: Run, tmp_path: Path) -> None:
    """A program could overwrite any file of the user's, with our hand and partly with its own words."""
    victim, file = tmp_path / "victim", tmp_path / "report.json"
    victim.write_text("mine")
    swap = f"rm {file}; ln -s {victim} {file}"
    ended = run("--preset", "trusted", "--json", str(file), "--", "sh", "-c", swap)
    assert ended.returncode == 0, ended.stderr
    assert file.is_symlink()
    assert victim.read_text() == "mine"


REFUSALS: Final = (
    (("--", "no-such-command"), 127, "no-such-command"),
    (("--", "/etc/hostname"), 126, "/etc/hostname"),
    (("--read", "/no/such/path", "--", "true"), 125, "--read names /no/such/path"),
    (("--tier", "limits", "--", "true"), 125, "--allow-unsandboxed"),
    (("--tier", "best", "--", "true"), 2, "best"),
    (("--preset", "lax", "--", "true"), 2, "preset"),
    (("--limit", "wall_s", "--", "true"), 2, "KEY=VALUE"),
    (("--policy", "/no/such/file", "--", "true"), 2, "/no/such/file"),
)
"""What cannot be run, the status that says so, and a word of why."""


def test_what_cannot_be_run_says_why_by_word_and_status(forks: Forks, environ: dict[str, str]) -> None:
    """A script could not tell our refusal from the command's failure."""
    who = Identity.ROOT if os.geteuid() == 0 else Identity.USER
    ended = {words: forks.run(who, ["sandbox", "run", *words], environ) for words, _, _ in REFUSALS}
    wrong = {
        words: ended[words]
        for words, status, said in REFUSALS
        if (ended[words].returncode, ended[words].stdout) != (status, b"")
        or said.encode() not in ended[words].stderr
        or b"Traceback" in ended[words].stderr
    }
    assert wrong == {}


def test_a_policy_from_a_file_is_obeyed(run: Run, tmp_path: Path) -> None:
    """A policy would be tried, and another one used."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"preset": "trusted", "limits": {"open_files": 99}}))
    ended = run("--policy", str(file), "--", "sh", "-c", "ulimit -n; id -u")
    assert ended.stdout.split() == ["99", str(os.geteuid())], ended.stderr
