"""The standard streams: claimed, diverted, restored; and which descriptors can be polled."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest
from support.processes.running import python_output, run

from quarterdeck.host.stdio.client_streams import can_poll, post

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
    script = CLAIM.replace('print(" restored", input())', 'print(" restored")')
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    ended = run(sys.executable, "-c", script, given="hello")
    assert (ended.returncode, ended.stdout) == (0, "wire hello restored\n")
    assert sorted(ended.stderr.split()) == ["child", "late", "stray"]


def test_streams_can_be_claimed_without_a_stderr():
    script = "import os; os.close(2)\n" + CLAIM.replace('print(" restored", input())', "").replace(
        'os.system("echo child; cat")', "pass"
    )
    assert python_output(script, given="hello") == "wire hello"


def test_pipes_and_sockets_can_be_polled_and_files_cannot(tmp_path):
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    with ours, theirs, open(tmp_path / "file", "wb") as file, open(os.devnull, "rb") as nowhere:
        can = [can_poll(fd) for fd in (reading, writing, ours.fileno(), file.fileno(), nowhere.fileno())]
    os.close(reading)
    os.close(writing)
    assert can == [True, True, True, False, False]


def test_what_stderr_shares_cannot_be_polled():
    script = "from quarterdeck.host.stdio.client_streams import can_poll; print(can_poll(1), end='')"
    assert python_output(script) == "True"
    assert python_output(script, stderr=subprocess.STDOUT) == "False"


def test_posting_to_a_loop_that_is_gone_is_no_error():
    loop = asyncio.new_event_loop()
    loop.close()
    assert not post(loop, print)
