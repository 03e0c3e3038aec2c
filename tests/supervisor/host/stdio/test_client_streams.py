"""The standard streams: claimed, diverted, restored; and a client that cannot be served is told why on them."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from support.processes.running import python_output, run

from quarterdeck.host.stdio.client_streams import can_poll, post, refuse_client

pytestmark = pytest.mark.process

CLAIM = """
import os, sys
from quarterdeck.host.stdio.client_streams import claimed_stdio
with claimed_stdio() as (private_in, private_out):
    print("stray", flush=True)
    print("late")
    os.system("echo child; cat")
    assert sys.stdin.read() == ""
    assert not os.get_inheritable(private_in) and not os.get_inheritable(private_out)
    os.write(private_out, b"wire " + os.read(private_in, 100))
print(" restored", input())
"""


def test_claimed_streams_carry_nothing_but_the_protocol(monkeypatch):
    """A stray print, or a child's, would tear the client's stream."""
    script = CLAIM.replace('print(" restored", input())', 'print(" restored")')
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    ended = run(sys.executable, "-c", script, given="hello")
    assert (ended.returncode, ended.stdout) == (0, "wire hello restored\n")
    assert sorted(ended.stderr.split()) == ["child", "late", "stray"]


def test_streams_can_be_claimed_without_a_stderr():
    """Some launchers close it."""
    script = "import os; os.close(2)\n" + CLAIM.replace('print(" restored", input())', "").replace(
        'os.system("echo child; cat")', "pass"
    )
    assert python_output(script, given="hello") == "wire hello"


def test_pipes_and_sockets_can_be_polled_and_files_cannot(tmp_path):
    """Epoll refuses files, and a terminal is shared with the shell."""
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    with ours, theirs, open(tmp_path / "file", "wb") as file, open(os.devnull, "rb") as nowhere:
        can = [can_poll(fd) for fd in (reading, writing, ours.fileno(), file.fileno(), nowhere.fileno())]
    os.close(reading)
    os.close(writing)
    assert can == [True, True, True, False, False]


def test_what_stderr_shares_cannot_be_polled():
    """Making it non-blocking would make log lines fail."""
    script = "from quarterdeck.host.stdio.client_streams import can_poll; print(can_poll(1), end='')"
    assert python_output(script) == "True"
    assert python_output(script, stderr=subprocess.STDOUT) == "False"


def test_posting_to_a_loop_that_is_gone_is_no_error():
    """A thread may outlive its loop."""
    loop = asyncio.new_event_loop()
    loop.close()
    assert not post(loop, print)


INFO = {"name": "raw", "version": "1"}


def initialize(**changes: object) -> bytes:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **changes}
    return json.dumps(message).encode() + b"\n"


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Two pipes: what the greeter reads, what feeds it; what the client reads, what the greeter writes."""
    greeter_in, client_out = os.pipe()
    client_in, greeter_out = os.pipe()
    yield greeter_in, client_out, client_in, greeter_out
    for fd in (greeter_in, client_in, greeter_out):
        os.close(fd)
    try:
        os.close(client_out)
    except OSError:
        pass  # a test closed it to be a client that leaves


def test_every_request_that_has_come_is_refused_with_the_reason(pipes: tuple[int, int, int, int]) -> None:
    """A client would wait for a process that is gone, or show its user an end without a cause."""
    greeter_in, client_out, client_in, greeter_out = pipes
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    os.write(client_out, initialize(id="a") + note + b"garbage\n" + initialize(id=2, method="tools/list"))
    refuse_client(greeter_in, greeter_out, "there is no configuration")
    answers = [json.loads(line) for line in os.read(client_in, 4096).splitlines()]
    assert [answer["id"] for answer in answers] == ["a", 2]
    for answer in answers:
        assert answer["error"] == {"code": -32603, "message": "quarterdeck cannot serve: there is no configuration"}


def test_a_request_that_is_still_on_its_way_is_refused_too(pipes: tuple[int, int, int, int]) -> None:
    """One that fails faster than its client writes would end without a word."""
    greeter_in, client_out, client_in, greeter_out = pipes
    refusing = threading.Thread(target=refuse_client, args=(greeter_in, greeter_out, "no", 20.0))
    refusing.start()
    refusing.join(0.3)
    assert refusing.is_alive()  # nothing has come, and it waits
    os.write(client_out, initialize())
    assert json.loads(os.read(client_in, 4096))["error"]["message"] == "quarterdeck cannot serve: no"
    refusing.join()


def test_who_was_greeted_is_not_refused_afterwards(pipes: tuple[int, int, int, int]) -> None:
    """One request would have two answers."""
    greeter_in, client_out, client_in, greeter_out = pipes
    os.write(client_out, initialize(id=2, method="ping"))
    refuse_client(greeter_in, greeter_out, "it broke", unread=initialize(id=1), greeted_id=1, ids=[b'"3"'])
    assert [json.loads(line)["id"] for line in os.read(client_in, 4096).splitlines()] == ["3", 2]


@pytest.mark.parametrize("leaves", ["at once", "without reading"])
def test_refusing_a_client_that_has_left_is_quiet(pipes: tuple[int, int, int, int], leaves: str) -> None:
    """Its own end would be an error of ours."""
    greeter_in, client_out, client_in, greeter_out = pipes
    if leaves == "without reading":
        os.write(client_out, initialize())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, client_in)
        os.close(null)
    os.close(client_out)
    refuse_client(greeter_in, greeter_out, "no")
