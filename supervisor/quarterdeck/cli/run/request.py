"""What a `serve` is asked for, by its options; and what the files, or a `run`, say of it, here or in the daemon."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quarterdeck.cli.exits import UsageError
from quarterdeck.cli.source import NO_CONFIGURATION, OR_NATIVE, Source
from quarterdeck.common.working_directory import working_directory
from quarterdeck.daemon.messages import NativeRequest, ServeRequest
from quarterdeck_protocol.names import did_you_mean

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings


def make_request(
    source: Source,
    *,
    name_budget: int | None,
    settle_s: float | None,
    lock_file: Path | None,
    portable_schemas: bool,
    groups: tuple[str, ...] = (),
    search: bool = False,
) -> ServeRequest:
    """Return the request of these options, with absolute paths; raise CommandError if there is no such native tool."""
    asked = None
    if (native := source.native) is not None:
        profile = native.to_wish().profile
        asked = NativeRequest(profile, str(native.workspace), tuple(map(str, native.allow_dirs)), native.tools)
    return ServeRequest(
        cwd=working_directory(),
        config=tuple(os.path.abspath(path) for path in source.config),
        native=asked,
        name_budget=name_budget,
        settle_s=settle_s,
        lock_file=os.path.abspath(lock_file) if lock_file is not None else None,
        portable_schemas=portable_schemas,
        allow_unsandboxed=source.allow_unsandboxed,
        groups=groups,
        search=search,
    )


def read_request(request: ServeRequest, environ: Mapping[str, str], before: "Settings | None" = None) -> "Settings":
    """Return the settings of the files as they are now; `before` are the running ones, see `Settings.load`.

    Raise ConfigFileError if nothing of a named file can be used.
    """
    from quarterdeck.common.tool_names import NameBudget, Profile
    from quarterdeck.config.native_tools import NativeWish
    from quarterdeck.config.settings import Settings

    if request.command is not None:
        from .command_server import command_settings

        return command_settings(request.command, request, environ)
    native, cwd = None, Path(request.cwd)
    if (asked := request.native) is not None:
        native = NativeWish(
            profile=Profile(asked.profile),
            workspace=Path(asked.workspace),
            allow_dirs=tuple(map(Path, asked.allow_dirs)),
            tools=asked.tools,
        )
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
