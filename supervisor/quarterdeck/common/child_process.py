"""Start a helper process that answers one question: an isolated interpreter, killed when we end or memory runs out.

It parses an untrusted page, or asks the user's keyring; if it hung, it would outlive a killed `serve`.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

_TIE: Final = """\
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != int(sys.argv[1]):
        os._exit(0)
    try:
        with open("/proc/self/oom_score_adj", "r+") as score:
            points = min(1000, int(score.read()) + 600)  # as whatever else may need much memory
            score.seek(0)
            score.write(str(points))
    except OSError:
        pass
sys.path += [each for each in sys.argv[2:] if each not in sys.path]
"""


@dataclass(frozen=True, slots=True)
class Helper:
    """A process that runs `code`, which imports `packages` wherever they are installed; it reads its question from
    stdin and writes its answer to stdout. `environment` is its whole environment, None for ours. One that `is_apart`
    has its own session: no terminal, and no signals to our process group.
    """

    code: str
    packages: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    is_apart: bool = False

    @property
    def command(self) -> list[str]:
        """The command that starts it. It is killed when the thread that started it ends (Linux)."""
        origins = (spec.origin for name in self.packages if (spec := importlib.util.find_spec(name)) is not None)
        folders = [str(Path(origin).parents[1]) for origin in origins if origin is not None]
        return [sys.executable, "-I", "-c", _TIE + self.code, str(os.getpid()), *folders]

    def ask(self, question: bytes, deadline_s: float) -> tuple[int, bytes]:
        """Return its exit status and its answer. Blocking.

        Raise TimeoutError if it did not end in time and was killed, OSError if it cannot be started.
        """
        try:
            done = subprocess.run(
                self.command,
                input=question,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=deadline_s,
                env=self.environment,
                cwd="/",
                start_new_session=self.is_apart,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError from None  # not chained: that exception holds what was asked
        return done.returncode, done.stdout

    async def ask_async(self, question: bytes, max_bytes: int) -> bytes | None:
        """Return its answer, or None if it failed or would answer more than `max_bytes`. Cancellation kills it."""
        try:
            with anyio.CancelScope(shield=True):  # it does not wait; cancelled halfway, nobody would own the process
                process = await anyio.open_process(
                    self.command,
                    stderr=subprocess.DEVNULL,
                    env=self.environment,
                    cwd="/",
                    start_new_session=self.is_apart,
                )
        except OSError:
            return None
        answer = bytearray()
        async with process:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_put, process, question)
                assert process.stdout is not None
                async for piece in process.stdout:
                    answer += piece
                    if len(answer) > max_bytes:
                        process.kill()
                        return None
            returncode = await process.wait()
        return bytes(answer) if returncode == 0 else None


async def _put(process: Process, question: bytes) -> None:
    assert process.stdin is not None
    try:
        await process.stdin.send(question)
        await process.stdin.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass  # it died, which its return code will tell
