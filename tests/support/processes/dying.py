"""Have a process die by SIGKILL at one step on disk after another: one life each."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable


def die_before(step: int, names: Iterable[str]) -> None:
    """Have this process killed before so many calls of these functions of `os`."""
    lock, count = threading.Lock(), 0

    def counted(original: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal count
            with lock:
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for name in names:
        setattr(os, name, counted(getattr(os, name)))


def in_a_child(work: Callable[[], object]) -> int:
    """Run `work` in a process of its own. Return its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
