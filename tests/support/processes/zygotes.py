"""Zygotes that cost a fork and not a start, whose imports would be most of what the whole suite computes.

`tests/worker/test_zygote.py`, the tests of owners and whatever starts `quarterdeck` as a user does have real ones.
"""

import os
import socket
from collections.abc import Callable
from typing import Any, Final

from quarterdeck.fleet.workers import placement
from support.processes.forked import ask

ZYGOTE: Final = "quarterdeck_worker.zygote"

started_anew = placement.isolated
"""What starts one as the product does."""


def forked_from(server: Callable[[], socket.socket]) -> Callable[..., Any]:
    """What stands for `placement.isolated`: its zygotes are forks of the server's, all else is started as ever."""

    def isolated(module: str, *args: str, pass_fds: list[int] | None = None, **more: Any) -> Any:
        if module != ZYGOTE:
            return started_anew(module, *args, pass_fds=pass_fds, **more)
        with open(os.devnull, "r+b") as nothing:
            return ask(
                server(),
                ZYGOTE,
                args,
                env={name: os.environ[name] for name in placement.INHERITED if name in os.environ},
                cwd="/",
                fds={0: nothing.fileno(), 1: nothing.fileno(), 2: 2, **{fd: fd for fd in pass_fds or ()}},
                leads_session=True,
            )

    return isolated
