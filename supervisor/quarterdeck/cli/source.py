"""Get an answer: from the `serve` of the same configuration when one runs, else from servers started for it.

A configuration is the files that are named; when none is, those that are found, or with native tools their workspace
alone.  A command that wants native tools asks only a `serve` that offers just those; one that wants none asks any.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from quarterdeck.common.words import flat
from quarterdeck.config.load.origin import Standing, candidates, candidates_digest, mcp_config_paths
from quarterdeck.config.load.trouble import Trouble
from quarterdeck.config.places.paths import (
    UnsafePathError,
    command_digest,
    configuration_digest,
    knows_servers,
    native_fingerprint,
    state_dir,
)
from quarterdeck.config.places.runtime_directory import find_all_serving, find_serving, find_serving_files
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, TooLargeError
from quarterdeck.daemon.control.client import ask as ask_serving
from quarterdeck.daemon.control.protocol import Answer, Call, Inspect, Ps, Refused, Request, Restart, ServerList
from quarterdeck_protocol.names import QUALIFIER, did_you_mean
from quarterdeck_protocol.plain_words import plain_words

from . import options
from .exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error, ledger_error
from .log_setup import LogFormat, LogLevel, set_up_logging
from .options import native_options, native_wish
from .output import hint, print_line
from .parameters import Combined

if TYPE_CHECKING:
    from quarterdeck.common.events import Bus
    from quarterdeck.config.load.merge import FileFound
    from quarterdeck.config.settings import Settings
    from quarterdeck.daemon.messages import NativeRequest
    from quarterdeck.fleet.from_settings import SealingOf
    from quarterdeck.ledger.store.lease import LeaseHeldError
    from quarterdeck.running_product import Product
    from quarterdeck.trust.judge.server_rows import Locks
    from quarterdeck_protocol.configs import ServerConfig

_log = logging.getLogger("quarterdeck.config")


NO_CONFIGURATION: Final = (
    "add a server (`quarterdeck add`), import a client's (`quarterdeck config import`), write one of the files that "
    "`quarterdeck config path` lists, or name one with --config FILE"
)
"""The fix of a command that finds no configuration."""

OR_NATIVE: Final = "; or add --profile, for native tools alone"
"""Added for commands that take `--profile`."""

_NOT_FOUND: Final = {
    "no_such_group": "define it under 'groups' of your configuration",
    "no_such_server": "quarterdeck ps lists its servers",
    "no_such_tool": "quarterdeck tools lists them, and says why a server offers none",
}
"""Remedies of a `Refused` that names something missing."""


class Source(msgspec.Struct, frozen=True):
    """The configuration of a command, and how its servers are asked.

    Attributes:
        config: the named files; none for those that are found.
        own: whether a running `serve` is never asked.
        allow_unsandboxed: for servers that we start ourselves; see `Settings`.
        native: the native tools that are wanted; None for those of a `serve`, if any.
        knows_profile: whether the command takes `--profile`.
    """

    config: tuple[Path, ...] = ()
    own: bool = False
    log_level: LogLevel = LogLevel.WARNING
    log_format: LogFormat = LogFormat.CONSOLE
    allow_unsandboxed: bool = False
    native: "NativeRequest | None" = None
    knows_profile: bool = False

    @property
    def digest(self) -> str:
        """The name of the configuration; see `Settings.digest`."""
        if self.config:
            return configuration_digest(self.config)
        if self.native is not None:
            return configuration_digest((Path(self.native.workspace),))
        return candidates_digest(each.path for each in candidates(Path.cwd(), os.environ))

    @property
    def own_files(self) -> frozenset[str]:
        """Its files, resolved, if all are the user's own: these mean the same wherever they are found.

        Empty for a configuration with another file, with native tools, or without any file.
        """
        if self.native is not None:
            return frozenset()
        places = [each for each in candidates(Path.cwd(), os.environ) if each.path.exists()]
        own = {str(each.path.resolve()) for each in places if each.standing is Standing.USER}
        files = frozenset(str(path.resolve()) for path in self.config or (each.path for each in places))
        return files if files <= own else frozenset()

    @property
    def is_open(self) -> bool:
        """No configuration is named, and none is found."""
        if self.config or self.native is not None:
            return False
        return not any(each.path.exists() for each in candidates(Path.cwd(), os.environ))


def _asked(
    config: options.Config = None,
    own: options.Own = False,
    allow_unsandboxed: options.Unsandboxed = False,
    log_level: options.Level = LogLevel.WARNING,
    log_format: options.Format = LogFormat.CONSOLE,
) -> Source:
    return Source(tuple(config or ()), own, log_level, log_format, allow_unsandboxed)


def _asked_with_native(
    config: options.Config = None,
    profile: options.Profile = None,
    workspace: options.Workspace = None,
    allow_dir: options.AllowDir = None,
    native_tools: options.Tools = None,
    own: options.Own = False,
    allow_unsandboxed: options.Unsandboxed = False,
    log_level: options.Level = LogLevel.WARNING,
    log_format: options.Format = LogFormat.CONSOLE,
) -> Source:
    native = native_options(profile, workspace, allow_dir, native_tools)
    return Source(tuple(config or ()), own, log_level, log_format, allow_unsandboxed, native, knows_profile=True)


_QUIET: Final = {"log_level": LogLevel.ERROR}
_SERVING: Final = {"log_level": LogLevel.INFO, "log_format": LogFormat.AUTO}

Named = Annotated[
    Source, Combined(_asked, _QUIET, without=frozenset({"own", "allow_unsandboxed", "log_level", "log_format"}))
]
"""The configuration of a command that asks no server."""

Asked = Annotated[Source, Combined(_asked)]

AskedQuietly = Annotated[Source, Combined(_asked, _QUIET)]

AskedWithNative = Annotated[Source, Combined(_asked_with_native)]
"""The source of a command that can also ask for native tools."""

Served = Annotated[Source, Combined(_asked_with_native, _SERVING, without=frozenset({"own"}))]
"""The source of `serve`, which asks no other process."""


def ask(source: Source, request: Request, *, only: str | None = None, anywhere: bool = False) -> Answer:
    """Return the answer; raise CommandError for a refusal, or a wrong configuration.

    Of servers that we have to start, `only` one is needed. With `anywhere`, the one running `serve` is asked if none
    has this configuration.
    """
    answer = ask_running(source, request, anywhere=anywhere)
    return answer if answer is not None else checked(_ask_own(source, request, only))


def ask_running(source: Source, request: Request, *, anywhere: bool = False) -> Answer | None:
    """Return the answer of the running `serve`, None without one or with `--own`.

    Raise CommandError if it refuses or does not answer, or if several run and none is named.
    """
    if source.own:
        return None
    for directory in _serving(source, request, anywhere=anywhere):
        if directory is not None and (answer := answer_of(directory, request)) is not None:
            return checked(answer)
    return None


def _serving(source: Source, request: Request, *, anywhere: bool) -> Iterator[Path | None]:
    """Yield the runtime directories of the processes that may answer, the nearest first; None where there is none."""
    if not source.config and isinstance(request, Inspect | Restart):
        yield find_serving(command_digest(request.server))
    native, offers = source.native, None
    if native is not None:
        places = Path(native.workspace), map(Path, native.allow_dirs)
        offers = native_fingerprint(native.profile, *places, native.tools)
    directory = find_serving(source.digest, native=offers)
    if directory is None:
        # A call may depend on the working directory: then only a deck of that directory may answer it.
        elsewhere = serving_own_files(source)
        is_bound = elsewhere is not None and isinstance(request, Call) and load(source).is_of_folder
        directory = None if is_bound else elsewhere
    yield directory
    if not source.config and native is None and (anywhere or source.is_open):
        yield only_serving()


def only_serving() -> Path | None:
    """Return the directory of the one running `serve`, None without any; raise CommandError if there are several."""
    found = find_all_serving()
    if len(found) > 1:
        told = "; ".join(f"process {each.pid}: {each.words}" for each in found.values())
        raise UsageError(f"several serves run: {told}", "name one by its file: -c FILE")
    for directory, serving in found.items():
        hint(f"asking the serve of process {serving.pid}: {serving.words}")
        return directory
    return None


def checked(answer: Answer) -> Answer:
    """Return the answer, or raise CommandError if it is a refusal."""
    if isinstance(answer, Refused):
        if remedy := _NOT_FOUND.get(answer.code):
            raise NotFoundError(answer.message, remedy)
        raise CommandError(ExitCode.NO_ANSWER, answer.message, "see its log, or use --own")
    return answer


def serving_own_files(source: Source) -> Path | None:
    """Return the directory of a `serve` elsewhere with just these files of the user's, if any.

    A configuration that is found belongs to its working directory, where a project file may appear at any time. Calls
    may depend on that directory; what is only looked at does not.
    """
    return find_serving_files(files) if (files := source.own_files) else None


def answer_of(directory: Path, request: Request) -> Answer | None:
    """Return the answer of the `serve` with this runtime directory, None if it has just ended.

    Raise CommandError if it does not answer.
    """
    try:
        return ask_serving(directory, request)
    except NotServingError:
        return None
    except TooLargeError as error:
        raise UsageError(str(error), "give it less at a time, or let the tool read it from a file") from None
    except NoAnswerError as error:
        raise CommandError(
            ExitCode.NO_ANSWER, str(error), "see its log, or start the servers for this command alone: --own"
        ) from None


def _ask_own(source: Source, request: Request, only: str | None) -> Answer:
    from .process import run  # asyncio: a fifth of what asking a serve costs

    settings = load(source)
    if only is not None:
        check_server(settings, only)
        settings = settings.only(only)
    elif source.native is not None and isinstance(request, Call) and QUALIFIER not in request.name:
        settings = replace(settings, servers=(), broken=())  # a native tool needs none of them
    if settings.native is not None:
        settings = replace(settings, native=replace(settings.native, gate=False))

    # The answer says what is held.
    logging.getLogger("quarterdeck.trust.held").setLevel(logging.ERROR)

    async def answer_once() -> Answer:
        from quarterdeck.daemon.control.answers import answer

        async with start_product(settings) as product:
            # Each connect has a deadline of its own, and nobody else is kept waiting here.
            await product.finished()
            return await answer(product, request)

    return run(answer_once)


def check_server(settings: "Settings", server: str) -> None:
    """Raise CommandError if the configuration names no such server."""
    if server not in settings.ids:
        known = did_you_mean(server, settings.ids, "servers") or ": the configuration has no servers"
        raise NotFoundError(
            f"there is no server {server!r}{known}",
            "quarterdeck config show lists them; -c FILE names another configuration",
        )


def configured_server(settings: "Settings", server: str) -> "ServerConfig":
    """Return the configuration of one server; raise CommandError if there is none, or its row is broken."""
    check_server(settings, server)
    for row in settings.broken:
        if row.id == server:
            raise UsageError(row.message, "correct the row first: quarterdeck config show says where it is")
    return next(each for each in settings.servers if each.id == server)


@asynccontextmanager
async def start_product(
    settings: "Settings",
    *,
    serves: bool = False,
    visits: bool = False,
    lock: "Locks | None" = None,
    http: bool = False,
    sealing: "SealingOf | None" = None,
    bus: "Bus | None" = None,
) -> "AsyncIterator[Product]":
    """Open the product; raise CommandError if files cannot be used, or are used by another process."""
    from quarterdeck.fleet.workers.interpreters import start_zygote_early

    if settings.starts_processes and not (serves and knows_servers()):
        start_zygote_early()
    # Only now: the zygote imports while we do.
    from quarterdeck.app import open_quarterdeck
    from quarterdeck.config.load.file import ConfigFileError
    from quarterdeck.daemon.control.recording import hand_over
    from quarterdeck.daemon.control.server import open_control
    from quarterdeck.ledger.errors import LedgerError
    from quarterdeck.ledger.store.lease import LeaseHeldError

    async with AsyncExitStack() as stack:
        try:
            opening = open_quarterdeck(
                settings, serves=serves, visits=visits, lock=lock, hand_over=hand_over, sealing=sealing, bus=bus
            )
            product = await stack.enter_async_context(opening)
            if not serves and not visits:
                await stack.enter_async_context(open_control(product, is_found=False))
        except LeaseHeldError as error:
            raise _held_by_another(settings, error, http=http) from error
        except ConfigFileError as error:
            raise UsageError(str(error), "correct that file: quarterdeck config check says more") from error
        except LedgerError as error:
            raise ledger_error(error) from error
        except (UnsafePathError, OSError) as error:
            raise UsageError(
                plain_words(error), "make it a folder of your own that can be written, or name another: --state-dir DIR"
            ) from error
        yield product


def _held_by_another(settings: "Settings", error: "LeaseHeldError", *, http: bool) -> CommandError:
    """Return the error of a ledger in use: how to join its writer, or run next to it."""
    from quarterdeck.ledger.store.lease import DAEMON

    state, holder = state_dir(), error.holder
    beside = f"{state.parent / state.name}-{settings.digest}"
    if holder is None:
        return UsageError(str(error), f"or run beside it: quarterdeck --state-dir {beside} …")
    if holder.command == DAEMON:
        alone = f"or only read its ledger: --read-only; or use another state directory: --state-dir {beside}"
        if settings.command:
            # The daemon serves commands only over its doors' sockets.
            fix = "only read its ledger" if http else "let it serve this client, without --own; or only read its ledger"
            fix = f"{fix}: --read-only; or use another state directory: --state-dir {beside}"
        elif http:
            fix = f'have it listen: quarterdeck up --http ADDRESS, or "http": true in your configuration; {alone}'
        else:
            fix = f"let it serve this client, without --own; {alone}"
        return UsageError(f"{holder} serves all clients of the state directory {state}", fix)
    who = f"process {holder.pid} (since {holder.started_at})"
    if holder.digest != settings.digest:
        files = ", ".join(holder.config_paths) or "native tools alone"
        return UsageError(
            f"{who} serves another configuration from the state directory {state}: {files}",
            f"give this one a state directory of its own: quarterdeck serve --state-dir {beside} …",
        )
    join = (
        f"join it: point your client at {holder.url}"
        if holder.url
        else "stop it, and start one that many clients can use: quarterdeck serve --http"
    )
    return UsageError(
        f"{who} serves this configuration already"
        + (f", at {holder.url}" if holder.url else ", to the client that started it"),
        f"{join}; or run beside it: quarterdeck serve --state-dir {beside} …",
    )


def load(source: Source, *, may_be_empty: bool = False) -> "Settings":
    """Load the configuration, keep its secrets out of the log, and log what was set aside.

    Raise CommandError if nothing of a named file can be used, or nothing is named or found.
    """
    from quarterdeck.config.load.file import ConfigFileError

    with as_command_error(ConfigFileError, remedy="correct that file, or name another with -c FILE"):
        settings = read_settings(source)
    if not (may_be_empty or settings.config_paths or settings.native):
        remedy = NO_CONFIGURATION + (OR_NATIVE if source.knows_profile else "")
        raise UsageError("no configuration is given, and none is found", remedy)
    set_up_logging(source.log_level, source.log_format, settings.secrets)
    for warning in settings.warnings:
        _log.warning("%s", warning)
    return settings


def read_settings(source: Source) -> "Settings":
    """Return the configuration as its files are now; raise ConfigFileError if nothing of a named one can be used."""
    from quarterdeck.config.settings import Settings

    native = native_wish(source.native) if source.native is not None else None
    if source.config or native is not None:
        settings = Settings.load(source.config, native=native)
    else:
        settings = Settings.discover(Path.cwd())
    return replace(settings, allow_unsandboxed=source.allow_unsandboxed)


def files_of(config: list[Path] | None) -> "tuple[FileFound, ...]":
    """Return the named files, or else every place that is searched."""
    from quarterdeck.config.load.merge import load_found, load_named  # pydantic, which `ps` does without

    if config:
        return load_named(config, os.environ)
    try:
        cwd = Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}", "name a file with --config"
        ) from error
    return load_found(cwd, os.environ)


def user_file() -> Path:
    """Return the user's own file, which `serve` finds by itself."""
    return mcp_config_paths(Path.cwd(), os.environ)[1]


def print_troubles(troubles: Iterable[Trouble], *, stderr: bool = False) -> None:
    """Print each trouble once: file, row, reason, the configuration that runs meanwhile, and the fix."""
    for trouble in dict.fromkeys(troubles):
        print_line(f"configuration: {flat(trouble.message)}; {flat(trouble.meanwhile)}", "bold red", stderr=stderr)
        print_line(f"  fix: {trouble.remedy}", stderr=stderr)


def present_troubles(source: Source, of_files: tuple[Trouble, ...]) -> tuple[Trouble, ...]:
    """Return the troubles of the `serve` that runs this configuration, or `of_files` if none runs."""
    try:
        answer = ask_running(source, Ps()) if of_files else None
    except CommandError:
        answer = None  # this command's answer does not depend on it
    return answer.troubles if isinstance(answer, ServerList) else of_files
