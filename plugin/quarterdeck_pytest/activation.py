"""The run's one supervisor: started on the first connection, ended with the run. Nothing of the product is imported.

The controller (without xdist: the one process) listens on a socket in a folder of its own, and starts the supervisor on
the first connection; it inherits the listening socket. So a run without MCP tests starts nothing, whichever xdist
worker is first. It ends when its standard input does, as when the controller dies.
"""

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import run_folders
from .leaks import VARIABLE
from .run_folders import SOCKET_NAME, make_held_folder

END_S: Final = 60.0  # seconds for the supervisor to stop all servers: several graces each, on a busy machine

_BOOT: Final = """\
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
sys.path += [each for each in sys.argv[2].split(os.pathsep) if each not in sys.path]
from quarterdeck_pytest.supervisor.main import main
main(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class RunAddress:
    """A run's supervisor, as xdist workers are told it: plain texts."""

    folder: str
    token: str

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(Path(self.folder) / SOCKET_NAME)

    @property
    def log(self) -> Path:
        """The file of its standard error."""
        return Path(self.folder) / "supervisor.log"

    def to_workerinput(self) -> dict[str, str]:
        """Return it in xdist's form."""
        return {"folder": self.folder, "token": self.token}


class Run:
    """The folder, the socket and the process of one run; made in the controller, closed at its end."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        folder, self._held = make_held_folder()
        self.address: Final = RunAddress(folder, secrets.token_hex(16))
        self._environ = dict(environ)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(self.address.socket)
            self._listener.listen(256)
        except OSError:
            self._listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(self._held)
            raise
        self._ending, self._wake = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        # The supervisor is killed when the thread that started it ends, so this one lives as long as it.
        self._thread = threading.Thread(target=self._serve, name="quarterdeck-pytest", daemon=True)
        self._thread.start()

    @property
    def was_used(self) -> bool:
        """Whether a supervisor was started."""
        return self._process is not None

    def close(self, *, keep: bool = False) -> list[str]:
        """End the supervisor with all servers, and remove the folder unless `keep`. Repeatable.

        Return one line for each leftover.
        """
        if self._is_closed:
            return []
        self._is_closed = True
        os.close(self._wake)
        self._thread.join()
        os.close(self._ending)
        self._listener.close()
        left = [f"the run left {path} behind" for path in sorted(Path(self.address.folder, "run").glob("*"))]
        if keep:
            run_folders.keep(self.address.folder)
        else:
            shutil.rmtree(self.address.folder, ignore_errors=True)
        os.close(self._held)
        if self._process is not None and self._process.returncode:
            left.append(f"the run's supervisor ended with {self._process.returncode} in place of 0")
        return left

    def _serve(self) -> None:
        """Start the supervisor at the first connection, and end it when the run does."""
        ready, _, _ = select.select([self._listener.fileno(), self._ending], [], [])
        if self._ending in ready:
            return
        with self.address.log.open("wb") as log:
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, str(self._listener.fileno()), _import_path()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[self._listener.fileno(), self._held],
                env=self._environment(),
                start_new_session=True,
            )
        # It alone listens from here on: who connects after its end is refused, and does not wait for ever.
        self._listener.close()
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(f"{self.address.token}\n".encode())
            process.stdin.flush()
            select.select([self._ending], [], [])
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _environment(self) -> dict[str, str]:
        """Return our environment with the run's own state and runtime directories, without the mark of a test's
        process.
        """
        own = Path(self.address.folder)
        places = {"QUARTERDECK_STATE_DIR": str(own / "state"), "QUARTERDECK_RUNTIME_DIR": str(own / "run")}
        return {name: value for name, value in self._environ.items() if name != VARIABLE} | places


def _import_path() -> str:
    """Return the folders of installed packages, for an isolated interpreter, without the project's own modules."""
    ours = str(Path(__file__).resolve().parents[1])
    found = (folder for folder in sys.path if Path(folder).name in {"site-packages", "dist-packages"})
    return os.pathsep.join(dict.fromkeys((ours, *found)))
