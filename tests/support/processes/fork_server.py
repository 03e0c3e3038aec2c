"""Programs of ours, imported once and forked for each start: `fork_server FD`, started by `support.processes.forks`.

A fork differs from a process that was started anew in what it has imported already, and in nothing else: its words,
its environment, its directory and its descriptors are its own.  What it starts of ours is forked here, too.  The server
ends with whoever holds the other end of FD.
"""

import fcntl
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from quarterdeck import cli
from quarterdeck.cli.run import daemon as daemon_module
from quarterdeck.daemon import start
from quarterdeck.fleet.workers import interpreters
from quarterdeck_worker import zygote
from quarterdeck_worker.stdio.rehearsal import rehearse
from support.processes.programs import SERVERS
from support.processes.zygotes import DAEMON, ZYGOTE, booted_from, forked_from

REQUEST_BYTES: Final = 1 << 20
"""A command line with a program's text in it, and its environment."""

MOST_FDS: Final = 16

ABOVE: Final = 512
"""No descriptor that a fork is given has a number from here on."""

IMPORTED: Final = (
    "anyio._backends._asyncio",
    "quarterdeck.cli.configure.config",
    "quarterdeck.cli.configure.secret",
    "quarterdeck.cli.program",
    "quarterdeck.cli.run.sandbox",
    "quarterdeck.cli.run.serve",
    "quarterdeck.cli.run.serve_watch",
    "quarterdeck.cli.run.servers",
    "quarterdeck.cli.run.tools",
    "quarterdeck.cli.trust.ledger",
    "quarterdeck.cli.trust.lock",
    "quarterdeck.cli.trust.trust",
    "quarterdeck.config.file_watch",
    "quarterdeck.config.load.report",
    "quarterdeck.config.load.variables",
    "quarterdeck.config.settings",
    "quarterdeck.daemon.control.server",
    "quarterdeck.daemon.http_decks",
    "quarterdeck.fleet.workers.runtime",
    "quarterdeck.host.http.serve",
    "quarterdeck_worker.http.run",
    "quarterdeck.host.provider",
    "quarterdeck.host.stdio.serve",
    "quarterdeck.ledger.events.history",
    "quarterdeck.ledger.open",
    "quarterdeck.ledger.store.reader",
    "quarterdeck.tools.cards.delegation",
    "quarterdeck.tools.session",
    "quarterdeck.trust.judge.overview",
    "quarterdeck.trust.list_scanner",
    "quarterdeck_protocol.configs",
    "quarterdeck_sandbox.doctor.probe",
    "quarterdeck_sandbox.hostile_files",
    "quarterdeck_sandbox.run.confine",
    "quarterdeck_sandbox.run.start",
    "structlog.dev",
    "structlog.stdlib",
)
"""What programs import only when they run; one that is missing here costs time and nothing else."""


def pretend_server(name: str) -> Callable[[], object]:
    """The program of a pretend server, whose neighbours shall not be found by their names afterwards."""
    sys.path.insert(0, str(SERVERS))
    try:
        return importlib.import_module(name).main
    finally:
        sys.path.remove(str(SERVERS))


def server() -> None:
    pretend_server(sys.argv.pop(1))()


def text() -> None:
    """A program that is given as its first argument, as `python -c` takes it."""
    exec(compile(sys.argv[1], "<string>", "exec"), {"__name__": "__main__"})


def daemon() -> None:
    """The daemon, once it is on its own; see `quarterdeck.daemon.start`."""
    os.umask(0o077)
    interpreters.start_zygote_early()
    daemon_module.main()


PROGRAMS: Final[dict[str, Callable[[], object]]] = {
    "quarterdeck": cli.main,
    "server": server,
    "python": text,
    DAEMON: daemon,
    ZYGOTE: zygote.main,
}


def become(request: Mapping[str, Any], fds: Sequence[int], asks: socket.socket) -> NoReturn:
    """Be the program: `fds` are its descriptors under other numbers, and by `asks` it can have more forked."""
    if request["program"] != ZYGOTE:
        # Lies above all that it is given; a zygote would hand it on to its workers.
        kept = socket.socket(fileno=fcntl.fcntl(asks, fcntl.F_DUPFD_CLOEXEC, ABOVE))
        interpreters.isolated = forked_from(lambda: kept)
        start.boot = booted_from(lambda: kept)
        _place([*fds, kept.fileno()], [*request["numbers"], kept.fileno()])
    else:
        _place(fds, request["numbers"])
    if request["leads_session"]:
        os.setsid()
    if request["open_files"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    # As an interpreter that starts makes them of what it finds.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", buffering=1, closefd=False)
    sys.argv = [request["program"], *request["words"]]
    PROGRAMS[request["program"]]()
    sys.exit()


def _place(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Have these descriptors under those numbers, and no others."""
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE) for fd in fds]
    for fd, number in zip(aside, numbers, strict=True):
        os.dup2(fd, number, inheritable=number < ABOVE)
    kept = sorted(numbers)
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def fork(request: Mapping[str, Any], fds: Sequence[int], asks: socket.socket) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        become(request, fds, asks)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
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
            if key.data is not None:
                _tell_end(selector, key)
            elif not _answer(selector, key.fileobj) and key.fileobj is control:
                return


def _answer(selector: selectors.BaseSelector, asked: Any) -> bool:
    """Whether there is a request; otherwise nobody is there any more."""
    text, fds, _, _ = socket.recv_fds(asked, REQUEST_BYTES, MOST_FDS)
    if not text:
        selector.unregister(asked)
        asked.close()
        return False
    request = json.loads(text)
    if request["program"] == "server" and "http_server" not in sys.modules:
        pretend_server("http_server")  # and with it the SDK, which takes as long as all of ours
        gc.freeze()
    more, asks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with asks:
        pid = fork(request, fds[1:], asks)
    for fd in fds[1:]:
        os.close(fd)
    os.write(fds[0], b"%d\n" % pid)
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, fds[0]))
    selector.register(more, selectors.EVENT_READ)
    return True


def _tell_end(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, answer = key.data
    selector.unregister(key.fd)
    os.close(key.fd)
    try:
        os.write(answer, b"%d\n" % os.waitpid(pid, 0)[1])
    except BrokenPipeError:
        pass  # nobody waits for it
    os.close(answer)


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    rehearse()
    # What all have in common is not looked at, and so not copied, by each one's collector.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)


if __name__ == "__main__":
    main()
