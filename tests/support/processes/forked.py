"""Ask a server of forks for a process (see `fork_server`), and hold it as `subprocess.Popen` holds one."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

START_S: Final = 60.0
"""For importing everything on a busy machine, once."""


class Forked:
    """A process that somebody else forked for us."""

    returncode: int | None = None

    def __init__(self, pid: int, answers: socket.socket) -> None:
        """Hold it; `answers` will say how it ended."""
        self.pid, self.answers = pid, answers

    def poll(self) -> int | None:
        """Its return code, as `subprocess` has it; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float = START_S) -> int:
        """The same, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within `timeout` seconds.
            RuntimeError: nobody can say how it ended.
        """
        if self.returncode is None:
            # At 0 it would not be waited for at all, and say so by another error.
            self.answers.settimeout(timeout or 0.001)
            try:
                status = self.answers.recv(100)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout) from None
            if not status:
                raise RuntimeError("the server of forks has ended")
            self.returncode = os.waitstatus_to_exitcode(int(status))
            self.answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it has ended; it may do so meanwhile, for it is somebody else's child."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def ask(
    server: socket.socket,
    program: str,
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    fds: Mapping[int, int],
    leads_session: bool = False,
    open_files: tuple[int, int] | None = None,
) -> Forked:
    """Have a program of the server's run in a fork.

    Args:
        server: where it listens.
        program: one of its names.
        words: the arguments.
        env: all of its environment.
        cwd: its directory.
        fds: each descriptor that it has, by its number there, as we have it; 0, 1 and 2 among them.
        leads_session: whether it begins a session.
        open_files: how many descriptors it may have, by its soft limit and by its hard one; None as the server has.
    """
    request = {"program": program, "words": words, "env": dict(env), "cwd": cwd, "numbers": [*fds]}
    mine, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with answers:
        text = json.dumps({**request, "leads_session": leads_session, "open_files": open_files}).encode()
        socket.send_fds(server, [text], [answers.fileno(), *fds.values()])
    mine.settimeout(START_S)
    return Forked(int(mine.recv(100)), mine)
