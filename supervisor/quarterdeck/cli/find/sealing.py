"""Seal the packages of servers before they start, with what a person sees of it, and compare two seals."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from quarterdeck.cli.exits import CommandError, ExitCode, as_command_error
from quarterdeck.cli.output import print_line, waiting_for, warn
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.process import run
from quarterdeck.common.words import counted, flat, size
from quarterdeck.config.places.paths import seals_dir
from quarterdeck.config.settings import Settings
from quarterdeck.fleet.sealed_start import SealedStart
from quarterdeck.seals.install import Progress, seal
from quarterdeck.seals.install_sandbox import InstallSettings
from quarterdeck.seals.manifest import Changes, Package, SealError, compare
from quarterdeck.seals.request import PackageRequest
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck.trust.seals import as_faults, fault_of, sealed_start, unrun_scripts, wanted_package
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig

Scripts = Annotated[bool, Option(help="Run the install scripts of its packages, in the sandbox that installs them.")]

STEPS: Final = {
    "resolve": "looking for its versions",
    "fetch": "fetching",
    "install": "installing",
    "hash": "hashing",
}


def seal_of(
    config: ServerConfig, *, with_scripts: bool = False, is_shown: bool, allow_unsandboxed: bool
) -> Seal | None:
    """Return the seal of the package that a row asks for, made now if there is none; None if the row runs as it says.

    Raise CommandError if it cannot be sealed.
    """
    found = seal_all([config], with_scripts=with_scripts, is_shown=is_shown, allow_unsandboxed=allow_unsandboxed)
    result = found.get(config.id)
    if isinstance(result, SealError):
        fault = fault_of(result)
        raise CommandError(ExitCode.NOT_READY, f"{config.id}: {flat(fault.message)}", fault.remedy_for(config.id) or "")
    return result


def seal_all(
    configs: Sequence[ServerConfig],
    *,
    with_scripts: bool = False,
    is_shown: bool,
    allow_unsandboxed: bool,
    tell_end: Callable[[str, Seal | SealError], None] = lambda _server, _result: None,
) -> Mapping[str, Seal | SealError]:
    """Seal the packages that these rows ask for, several at once; return what became of each, by the server's id.

    On a terminal there is a row for each server that is not done; `tell_end` is told of each that is, and may print.
    """
    store = SealStore(seals_dir())
    settings = InstallSettings(os.environ, Path.home(), allow_unsandboxed=allow_unsandboxed)
    stdio = [config for config in configs if isinstance(config, StdioServerConfig)]
    wanted = {config.id: request for config in stdio if (request := wanted_package(config)) is not None}
    rows = dict.fromkeys(wanted, "waiting")
    found: dict[str, Seal | SealError] = {}

    with waiting_for("sealing packages", is_shown=is_shown) as show:

        def show_rows() -> None:
            wide = max(map(len, rows), default=0)
            show("sealing packages", *(f"{server:<{wide}}  {step}" for server, step in rows.items()))

        def tell(server: str, progress: Progress) -> None:
            part = f" {progress.done} of {progress.total}" if progress.total else ""
            rows[server] = STEPS.get(progress.step, progress.step) + part
            show_rows()

        async def make(server: str, request: PackageRequest) -> None:
            try:
                kept = await asyncio.to_thread(store.find, request.words, has_run_scripts=with_scripts)
                tell_of = partial(tell, server)
                found[server] = kept or await seal(request, store, settings, with_scripts=with_scripts, tell=tell_of)
            except SealError as error:
                found[server] = error
            del rows[server]
            show_rows()
            tell_end(server, found[server])

        async def make_all() -> None:
            async with asyncio.TaskGroup() as tasks:
                for each in wanted.items():
                    tasks.create_task(make(*each))

        show_rows()
        run(make_all)
    return found


def seal_configured(settings: Settings, ids: Collection[str] | None = None, *, is_shown: bool) -> dict[str, str]:
    """Seal the packages of configured servers, of those with these ids or of all, and say what became of each.

    Return the digests by server. A package that cannot be sealed is a warning: its server says the same when it starts.
    """

    def tell_end(server: str, result: Seal | SealError) -> None:
        if isinstance(result, SealError):
            warn(f"{server} is not sealed: {flat(result.message)}", result.remedy)
        elif is_shown:
            held = f"{counted(len(result.manifest.packages), 'package')}, {size(result.manifest.size)}"
            print_line(f"sealed {flat(result.title)} for {server}: {held}", "dim", stderr=True)
            for each in unrun_scripts(result):
                warn(f"{server}: an install script was not run: {flat(each)}")

    configs = [each for each in settings.servers if ids is None or each.id in ids]
    allow = settings.allow_unsandboxed
    found = seal_all(configs, is_shown=is_shown, allow_unsandboxed=allow, tell_end=tell_end)
    return {server: result.digest for server, result in found.items() if isinstance(result, Seal)}


def sealed_server(config: ServerConfig, *, is_shown: bool, allow_unsandboxed: bool) -> StdioServerConfig | None:
    """Return what is started of a row from the seal of its package; None if the row runs as it says.

    Raise CommandError if it cannot be sealed.
    """
    seal = seal_of(config, is_shown=is_shown, allow_unsandboxed=allow_unsandboxed)
    if seal is None:
        return None
    assert isinstance(config, StdioServerConfig)
    with as_command_error(SealError, remedy="install it", code=ExitCode.NOT_READY):
        return sealed_start(seal, config, os.environ).config


async def start_from(found: Seal | None, config: StdioServerConfig, _scope: str) -> SealedStart | None:
    """Return how a server is started from this seal, whatever the ledger says; None without one."""
    if found is None:
        return None
    with as_faults():
        return await asyncio.to_thread(sealed_start, found, config, os.environ)


def changes_since(before: str, now: Seal) -> Changes | None:
    """Return how the packages of a seal differ from those of the one with this digest; None if that is gone."""
    with suppress(SealError):
        old = SealStore(seals_dir()).open(before) if before else None
        return compare(old.manifest, now.manifest) if old is not None else None
    return None


MAX_SHOWN: Final = 20
"""Packages of one kind of change that are printed."""


def print_package_changes(changes: Changes) -> None:
    """Print which packages were added, removed and changed, and which bring install scripts."""
    for sign, style, packages in (("+", "green", changes.added), ("-", "red", changes.removed)):
        _print_some([f"  {sign} {_named(each)}" for each in packages], style)
    _print_some([f"  ~ {_named(old)} to {flat(new.version)}" for old, new in changes.changed], "yellow")
    _print_some([f"  install script: {_named(each)} ({flat(each.script)})" for each in changes.scripts], "bold red")


def _named(package: Package) -> str:
    return f"{flat(package.name)} {flat(package.version)}"


def _print_some(lines: Sequence[str], style: str) -> None:
    for line in lines[:MAX_SHOWN]:
        print_line(line, style)
    if len(lines) > MAX_SHOWN:
        print_line(f"  … and {len(lines) - MAX_SHOWN} more", style)
