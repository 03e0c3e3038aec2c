"""The process's standard streams as descriptors: claimed for the protocol, kept from everyone else."""

import asyncio
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2


@contextmanager
def claimed_stdio() -> Iterator[tuple[int, int]]:
    """Private duplicates of stdin and stdout.

    Meanwhile the public ones lead nowhere and to stderr, so that a stray print, or a child that inherits them, can
    neither read nor write the protocol.  Both are restored at the end.
    """
    private_in = fcntl.fcntl(_STDIN, fcntl.F_DUPFD_CLOEXEC, 3)
    private_out = fcntl.fcntl(_STDOUT, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, _STDIN)
        try:
            os.dup2(_STDERR, _STDOUT)
        except OSError:
            # Started without a stderr.
            os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
        yield private_in, private_out
    finally:
        # What was printed meanwhile may still wait in Python's buffer; restored, it would go to the client.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(private_in, _STDIN)
        os.dup2(private_out, _STDOUT)
        os.close(private_in)
        os.close(private_out)


def can_poll(fd: int) -> bool:
    """Whether `fd` can be polled, and made non-blocking without anyone else noticing."""
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    try:
        return not os.path.sameopenfile(fd, _STDERR)
    except OSError:
        return True


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> bool:
    """Run `call` on the loop from a thread; False once the loop is gone."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True
