"""What SIGINT, SIGTERM and SIGHUP do to a command, from its first instruction to its last.

    while it is imported, and after its end    the process ends at once: there is nothing to tidy up
    while it runs                              `InterruptedBySignal` unwinds it
    in its event loop                          `running.run` cancels its work

SIGHUP ends a command too, unless `nohup` or its like had it ignored; `serve` outlives its terminal.

Imports next to nothing: it is done before everything else.
"""

import os
import signal
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM)

_options_with_values = ("--state-dir",)


class InterruptedBySignal(BaseException):
    """The work was cut short, and has cleaned up.  No `except Exception` of a library takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def is_serve(arguments: Sequence[str]) -> bool:
    """Whether a command line, without the program's name, is `serve`."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _options_with_values:
            skip = True
        elif not argument.startswith("-"):
            return argument == "serve"
    return False


def exit_code(number: int, *, serves: bool) -> int:
    """What the shell is told of an end by a signal: SIGTERM is how a `serve` is meant to end."""
    return 0 if serves and number == signal.SIGTERM else 128 + number


def end_at_once(*, serves: bool, code: int | None = None) -> None:
    """From here on a signal ends the process, with `code` or with what is said of that signal."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        os._exit(exit_code(number, serves=serves) if code is None else code)

    _handle(end, serves=serves)


def unwind(*, serves: bool) -> None:
    """From here on a signal raises `InterruptedBySignal`."""

    def raise_it(number: int, _: FrameType | None) -> NoReturn:
        raise InterruptedBySignal(number)

    _handle(raise_it, serves=serves)


def hears_hangup() -> bool:
    """Whether SIGHUP may end us; who started us by `nohup` said no."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def _handle(handler: "signal._HANDLER", *, serves: bool) -> None:
    for number in ENDING:
        signal.signal(number, handler)
    if hears_hangup():
        # Not SIG_IGN, which what we start would inherit.
        signal.signal(signal.SIGHUP, (lambda *_: None) if serves else handler)
