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
    "add_key": (248, 217), "bpf": (321, 280), "clone3": (435, 435), "fchmodat2": (452, 452), "file_setattr": (469, 469),
    "fsopen": (430, 430), "init_module": (175, 105), "io_uring_setup": (425, 425), "ioprio_set": (251, 30),
    "kcmp": (312, 272), "kexec_load": (246, 104), "keyctl": (250, 219), "memfd_secret": (447, 447),
    "move_pages": (279, 239), "mq_open": (240, 180), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438), "rt_sigqueueinfo": (129, 138), "sched_setattr": (314, 274), "setxattrat": (463, 463),
    "userfaultfd": (323, 282),
}  # fmt: skip
"""Of system calls, by architecture."""

_ARCHITECTURES: Final = ("x86_64", "aarch64")


def call(function: str, *arguments: object) -> int:
    """Call a function of libc that says -1 and errno.  Raise OSError if it failed."""
    return _checked(getattr(libc, function)(*arguments), function)


def syscall(name: str, *arguments: object) -> int:
    """Make a system call that libc does not wrap, integers passed as longs.  Raise OSError if it failed."""
    longs = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(libc.syscall(ctypes.c_long(_NUMBERS[name][_ARCHITECTURES.index(platform.machine())]), *longs), name)


def _checked(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def first_of(*tries: Attack) -> str:
    """Return what the first of several ways gets.  Raise Held, with the reasons of all, if none gets anything."""
    reasons = []
    for one in tries:
        try:
            return one()
        except (OSError, Held) as error:
            reasons.append(str(error))
    raise Held("; ".join(dict.fromkeys(reasons)))


def require(claim: object, otherwise: str) -> None:
    """Raise Held, for the reason `otherwise`, unless `claim`."""
    if not claim:
        raise Held(otherwise)
