"""Read the settings of a request to serve, here or in the daemon."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quarterdeck.cli.exits import UsageError
from quarterdeck.cli.options import native_wish
from quarterdeck.cli.source import NO_CONFIGURATION, OR_NATIVE
from quarterdeck.daemon.messages import ServeRequest
from quarterdeck_protocol.names import did_you_mean

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings
    from quarterdeck.trust.lock.lockfile import DeckLock


def read_lock(file: str | None) -> "DeckLock | None":
    """Return what a `deck.lock` allows; None without one. Raise CommandError if it cannot be used."""
    if file is None:
        return None
    from quarterdeck.cli.trust.lock import locked  # much of trust, which few need

    return locked(Path(file))


def read_request(request: ServeRequest, environ: Mapping[str, str], before: "Settings | None" = None) -> "Settings":
    """Return the settings of the files as they are now; `before` are the running ones, see `Settings.load`.

    Raise ConfigFileError if nothing of a named file can be used.
    """
    from quarterdeck.common.tool_names import NameBudget
    from quarterdeck.config.settings import Settings

    if request.command is not None:
        from .command_server import command_settings

        return command_settings(request.command, request, environ)
    native, cwd = native_wish(request.native) if request.native is not None else None, Path(request.cwd)
    if request.config or native is not None:
        settings = Settings.load(map(Path, request.config), environ, native=native, cwd=cwd, before=before)
    else:
        settings = Settings.discover(cwd, environ, before=before)
    locks: tuple[str, ...] = ()
    if request.lock_file is not None:
        from quarterdeck.trust.lock.ignores import IGNORE_NAME

        locks = (request.lock_file, str(Path(request.lock_file).with_name(IGNORE_NAME)))
    return replace(
        settings,
        allow_unsandboxed=request.allow_unsandboxed,
        names=NameBudget(request.name_budget) if request.name_budget is not None else None,
        settle_s=settings.settle_s if request.settle_s is None else request.settle_s,
        trusted=(*settings.trusted, *locks),
    )


def read_found(request: ServeRequest, environ: Mapping[str, str], before: "Settings | None" = None) -> "Settings":
    """Return the settings for a request to serve now, see `read_request`.

    Raise CommandError if nothing is named or found, or if there is no such group.
    """
    settings = read_request(request, environ, before)
    if not (settings.config_paths or settings.command) and settings.native is None:
        raise UsageError("no configuration is given, and none is found", NO_CONFIGURATION + OR_NATIVE)
    for name in request.groups:
        if name not in settings.groups:
            raise no_group(name, settings.groups)
    return settings


def no_group(name: str, known: Collection[str]) -> UsageError:
    """Return the error of a group that is not defined."""
    hint = did_you_mean(name, known, "groups")
    return UsageError(f"there is no group {name!r}{hint}", "define it under 'groups' of your configuration")
