"""The pretend HTTP server, imported once and forked for each that is wanted; started by `support.http_servers`.

Reads a line of JSON for each, its arguments, and answers with a line: what it says when it listens, and its pid; an
empty one where it ended before that.  With this process all of them end.
"""

import gc
import json
import os
import signal
import sys
from typing import NoReturn

from .programs import SERVERS

sys.path.insert(0, str(SERVERS))
http_server = __import__("http_server")


def fork(arguments: list[str], alive: int, ours: int) -> str:
    """What to answer for one of them."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        os.close(told)
        become(arguments, alive, tells)
    os.close(tells)
    with open(told) as says:
        line = says.readline()
    return json.dumps({**json.loads(line), "pid": pid}) if line else ""


def become(arguments: list[str], alive: int, tells: int) -> NoReturn:
    """Be one; `alive`, which ends with the process that forked it, is its stdin."""
    os.dup2(alive, 0)
    os.dup2(tells, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = ["http_server", *arguments]
    try:
        http_server.main()
    finally:
        os._exit(1)


def main() -> None:
    """Fork for each line; nobody is waited for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    alive, ours = os.pipe()
    gc.freeze()
    for line in sys.stdin:
        print(fork(json.loads(line), alive, ours), flush=True)


if __name__ == "__main__":
    main()
