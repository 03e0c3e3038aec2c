"""Zygotes and daemons that cost a fork and not a start, whose imports would be most of what the whole suite computes.

`tests/worker/test_zygote.py`, the tests of owners and whatever starts `quarterdeck` as a user does have real ones.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from quarterdeck.fleet.workers import interpreters
from support.processes.forked import ask

ZYGOTE: Final = "quarterdeck_worker.zygote"
DAEMON: Final = "quarterdeck daemon"

started_anew = interpreters.isolated
"""What starts one as the product does."""


def forked_from(server: Callable[[], socket.socket]) -> Callable[..., Any]:
    """What stands for `interpreters.isolated`: its zygotes are forks of the server's, all else is started as ever."""

    def isolated(module: str, *args: str, pass_fds: list[int] | None = None, **more: Any) -> Any:
        if module != ZYGOTE:
            return started_anew(module, *args, pass_fds=pass_fds, **more)
        with open(os.devnull, "r+b") as nothing:
            return ask(
                server(),
                ZYGOTE,
                args,
                env={name: os.environ[name] for name in interpreters.INHERITED if name in os.environ},
                cwd="/",
                fds={0: nothing.fileno(), 1: nothing.fileno(), 2: 2, **{fd: fd for fd in pass_fds or ()}},
                leads_session=True,
            )

    return isolated


def booted_from(server: Callable[[], socket.socket]) -> Callable[[int, BinaryIO, Mapping[str, str]], None]:
    """What stands for `quarterdeck.daemon.start.boot`: its daemons are forks of the server's."""

    def boot(listener: int, log: BinaryIO, environ: Mapping[str, str]) -> None:
        with open(os.devnull, "r+b") as nothing:
            fds = {0: nothing.fileno(), 1: nothing.fileno(), 2: log.fileno(), listener: listener}
            words = ("--listener", str(listener))
            ask(server(), DAEMON, words, env=environ, cwd="/", fds=fds, leads_session=True).answers.close()

    return boot
