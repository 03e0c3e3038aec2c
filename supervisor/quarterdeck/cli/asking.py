"""Get an answer: from the `serve` of the same configuration when one runs, else from servers started for it.

A configuration is its files; without any, the workspace of the native tools.  A command that wants native tools asks
only a `serve` that offers just those; one that wants none asks any.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.log_setup import LogFormat, LogLevel, set_up_logging
from quarterdeck.cli.native import NativeOptions
from quarterdeck.cli.running import run
from quarterdeck.config.paths import UnsafePathError, configuration_digest
from quarterdeck.config.runtime_directory import find_serving
from quarterdeck.control.client import NoAnswerError, NobodyThereError, TooLargeError
from quarterdeck.control.client import ask as ask_serving
from quarterdeck.control.protocol import Answer, Call, Refused, Request
from quarterdeck_protocol.refs import QUALIFIER

if TYPE_CHECKING:
    from quarterdeck.app import Quarterdeck
    from quarterdeck.settings import Settings

_log = logging.getLogger("quarterdeck.config")


NO_CONFIGURATION: Final = "add --config FILE, or set QUARTERDECK_CONFIG; or --profile, for native tools alone"
"""What a command without either says."""


@dataclass(frozen=True, slots=True)
class Source:
    """Whom a command asks.

    Attributes:
        config: the files that name the configuration, at least one unless there are native tools.
        own: never a running `serve`.
        allow_unsandboxed: of servers that we have to start ourselves; see `Settings`.
        native: the native tools that are wanted; None for those of a `serve`, if any.
    """

    config: tuple[Path, ...]
    own: bool = False
    log_level: LogLevel = LogLevel.WARNING
    log_format: LogFormat = LogFormat.CONSOLE
    allow_unsandboxed: bool = False
    native: NativeOptions | None = None


def source(
    config: list[Path] | None,
    native: NativeOptions | None = None,
    *,
    own: bool = False,
    log_level: LogLevel = LogLevel.WARNING,
    log_format: LogFormat = LogFormat.CONSOLE,
    allow_unsandboxed: bool = False,
) -> Source:
    """Whom the options mean.

    Raises:
        CommandError: neither a configuration nor native tools are named.
    """
    if not config and native is None:
        raise CommandError(ExitCode.USAGE, "no configuration is named", NO_CONFIGURATION)
    return Source(tuple(config or ()), own, log_level, log_format, allow_unsandboxed, native)


def ask(whom: Source, request: Request, *, only: str | None = None) -> Answer:
    """The answer, refusals excepted.

    Args:
        whom: see `Source`.
        request: what is asked.
        only: of servers that we have to start ourselves, the one that is needed.

    Raises:
        CommandError: the configuration is wrong, or the request cannot be served.
    """
    answer = _ask_serving(whom, request) if not whom.own else None
    if answer is None:
        answer = _ask_own(whom, request, only)
    if isinstance(answer, Refused):
        code = ExitCode.NOT_FOUND if answer.code.startswith("no_such_") else ExitCode.NO_ANSWER
        raise CommandError(code, answer.message)
    return answer


def _ask_serving(whom: Source, request: Request) -> Answer | None:
    """What the running `serve` answers; None when there is none."""
    native = whom.native
    named_by = whom.config or ((native.workspace,) if native is not None else ())
    directory = find_serving(configuration_digest(named_by), native=native.fingerprint if native is not None else None)
    if directory is None:
        return None
    try:
        return ask_serving(directory, request)
    except NobodyThereError:
        return None
    except TooLargeError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from None
    except NoAnswerError as error:
        raise CommandError(ExitCode.NO_ANSWER, str(error), "see its log, or ask servers of your own: --own") from None


def _ask_own(whom: Source, request: Request, only: str | None) -> Answer:
    settings = load(whom)
    if only is not None:
        check_server(settings, only)
        settings = settings.only(only)
    elif whom.native is not None and isinstance(request, Call) and QUALIFIER not in request.name:
        settings = replace(settings, servers=(), broken=())  # a native tool needs none of them
    if settings.native is not None:
        settings = replace(settings, native=replace(settings.native, gate=False))

    async def answer_once() -> Answer:
        from quarterdeck.control.answers import answer

        async with open_deck(settings) as deck:
            # Each connect has a deadline of its own, and nobody else is kept waiting here.
            await deck.fleet.settled(None)
            return await answer(deck, request)

    return run(answer_once)


def check_server(settings: "Settings", server: str) -> None:
    """See that the configuration names this server.

    Raises:
        CommandError: it does not.
    """
    if server not in settings.ids:
        known = f"the servers are {', '.join(settings.ids)}" if settings.ids else "the configuration names none"
        raise CommandError(ExitCode.NOT_FOUND, f"there is no server {server!r}: {known}")


@asynccontextmanager
async def open_deck(settings: "Settings") -> "AsyncIterator[Quarterdeck]":
    """`open_quarterdeck`, with a directory that cannot be used as the user's error.

    Raises:
        CommandError: so it is.
    """
    from quarterdeck.app import open_quarterdeck

    async with AsyncExitStack() as stack:
        try:
            deck = await stack.enter_async_context(open_quarterdeck(settings))
        except (UnsafePathError, OSError) as error:
            raise CommandError(ExitCode.USAGE, str(error)) from error
        yield deck


def load(whom: Source) -> "Settings":
    """The configuration, and logging that keeps its secrets; what was set aside in it is logged.

    Raises:
        CommandError: nothing of a file can be used.
    """
    from quarterdeck.config.files import ConfigFileError
    from quarterdeck.settings import Settings

    try:
        settings = Settings.load(whom.config, native=whom.native.to_wish() if whom.native is not None else None)
    except ConfigFileError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from None
    set_up_logging(whom.log_level, whom.log_format, settings.secrets)
    for warning in settings.warnings:
        _log.warning("%s", warning)
    return replace(settings, allow_unsandboxed=whom.allow_unsandboxed)
