"""Run attacks by name: `python3 tests/attacks NAME…`; those that refuse to end by `--life NAME…` or `--leave NAME…`."""

import importlib
import os
import select
import signal
import sys
import time
import traceback

from arena import ATTACKS, BOMBS, LIVES, Attack, Held
from lives import flag

PATIENCE_S = 10.0  # an attack of the first kind is done in milliseconds
BOMB_PATIENCE_S = 50.0  # a bomb holds what it has for a while, and a small machine fills slowly

REFUSALS = {
    signal.SIGSYS: "killed for the system call",
    signal.SIGXCPU: "killed for its processor time",
    signal.SIGXFSZ: "killed for the size of its file",
}
"""Ways in which the kernel ends a process for what it asked."""

MODULES = (
    "bombs",
    "files",
    "floods",
    "kernel",
    "lives",
    "metadata",
    "neighbours",
    "processes",
    "reaching",
    "rights",
    "sockets",
)

for module in MODULES:
    importlib.import_module(module)


def say(*words: str) -> None:
    """One line, at once."""
    os.write(1, (" ".join(words) + "\n").encode())


def verdict_of(name: str, function: Attack) -> str:
    """Its verdict, as one line."""
    try:
        return f"ESCAPED {name}: {function()}"
    except OSError as error:
        return f"HELD {name}: {error}"
    except (Held, MemoryError) as error:
        return f"HELD {name}: {error or type(error).__name__}"
    except Exception:
        return f"BROKEN {name}: {traceback.format_exc().splitlines()[-1]} {traceback.format_exc().splitlines()[-3:-1]}"


def run_apart(name: str, function: Attack, patience_s: float) -> None:
    """Run it in a session of its own: what it does to itself harms no other, and what it leaves can be ended."""
    say("START", name)
    hears, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(hears)
        os.write(says, verdict_of(name, function).replace("\n", " ").encode())
        os._exit(0)
    os.close(says)
    ready, _, _ = select.select([hears], [], [], patience_s)
    verdict = os.read(hears, 4000).decode(errors="replace") if ready else f"BROKEN {name}: no verdict in time"
    os.close(hears)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has not become a group yet, or any more
    _, status = os.waitpid(pid, 0)
    if not verdict and os.WIFSIGNALED(status) and os.WTERMSIG(status) in REFUSALS:
        verdict = f"HELD {name}: {REFUSALS[os.WTERMSIG(status)]}"
    elif not verdict and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        verdict = f"ENDED {name}: somebody killed it"
    say(verdict or f"BROKEN {name}: it died without a word, status {status}")


def start_lives(names: list[str]) -> None:
    """Start all of them; each says START by itself, once it is what it wants to be."""
    for name in names:
        if os.fork() == 0:
            LIVES[name]()
            os._exit(0)


def main() -> None:
    """See the module."""
    match sys.argv[1:]:
        case ["--list"]:
            say("\n".join([*ATTACKS, *BOMBS, *LIVES]))
        case ["--life", *names]:
            start_lives(names)
            while True:
                time.sleep(1)
        case ["--leave", *names]:
            start_lives(names)
            while not all(flag(name).exists() for name in names):
                time.sleep(0.01)
        case ["--one", name]:
            LIVES[name]()
        case names:
            for name in names:
                if name in BOMBS:
                    run_apart(name, BOMBS[name], BOMB_PATIENCE_S)
                else:
                    run_apart(name, ATTACKS[name], PATIENCE_S)


if __name__ == "__main__":
    main()
