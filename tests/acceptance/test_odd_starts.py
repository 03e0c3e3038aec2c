"""Commands whose standard streams are closed, full or left, and that are interrupted at once."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.config.places import row, short_folder, write_config
from support.processes import running
from support.processes.commands import OURSELVES, command, forks
from support.processes.leftovers import no_leftovers
from support.sandbox.machine_facts import FULL_DEVICE_ONLY, NO_MOUNT_NAMESPACE, NO_ROOT

pytestmark = FULL_DEVICE_ONLY


NO_INODES = "i=0; while touch f$i 2>/dev/null; do i=$((i+1)); done"
"""Makes files until no more can be made."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    return write_config(tmp_path / "mcp.json", echo=row("echo"))


def run(line: str, config: Path) -> tuple[int, str]:
    """`quarterdeck …` with redirections, by a shell; its exit code, and what is left of what it said."""
    program = " ".join(map(shlex.quote, command()))
    with no_leftovers():
        done = running.run("/bin/sh", "-c", f"exec {program} {line.format(config=shlex.quote(str(config)))}")
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert "bug in quarterdeck" not in said
    return done.returncode, said


def test_a_command_does_its_work_without_streams_that_it_need_not_have(config: Path) -> None:
    """A job of a service manager that closes what it does not use would fail."""
    assert run("explain tool_held 0<&- 1>&- 2>&-", config) == (0, "")


def test_a_full_stdout_has_a_sentence_and_a_code(config: Path) -> None:
    """A script would take half an answer for a whole one."""
    code, said = run("explain tool_held >/dev/full", config)
    assert code == 74
    assert "could not be written to stdout: No space left on device" in said


def test_a_reader_who_has_left_is_told_nothing() -> None:
    """`… | head -1` would end with a complaint."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = running.run(*command("explain", "tool_held"), stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (74, "")


def run_on_a_disk(preparation: str, words: str, config: Path, folder: Path) -> tuple[int, str]:
    """The same in a mount namespace with a small disk at `folder`, prepared by a shell's words."""
    if os.geteuid() != 0:
        pytest.skip(NO_ROOT)
    if running.run("unshare", "--mount", "true").returncode:
        pytest.skip(NO_MOUNT_NAMESPACE)
    folder.mkdir(mode=0o700)
    program = " ".join(map(shlex.quote, command()))
    script = f"mount -t tmpfs -o size=1m,nr_inodes=60,mode=700 tmpfs {folder} && cd {folder} && {preparation}; cd /; "
    with no_leftovers():
        shell = f"{script} exec {program} {words.format(config=config)}"
        done = running.run("unshare", "--mount", "/bin/sh", "-c", shell)
    said = done.stdout + done.stderr
    assert not {"Traceback", "bug in quarterdeck", "Errno"} & set(said.split())
    assert "bug in quarterdeck" not in said
    return done.returncode, said


