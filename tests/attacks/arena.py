"""What the attacks share: the register, what they are aimed at, and the system calls that Python lacks."""

import ctypes
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final


class Held(Exception):  # noqa: N818 - a verdict
    """The attack got nothing; says why."""


Attack = Callable[[], str]

ATTACKS: Final[dict[str, Attack]] = {}
"""Those that can be run one after the other, and know by themselves whether they escaped."""

BOMBS: Final[dict[str, Attack]] = {}  # those that want too much of something; each is run alone
LIVES: Final[dict[str, Callable[[], object]]] = {}  # those that refuse to end


def attack(function: Attack) -> Attack:
    """Enter one into `ATTACKS` by its name."""
    ATTACKS[function.__name__] = function
    return function


def bomb(function: Attack) -> Attack:
    """Enter one into `BOMBS` by its name."""
    BOMBS[function.__name__] = function
    return function


def life(function: Callable[[], object]) -> Callable[[], object]:
    """Enter one into `LIVES` by its name."""
    LIVES[function.__name__] = function
    return function


def _load_targets() -> SimpleNamespace:
    try:
        text = (Path(__file__).parent / "targets.json").read_text()
    except FileNotFoundError:
        text = "{}"
    return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))


TARGETS: Final = _load_targets()
"""What is to be reached, as the runner prepared it outside (see `support.canaries`)."""

libc: Final = ctypes.CDLL(None, use_errno=True)

_NUMBERS: Final = {
    "x86_64": {
        "fchmodat2": 452,
        "file_setattr": 469,
        "setxattrat": 463,
        "kcmp": 312,
        "pidfd_getfd": 438,
        "io_uring_setup": 425,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "keyctl": 250,
        "add_key": 248,
        "fsopen": 430,
        "open_tree": 428,
        "init_module": 175,
        "kexec_load": 246,
        "memfd_secret": 447,
        "ioprio_set": 251,
        "clone3": 435,
        "move_pages": 279,
        "rt_sigqueueinfo": 129,
        "mq_open": 240,
        "sched_setattr": 314,
    },
    "aarch64": {
        "fchmodat2": 452,
        "file_setattr": 469,
        "setxattrat": 463,
        "kcmp": 272,
        "pidfd_getfd": 438,
        "io_uring_setup": 425,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "keyctl": 219,
        "add_key": 217,
        "fsopen": 430,
        "open_tree": 428,
        "init_module": 105,
        "kexec_load": 104,
        "memfd_secret": 447,
        "ioprio_set": 30,
        "clone3": 435,
        "move_pages": 239,
        "rt_sigqueueinfo": 138,
        "mq_open": 180,
        "sched_setattr": 274,
    },
}


def call(function: str, *arguments: object) -> int:
    """A function of libc that says -1 and errno.

    Raises:
        OSError: it failed.
    """
    return _checked(getattr(libc, function)(*arguments), function)


def syscall(name: str, *arguments: object) -> int:
    """A system call that libc does not wrap; integers are passed as longs.

    Raises:
        OSError: it failed.
    """
    longs = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(libc.syscall(ctypes.c_long(_NUMBERS[platform.machine()][name]), *longs), name)


def _checked(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def first_of(*tries: Attack) -> str:
    """What the first of several ways gets; the reasons of all when none gets anything.

    Raises:
        Held: none did.
    """
    reasons = []
    for one in tries:
        try:
            return one()
        except (OSError, Held) as error:
            reasons.append(str(error))
    raise Held("; ".join(dict.fromkeys(reasons)))


def require(claim: object, otherwise: str) -> None:
    """Count the attack as held unless `claim`.

    Raises:
        Held: `otherwise` says why.
    """
    if not claim:
        raise Held(otherwise)
