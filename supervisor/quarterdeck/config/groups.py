"""Groups: named parts of what is offered, of which a door is shown one or several.

    {"groups": {"review": {"servers": ["github"], "tools": ["fs__read_*", "grep"], "hide": ["github__delete_*"]}}}

A pattern is a glob, of names as clients see them: `server__tool`, `server__prompt`, `server__uri`, and a native tool's
own name.  Pure.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from quarterdeck.common.patterns import fits_any, may_fit, may_fit_longer, surely_fits
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.policy import FrozenModel

MAX_NAME_CHARS: Final = 64

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Part of a URL's path, and of command lines."""

_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Group(FrozenModel):
    """What one group has: all of these together, but for what is hidden.

    Attributes:
        servers: globs of servers' ids; all that these offer.
        tools: globs of tools, native ones included.
        prompts: globs of prompts.
        resources: globs of resources and templates, by their URIs behind `server__`.
        hide: globs of whatever is left out of all that.
    """

    servers: tuple[_Pattern, ...] = ()
    tools: tuple[_Pattern, ...] = ()
    prompts: tuple[_Pattern, ...] = ()
    resources: tuple[_Pattern, ...] = ()
    hide: tuple[_Pattern, ...] = Field(default=())

    def has(self, name: str, listing: Listing = Listing.TOOLS) -> bool:
        """Return whether the entry of this name, in that list, belongs to the group."""
        server, is_servers, _ = name.partition(QUALIFIER)
        patterns = {Listing.TOOLS: self.tools, Listing.PROMPTS: self.prompts}.get(listing, self.resources)
        is_in = (bool(is_servers) and fits_any(server, self.servers)) or surely_fits(name, patterns)
        return is_in and not may_fit(name, self.hide)

    def has_some_of(self, server: str) -> bool:
        """Return whether this server could have an entry that belongs to the group."""
        patterns = (*self.tools, *self.prompts, *self.resources)
        return fits_any(server, self.servers) or any(may_fit_longer(f"{server}{QUALIFIER}", each) for each in patterns)


Groups = Mapping[str, Group]


def is_group_name(text: str) -> bool:
    """Return whether a group may have this name."""
    return _NAME.fullmatch(text) is not None
