"""The standard streams: claimed, diverted, restored; and which descriptors can be polled."""

import asyncio
import os
import socket
import subprocess
import sys

from quarterdeck.host.stdio.early_reply import can_poll, post

CLAIM = """
import os, sys
from quarterdeck.host.stdio.early_reply import claimed_stdio
with claimed_stdio() as (private_in, private_out):
    print("stray", flush=True)
    print("late")
    os.system("echo child; cat")
    assert sys.stdin.read() == ""
    assert not os.get_inheritable(private_in) and not os.get_inheritable(private_out)
    os.write(private_out, b"wire " + os.read(private_in, 100))
print(" restored", input())
"""


def run(script, **options):
    """A script in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment, **options)


def test_claimed_streams_carry_nothing_but_the_protocol():
    """A stray print, or a child's, would tear the client's stream."""
    script = CLAIM.replace('print(" restored", input())', 'print(" restored")')
    ended = run(script, input=b"hello")
    assert ended.stdout == b"wire hello restored\n"
    assert sorted(ended.stderr.split()) == [b"child", b"late", b"stray"]


def test_streams_can_be_claimed_without_a_stderr():
    """Some launchers close it."""
    script = "import os; os.close(2)\n" + CLAIM.replace('print(" restored", input())', "").replace(
        'os.system("echo child; cat")', "pass"
    )
    assert run(script, input=b"hello").stdout == b"wire hello"


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
    script = "from quarterdeck.host.stdio.early_reply import can_poll; print(can_poll(1), end='')"
    assert run(script).stdout == b"True"
    merged = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=True
    )
    assert merged.stdout == b"False"


def test_posting_to_a_loop_that_is_gone_is_no_error():
    """A thread may outlive its loop."""
    loop = asyncio.new_event_loop()
    loop.close()
    assert not post(loop, print)