@pytest.mark.nightly
def test_a_runtime_directory_that_cannot_be_written_to_has_a_sentence(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would read an error number, or that it is a bug of ours."""
    with short_folder() as short:  # a socket's path is
        disk = short / "d"
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(disk))
        code, said = run_on_a_disk("mount -o remount,ro .", "serve --config {config}", config, disk)
    assert code == 2
    assert "(Read-only file system)" in said
    assert "set QUARTERDECK_RUNTIME_DIR to another directory" in said


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("preparation", "code", "why"),
    [
        ("mount -o remount,ro .", 6, "Read-only file system"),
        ("head -c 2000000 /dev/zero >full 2>/dev/null", 2, "No space left on device"),
    ],
    ids=["read-only", "full"],
)
def test_a_door_without_room_for_its_state_says_so(
    config: Path, monkeypatch: pytest.MonkeyPatch, preparation: str, code: int, why: str
) -> None:
    """A daemon would be left that serves nobody; or every window wait for one that cannot begin."""
    with short_folder() as short:
        through_a_daemon(monkeypatch, short / "run")
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(short / "d" / "state"))
        ended, said = run_on_a_disk(preparation, "serve --config {config}", config, short / "d")
    assert ended == code
    assert f"({why})" in said
    assert "fix: make" in said


@pytest.mark.nightly
def test_a_door_whose_home_is_gone_says_so(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service account often has none: what to set instead, nobody would tell."""
    monkeypatch.setenv("HOME", "/proc/none")
    for name in ("QUARTERDECK_STATE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    with short_folder() as short:
        through_a_daemon(monkeypatch, short / "run")
        code, said = run("serve --config {config}", config)
    assert code == 6
    assert "/proc/none/.local/state/quarterdeck cannot be used" in said
    assert "set QUARTERDECK_STATE_DIR to another directory" in said


def through_a_daemon(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    monkeypatch.delenv("QUARTERDECK_OWN", raising=False)
    monkeypatch.setenv("QUARTERDECK_LINGER", "0")
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(runtime))


@pytest.mark.nightly
def test_a_server_without_room_is_faulted_and_the_deck_goes_on(config: Path, tmp_path: Path) -> None:
    """One server's downloads would end them all."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    code, said = run_on_a_disk(NO_INODES, "ps --own --json --config {config}", config, state / "servers")
    assert code == 0, said
    [server] = json.loads(said[said.index("{") :].splitlines()[0])["servers"]
    assert server["phase"] == "faulted"
    assert server["fault"]["code"] == "directory_unusable"
    assert "there is no room in" in server["fault"]["message"]


@pytest.mark.parametrize(("closed", "name"), [("0<&-", "stdin"), ("1>&-", "stdout")])
def test_a_serve_that_nobody_can_talk_to_says_so(config: Path, closed: str, name: str) -> None:
    """It would end at once without a reason, or run for nobody."""
    code, said = run(f"serve --config {{config}} {closed}", config)
    assert code == 2
    assert f"these streams were closed at the start: {name}" in said


@pytest.mark.nightly
def test_a_serve_whose_client_cannot_be_written_to_says_so(config: Path) -> None:
    """It would look as if its client had left."""
    ping = "{{" + '"jsonrpc":"2.0","id":1,"method":"ping"' + "}}"
    request = config.parent / "request"
    request.write_text(ping.format() + "\n")
    code, said = run(f"serve --config {{config}} <{shlex.quote(str(request))} >/dev/full", config)
    assert code == 6
    assert "cannot be written: No space left on device" in said


@pytest.mark.nightly
def test_a_serve_that_cannot_complain_serves(config: Path) -> None:
    """A client that gives no stderr, or one that takes nothing, would get no server."""
    assert run("serve --config {config} 2>&-", config)[0] == 0
    words = ("serve", "--config", str(config))
    with (
        no_leftovers(),
        open("/dev/full", "wb") as full,
        forks().start(OURSELVES, words, os.environ, stderr_fd=full.fileno()) as serve,
    ):
        assert serve.wait() == 0


@contextmanager
def starting(config: Path, module: bytes, given: bytes = b"") -> Iterator["subprocess.Popen[bytes]"]:
    """A `serve` that was given so much, and has just imported `module`; nothing runs at the end."""
    python, *rest = command("serve", "--config", str(config))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with no_leftovers(), subprocess.Popen([python, "-X", "importtime", *rest], **pipes) as process:
        process.stdin.write(given)
        process.stdin.flush()
        assert any(module in line for line in iter(process.stderr.readline, b""))
        yield process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_serve_that_is_ended_while_it_starts_has_its_code_and_leaves_nothing(
    config: Path, number: signal.Signals, code: int
) -> None:
    """Ctrl-C at once would print a page of imports."""
    # The first import of ours after signals are heeded; many follow, and take a while.
    with starting(config, b"quarterdeck.host.stdio.client_streams") as process:
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == code
    assert b"Traceback" not in rest


def test_a_request_that_waits_when_serve_is_ended_while_it_starts_is_answered(config: Path) -> None:
    """A client would wait for the answer to its greeting until its own deadline."""
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    # The first that only the command itself imports: what comes from here on unwinds it.
    with starting(config, b"quarterdeck.cli.options", ping) as process:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()  # else it could not write what it imports
        told = process.stdout.read()
    assert process.returncode == 0
    assert json.loads(told)["id"] == 1
