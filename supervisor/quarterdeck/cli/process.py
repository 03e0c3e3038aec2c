"""The process of a command: its standard streams, and what signals do to it from its first instruction to its last.

    while it is imported, and after its end    a signal ends the process at once: there is nothing to clean up
    while it runs                              `InterruptedBySignal` unwinds it
    in its event loop                          `run` cancels its work

SIGHUP ends a command too, unless `nohup` or its like had it ignored; `serve` outlives its terminal.

A standard stream that is closed is opened on /dev/null, so that no file or socket of ours takes its number.
What cannot be written to stderr is dropped.  What cannot be written to stdout ends the command with `OutputError`.

Imports next to nothing: it is used before everything else.
"""

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType
from typing import NoReturn, TextIO, TypeVar


class OutputError(Exception):
    """Stdout cannot be written; `number` is the errno."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class _Stdout(io.FileIO):
    """Raises on the first failed write and drops all later ones: the interpreter's end would report it again."""

    failure: OutputError | None = None

    def write(self, data: object, /) -> int:
        if self.failure is None:
            try:
                return super().write(data) or 0  # type: ignore[arg-type]
            except OSError as error:
                self.failure = OutputError(error.errno or 0)
                raise self.failure from None
        return memoryview(data).nbytes  # type: ignore[arg-type]


class _Stderr(io.FileIO):
    """Drops what cannot be written."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data) or 0  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def secure_streams() -> None:
    """Replace the interpreter's standard streams."""
    global _closed
    streams = (sys.stdin, sys.stdout, sys.stderr)
    _closed = frozenset(number for number, stream in enumerate(streams) if stream is None)
    for number in sorted(_closed):
        fd = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if fd != number:
            os.dup2(fd, number)
            os.close(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as we do
    sys.stdout = _text(_Stdout(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Stderr(2, "w", closefd=False), sys.stderr)


def closed_streams() -> frozenset[int]:
    """Return the standard descriptors that were closed when we started."""
    return _closed


def output_failure() -> OutputError | None:
    """Return why stdout lacks output, or None if all was written; call it after `secure_streams`."""
    try:
        sys.stdout.flush()
    except OutputError as error:
        return error
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Stdout) else None


_closed: frozenset[int] = frozenset()


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    encoding = before.encoding if before is not None else "utf-8"
    is_terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding,
        # A server's text may hold what the locale cannot say.
        errors="backslashreplace",
        line_buffering=is_terminal or raw.fileno() == 2,
    )


COLLECT_AFTER = 10_000
"""Objects, more than were freed, until the collector looks for garbage.  A hundred calls at once have some thousands,
and leave no garbage: by its default, 700, it would look at them several times while they are under way.
"""


def collect_rarely() -> None:
    """Turn the collector on, for a process that serves from here on.

    Until then it is off: imports leave no garbage, and a fifth of their time would be looking for it.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()


ENDING = (signal.SIGINT, signal.SIGTERM)

OWN_VARIABLE = "QUARTERDECK_OWN"
"""Has each `serve` do without the daemon, as `--own`."""

_options_with_values = ("--state-dir",)


DRAIN_VARIABLE = "QUARTERDECK_DRAIN"
"""Seconds that calls under way may still take once a `serve` or the daemon is told to end."""

MAX_DRAIN_S = 3600.0


def seconds_in(variable: str, default: float) -> float:
    """Return the seconds in an environment variable, at least 0; the default if there are none."""
    try:
        return max(0.0, float(os.environ.get(variable) or default))
    except ValueError:
        return default


class InterruptedBySignal(BaseException):
    """A signal ended the work, which has cleaned up; not an `Exception`, so that no library catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


SERVING = ("serve", "run")
"""The commands whose streams are a client's."""


def is_serve(arguments: Sequence[str]) -> bool:
    """Return whether a command line, without the program's name, serves a client."""
    return _command_of(arguments) in SERVING


