"""What overrides and groups name that is not offered: each with the nearest name, for a slip is not seen else.  Pure.

What a server offers is known once it has listed it; of a server that has not, nothing is said to be a slip.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from quarterdeck.common.patterns import fits_any, may_fit_longer
from quarterdeck.common.tool_names import NATIVE_NAMES
from quarterdeck.config.groups import Group, Groups
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck_protocol.names import QUALIFIER, did_you_mean, nearest_tool
from quarterdeck_protocol.offers import Listing

Names = Mapping[Listing, Collection[str]]
"""What one server offers, by list; templates count with the resources."""


def unmet_by_overrides(own: Names, overrides: ServerOverrides) -> list[str]:
    """What the overrides of a server name that it does not offer, by its own names, a line each.

    A glob of URIs may be of resources that nobody lists, and is left to who wrote it.
    """
    tools = own.get(Listing.TOOLS, ())
    named = [*tools, *own.get(Listing.PROMPTS, ())]
    notes = [
        f"{key!r} names {name!r}, which it does not offer{did_you_mean(name, known)}"
        for key, names, known in (
            ("rename", overrides.rename, named),
            ("describe", overrides.describe, named),
            ("arguments", overrides.arguments, tools),
        )
        for name in names
        if name not in known
    ]
    offered = [*named, *own.get(Listing.RESOURCES, ())]
    unmet = (glob for glob in overrides.hide if ":" not in glob and not any(fits_any(each, [glob]) for each in offered))
    return [
        *notes,
        *(f"'hide' has {glob!r}, which fits nothing that it offers{_near(glob, offered)}" for glob in unmet),
    ]


def public_names(server: str, own: Names, overrides: ServerOverrides, *, are_hidden: bool = False) -> Names:
    """What a server offers, by the names that clients know: what they are shown of it, or what is hidden from them."""
    return {
        listing: [
            f"{server}{QUALIFIER}{overrides.public(name)}" for name in names if overrides.hides(name) is are_hidden
        ]
        for listing, names in own.items()
    }


def unmet_by_groups(groups: Groups, offered: Mapping[str, Names | None], hidden: Collection[str] = ()) -> list[str]:
    """What groups have in them that there is not, a line each.

    Args:
        groups: by their names.
        offered: by server, what clients are shown of it, with its server's id before each name; None where that is
            not known.
        hidden: what overrides hide of it, by the same names; a group that hides it once more is no slip.
    """
    return [
        f"the group {name!r} has {glob!r} in its {key!r}, which {why}"
        for name, group in groups.items()
        for key, glob, why in _unmet_by(group, offered, hidden)
    ]


def unlisted_servers(
    groups: Groups, overrides: Mapping[str, ServerOverrides], offered: Mapping[str, Names | None]
) -> list[str]:
    """The servers of which something is named, and it is not known whether they offer it."""
    globs = [glob for group in groups.values() for key in _LISTS for glob in getattr(group, key)]
    return [
        server
        for server, names in offered.items()
        if names is None and (overrides.get(server) or _may_be_of(globs, [server]))
    ]


_LISTS: Final[Mapping[str, tuple[Listing, ...]]] = {
    "tools": (Listing.TOOLS,),
    "prompts": (Listing.PROMPTS,),
    "resources": (Listing.RESOURCES,),
    "hide": (Listing.TOOLS, Listing.PROMPTS, Listing.RESOURCES),
}
"""Keys of a group whose globs are of names, and in which lists these are."""


def _unmet_by(
    group: Group, offered: Mapping[str, Names | None], hidden: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    for glob in group.servers:
        if not any(fits_any(server, [glob]) for server in offered):
            yield "servers", glob, f"is no server{did_you_mean(glob.strip('*'), offered)}"
    unlisted = [server for server, names in offered.items() if names is None]
    for key, listings in _LISTS.items():
        listed = [
            name for names in offered.values() if names for listing in listings for name in names.get(listing, ())
        ]
        known = [*listed, *(NATIVE_NAMES if Listing.TOOLS in listings else ())]
        met = [*known, *hidden] if key == "hide" else known
        for glob in getattr(group, key):
            # Nobody lists every URI.
            unknown = list(offered) if ":" in glob else unlisted
            if any(fits_any(name, [glob]) for name in met) or _may_be_of([glob], unknown):
                continue
            server, is_servers, _ = glob.partition(QUALIFIER)
            if is_servers and not any(fits_any(each, [server]) for each in offered):
                yield key, glob, f"is of no server{did_you_mean(server.strip('*'), offered)}"
            else:
                yield key, glob, f"fits nothing that is offered{_near(glob, known)}"


def _may_be_of(globs: Sequence[str], servers: Collection[str]) -> bool:
    """Whether one of these could fit something of one of these servers."""
    return any(may_fit_longer(f"{server}{QUALIFIER}", glob) for server in servers for glob in globs)


def _near(glob: str, known: Collection[str]) -> str:
    return did_you_mean(glob.strip("*"), known, near=nearest_tool)
