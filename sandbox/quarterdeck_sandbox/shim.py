"""Become the server: the few steps between our spawn and its first instruction.

Run as `python -I -S shim.py STATUS_FD PARENT_PID PROGRAM ARGV0 [ARG…]`, stdlib only.  It asks the kernel to kill this
process when its parent dies, checks that the parent still lives (it may have died before the request), turns core
dumps off and executes the program.  An `exec` that fails is reported as its errno on STATUS_FD, which otherwise closes.
"""

import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    status_fd, parent, program, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    os.set_inheritable(status_fd, False)  # noqa: FBT003 - takes no keyword
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Python ignores two of these and the zygote the third; a signal stays ignored across exec, which no server expects.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, argv)  # noqa: S606 - the whole point
    except OSError as error:
        os.write(status_fd, str(error.errno).encode())
        os._exit(126)


if __name__ == "__main__":
    main()