def _command_of(arguments: Sequence[str]) -> str:
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _options_with_values:
            skip = True
        elif not argument.startswith("-"):
            return argument
    return ""


def has_client(arguments: Sequence[str]) -> bool:
    """Return whether a command line serves the one client that holds its stdin and stdout."""
    command = _command_of(arguments)
    return command in SERVING and not (command == "serve" and {"--http", "--help", "-h"} & set(arguments))


def serves_itself(arguments: Sequence[str]) -> bool:
    """Return whether a `serve` reads its client's lines itself, neither over HTTP nor by the daemon.

    A `run` knows it only after its options are told from its command's.
    """
    if _command_of(arguments) != "serve" or not has_client(arguments):
        return False
    return "--own" in arguments or os.environ.get(OWN_VARIABLE, "") not in ("", "0")


def starts_servers(arguments: Sequence[str]) -> bool:
    """Return whether a `serve` of this command line starts servers itself, rather than by the daemon."""
    is_http = _command_of(arguments) == "serve" and "--http" in arguments and not {"--help", "-h"} & set(arguments)
    return is_http or serves_itself(arguments)


def exit_code(number: int, *, serves: bool) -> int:
    """Return the exit code of an end by a signal; SIGTERM is the regular end of a `serve`."""
    return 0 if serves and number == signal.SIGTERM else 128 + number


def end_at_once(*, serves: bool, code: int | None = None) -> None:
    """From here on let a signal end the process, with `code` or the signal's own."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        os._exit(exit_code(number, serves=serves) if code is None else code)

    _handle(end, serves=serves)


def unwind(*, serves: bool) -> None:
    """From here on let a signal raise `InterruptedBySignal`."""

    def raise_it(number: int, _: FrameType | None) -> NoReturn:
        raise InterruptedBySignal(number)

    _handle(raise_it, serves=serves)


def handles_sighup() -> bool:
    """Return whether SIGHUP may end us: not under `nohup`."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def _handle(handler: "signal._HANDLER", *, serves: bool) -> None:
    for number in ENDING:
        signal.signal(number, handler)
    if handles_sighup():
        # Not SIG_IGN, which what we start would inherit.
        signal.signal(signal.SIGHUP, (lambda *_: None) if serves else handler)


T = TypeVar("T")


def run(
    work: Callable[[], Coroutine[None, None, T]],
    *,
    outlives_terminal: bool = False,
    hurry: Callable[[], object] | None = None,
) -> T:
    """Run `work` in an event loop of its own, and return its result.

    The first SIGINT, SIGTERM or SIGHUP cancels it, then InterruptedBySignal is raised; the next one calls `hurry`, if
    there is one, and one more ends the process at once. SIGHUP does nothing if it was ignored before, or with
    `outlives_terminal`: the client ends us by closing stdin.
    """
    import asyncio  # not before everything else

    from quarterdeck_protocol.event_loop import new_event_loop

    heard = handles_sighup()
    ending = (*ENDING, signal.SIGHUP) if heard and not outlives_terminal else ENDING
    handled = (*ENDING, signal.SIGHUP) if heard else ENDING
    before = {number: signal.getsignal(number) for number in handled}
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_run(work, ending, handled, hurry))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(
    work: Callable[[], Coroutine[None, None, T]],
    ending: tuple[signal.Signals, ...],
    handled: tuple[signal.Signals, ...],
    hurry: Callable[[], object] | None,
) -> T:
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came: list[int] = []

    def on_signal(number: int) -> None:
        came.append(number)
        if len(came) == 1:
            task.cancel()
        elif len(came) == 2 and hurry is not None:
            hurry()
        else:
            os._exit(128 + number)

    for number in handled:
        loop.add_signal_handler(number, on_signal if number in ending else lambda _: None, number)
    try:
        return await work()
    except asyncio.CancelledError:
        if came:
            raise InterruptedBySignal(came[0]) from None
        raise
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
