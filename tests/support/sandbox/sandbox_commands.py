"""Commands under `quarterdeck sandbox run`, and services outside for them to reach or not to reach."""

import http.server
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from support.processes.forks import Forks
from support.processes.identities import Identity

DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Runner:
    """The tool as one user runs it; `root` is a directory that this user owns and everybody may read."""

    who: Identity
    root: Path
    forks: Forks

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        given = [word for item in env.items() for word in ("--env", "=".join(item))]
        own = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.root),
            "QUARTERDECK_STATE_DIR": str(self.root / "state"),
            "QUARTERDECK_RUNTIME_DIR": str(self.root / "run"),
        }
        argv = ["sandbox", "run", *given, *words]
        done = self.forks.run(self.who, argv, own, timeout_s=DEADLINE_S)
        return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Say whose it is, then give back what it is given, until that ends."""
        self.request.sendall(b"%d " % self.server.server_address[1])  # type: ignore[index]
        while data := self.request.recv(65536):
            self.request.sendall(data)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]  # type: ignore[index,misc]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def echo(address: str = "127.0.0.1") -> AbstractContextManager[int]:
    """A TCP service on an address of the host, by default its loopback; yields its port."""
    return _serving(_Server((address, 0), _Echo))


@contextmanager
def https(folder: Path, certificate: Path) -> Iterator[int]:
    """The files of `folder` over TLS; yields the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with _serving(server) as port:
        yield port


def certify(path: Path, *names: str) -> None:
    """A certificate at `path` that says of itself that it is `names`; its key beside it."""
    alternatives = ",".join(f"DNS:{name}" for name in names)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={names[0]}"),
            *("-addext", f"subjectAltName={alternatives}", "-keyout", str(path.with_suffix(".key")), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )


def bare_repository(path: Path) -> None:
    git = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    author = ["-c", "user.name=lab", "-c", "user.email=lab"]
    work = path.with_suffix(".work")
    for words in (
        ["init", "--quiet", "--initial-branch=main", str(work)],
        ["-C", str(work), *author, "commit", "--quiet", "--allow-empty", "--message", "carried through a relay"],
        ["clone", "--quiet", "--bare", str(work), str(path)],
        ["-C", str(path), "update-server-info"],
    ):
        subprocess.run(["git", *words], env=git, check=True, capture_output=True)
    shutil.rmtree(work)


def other_name() -> str:
    """A name of this machine that is not `localhost` and leads to its loopback; empty when it has none."""
    name = socket.gethostname().lower()
    try:
        return name if name != "localhost" and socket.gethostbyname(name).startswith("127.") else ""
    except OSError:
        return ""
