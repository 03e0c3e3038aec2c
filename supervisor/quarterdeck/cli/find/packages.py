"""The packages of configured servers, and the latest version of each, by whoever lists them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quarterdeck.cli.exits import CommandError
from quarterdeck.cli.process import run
from quarterdeck.cli.source import Source

from .search import open_catalog

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings
    from quarterdeck.registry.pins import Pin
    from quarterdeck.registry.versions import VersionError


@dataclass(frozen=True, slots=True)
class Packaged:
    """A server that starts a package.

    Attributes:
        listed: what the MCP registry calls it; empty for a row that did not come from there.
        installed: the version that ran last; empty when that is not known.
    """

    server: str
    pin: "Pin"
    listed: str
    installed: str


def packaged(settings: "Settings") -> list[Packaged]:
    """The servers of a configuration that start a package, in its order."""
    found = (package_of(settings, server) for server in settings.ids)
    return [each for each in found if each is not None]


def package_of(settings: "Settings", server: str) -> Packaged | None:
    """The package of one server; None where it starts none that has versions."""
    from quarterdeck.registry.pins import pin_of
    from quarterdeck.trust.package import resolved_package

    row = settings.origin(server).row
    command, args, listed = row.get("command"), row.get("args"), row.get("registry")
    if not isinstance(command, str) or not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        return None
    pin = pin_of(command, args)
    if pin is None:
        return None
    _, _, installed = (resolved_package(command, args, settings.paths_of(server).home) or "").partition(" ")
    return Packaged(server, pin, listed if isinstance(listed, str) else "", installed.partition(" ")[0])


def latest(source: Source, registry: str | None, found: Sequence[Packaged]) -> "list[str | VersionError]":
    """The latest version of each, or why it is not known: by the MCP registry for rows that came from there."""
    from quarterdeck.registry.versions import VersionError, latest_versions

    others = iter(latest_versions(each.pin for each in found if not each.listed))
    told: list[str | VersionError] = []
    for each in found:
        if not each.listed:
            told.append(next(others))
            continue
        try:
            told.append(_listed(source, registry, each))
        except (CommandError, VersionError) as error:
            told.append(VersionError(error.message, error.remedy))
    return told


def _listed(source: Source, registry: str | None, each: Packaged) -> str:
    """The version of the package that the MCP registry names."""
    from quarterdeck.registry.versions import VersionError

    from .search import registry_errors

    catalog = open_catalog(source, registry)
    with registry_errors():
        entry = run(lambda: catalog.find(each.listed))
    if entry is None or entry.status == "deleted":
        raise VersionError(
            f"{catalog.shown} does not list {each.listed} any more",
            "look whether you still want it, or take the key registry out of its row",
        )
    kind = each.pin.index.lower()
    packages = [one for one in entry.server.packages if one.registry_type == kind and each.pin.is_of(one.identifier)]
    version = packages[0].version if packages else ""
    if not version:
        raise VersionError(
            f"{each.listed} names another package now than {each.pin.name}",
            f"look at it anew: quarterdeck remove {each.server}, then quarterdeck add {each.listed}",
        )
    return version
