"""Our command line, imported once and forked for each command: `fork_server.py FD`, started by `support.forks`.

A fork differs from a process that was started anew in what it has imported already, and in nothing else: its words,
its environment, its directory and its descriptors are its own.  The server ends with whoever holds the other end of FD.
"""

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from quarterdeck.cli import main

REQUEST_BYTES: Final = 1 << 20
"""A command line with a program's text in it, and its environment."""

MOST_FDS: Final = 16

IMPORTED: Final = (
    "anyio._backends._asyncio",
    "quarterdeck.cli.following",
    "quarterdeck.cli.program",
    "quarterdeck.config.checking",
    "quarterdeck.config.environment",
    "quarterdeck.control.server",
    "quarterdeck.fleet.runtime",
    "quarterdeck.host.http",
    "quarterdeck.host.provider",
    "quarterdeck.host.stdio",
    "quarterdeck.ledger.opening",
    "quarterdeck.ledger.reader",
    "quarterdeck.settings",
    "quarterdeck.trust.overview",
    "quarterdeck_protocol.configs",
    "quarterdeck_sandbox.confine",
    "quarterdeck_sandbox.foreground",
    "quarterdeck_sandbox.probing",
    "quarterdeck_sandbox.temporary",
    "rich.console",
    "rich.table",
)
"""What commands import only when they run; one that is missing here costs time and nothing else."""


def become(words: Sequence[str], env: Mapping[str, str], cwd: str, fds: Sequence[int]) -> NoReturn:
    """Be the command: `fds` are its standard streams and those that it inherits beside them."""
    for number in range(3):
        os.dup2(fds[number], number)
    kept = sorted(fds[3:])
    for fd in kept:
        os.set_inheritable(fd, True)  # noqa: FBT003 - its only way
    for low, high in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    # As an interpreter that starts makes them of what it finds.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", buffering=1, closefd=False)
    sys.argv = ["quarterdeck", *words]
    main()


def fork(request: Mapping[str, Any], fds: Sequence[int]) -> int:
    """The pid of a process that is that command."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        become(request["words"], request["env"], request["cwd"], fds)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                pass  # nobody reads it any more
        os._exit(status)


def serve(control: socket.socket) -> None:
    """Fork for each request, and say how each fork ended; until nobody can ask any more.

    A request is JSON with descriptors: the first is a socket for the fork's pid and, at its end, its wait status.
    """
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is control:
                text, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES, MOST_FDS)
                if not text:
                    return
                pid = fork(json.loads(text), fds[1:])
                for fd in fds[1:]:
                    os.close(fd)
                os.write(fds[0], b"%d\n" % pid)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, fds[0]))
            else:
                pid, answer = key.data
                selector.unregister(key.fd)
                os.close(key.fd)
                try:
                    os.write(answer, b"%d\n" % os.waitpid(pid, 0)[1])
                except BrokenPipeError:
                    pass  # nobody waits for it
                os.close(answer)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    # What all have in common is not looked at, and so not copied, by each one's collector.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)
