"""Enter a module of ours in an isolated interpreter: `python -I boot.py OWNER FILES PATHS MODULE [ARG…]`.

Isolated: neither the working directory nor PYTHONPATH is trusted, so the caller names the few directories that hold our
packages (an editable install has several).

First the kernel is told to kill us when our owner ends (Linux): an owner that is killed tells nobody, and a stopped
process hears nothing.  Then, unless FILES is 0, our soft limit of open files is set to it: the owner may have raised
its own, which servers would inherit.  The garbage collector is off when the module begins: during imports it takes a
tenth of their time and finds nothing.  A module that runs for long turns it on.
"""

import ctypes
import gc
import os
import resource
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
EXIT_OWNER_GONE = 0  # nothing was done yet


def die_with(owner: int) -> None:
    """Be killed when the thread that started us ends; end now if its process, `owner`, has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != owner:
            os._exit(EXIT_OWNER_GONE)


def limit_files(soft: int) -> None:
    """Set the soft limit of open files; 0 leaves it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if soft and (hard == resource.RLIM_INFINITY or soft <= hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    gc.disable()
    die_with(int(sys.argv.pop(1)))
    limit_files(int(sys.argv.pop(1)))
    folders, module = sys.argv[1:3]
    sys.path.extend(folder for folder in folders.split(os.pathsep) if folder not in sys.path)
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
