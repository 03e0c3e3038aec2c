"""The command line of a process of ours that does one thing and ends: an isolated interpreter, killed when we end.

A stranger's page or the user's keyring is dealt with in one; stopped or hanging, it would outlive a `serve` that was
killed.  When memory runs out it is killed before we are.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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


def child_command(code: str, packages: Sequence[str]) -> list[str]:
    """What runs `code`, which finds `packages` wherever they are installed.

    The process is killed when the thread that starts it ends (Linux).
    """
    origins = (spec.origin for name in packages if (spec := importlib.util.find_spec(name)) is not None)
    folders = [str(Path(origin).parents[1]) for origin in origins if origin is not None]
    return [sys.executable, "-I", "-c", _TIE + code, str(os.getpid()), *folders]
