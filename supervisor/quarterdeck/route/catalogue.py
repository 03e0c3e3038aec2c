"""All that servers offer at one moment, under the names that clients know, and whose each thing is.  Pure.

A change of one server makes a new snapshot.  What did not change is the same object in both, so that a difference is
found by identity: to compare schemas that a server wrote takes time, and recursion, of its choosing.

Tools and prompts are called `server__name`, in a form that clients accept; URIs stay as they are, see `uri_routes`.
"""

import itertools
import logging
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, starmap
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.common.uri_routes import prefixed, scheme_of, split_prefixed
from quarterdeck.config.overrides import NO_OVERRIDES, GivenArgument, ServerOverrides
from quarterdeck_protocol.contract import LiveEndpoint, RemoteTool
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport, is_for_tasks_alone, without_task_support
from quarterdeck_protocol.names import QUALIFIER, RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import ToolDescriptor

from .overrides.published import publish_offers, publish_tools

MAX_PAST: Final = 4096
"""Aliases of tools that are not offered at the moment: a call still finds the server, which says that it is away."""

MAX_LOGGED: Final = 100
"""Aliases of one change that are logged each on a line of its own: a server may have any number of long names."""

BESIDE_TOOLS: Final = (Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES)

_NOTHING_GIVEN: Final[Mapping[str, GivenArgument]] = MappingProxyType({})

_log = logging.getLogger("quarterdeck.names")


class CalledTool(Struct, frozen=True, eq=False, gc=False):
    """A tool as calls of it need it; a server may have thousands, so that the collector is spared them.

    Attributes:
        server: the id of its server.
        key: what clients call it of that server.
        own: what the server calls it.
        given: values that its user gives for arguments.
        tasks: what of tasks its server has.
        may_hold: whether a call of it may have to wait for the end of a task.
    """

    server: str
    key: str
    own: str
    given: Mapping[str, GivenArgument]
    tasks: TaskSupport
    may_hold: bool


class ServerOffers(Struct, frozen=True, eq=False):
    """What one server offers, as its user has it shown.

    Attributes:
        overrides: what the user has shown otherwise.
        own_tools: the server's own, those that are trusted.
        own: its prompts, resources and templates, likewise.
        tools: as clients are shown them, under their qualified names.
        offers: the same of prompts, resources and templates.
        refused: by the server's own name why a tool is not shown that is not hidden.
        tasks: what of tasks it has.
        held: its own names of the tools that are called as tasks alone; None where any may be: it says so at a call.
        calls: what calls of `tools` need, by the qualified names.
    """

    id: str
    overrides: ServerOverrides = NO_OVERRIDES
    own_tools: tuple[RemoteTool, ...] = ()
    own: Mapping[Listing, tuple[Offered, ...]] = {}
    tools: tuple[ToolDescriptor, ...] = ()
    offers: Mapping[Listing, tuple[Offered, ...]] = {}
    refused: Mapping[str, str] = {}
    tasks: TaskSupport = NO_TASKS
    held: frozenset[str] | None = frozenset()
    calls: Mapping[str, CalledTool] = {}

    def called(self, key: str, own: str) -> CalledTool:
        """What a call needs of a tool that clients call `key`."""
        given = self.overrides.arguments.get(own, _NOTHING_GIVEN)
        may_hold = self.held is None or own in self.held
        return CalledTool(self.id, key, own, given, self.tasks, may_hold)


class Catalogue(Struct, frozen=True, eq=False):
    """A snapshot.

    Attributes:
        servers: in configuration order.
        alone: the id of the one server whose tools and prompts have their own names; empty for none.
        tools: under their qualified names.
        shown: the same under the names that clients know.
        aliases: the qualified names of those that are shown otherwise, by the names that clients know; of some past
            ones, too.
        lists: prompts, resources and templates as clients know them.
        owners: the same, by what clients know them by.
        schemes: of the URIs of each server that has resources or templates.
        fitting: the qualified names that are known to fit.
        budget: what the names that clients know keep to; None for any.
    """

    servers: Mapping[str, ServerOffers] = {}
    alone: str = ""
    tools: tuple[ToolDescriptor, ...] = ()
    shown: tuple[ToolDescriptor, ...] = ()
    aliases: Mapping[str, str] = {}
    lists: Mapping[Listing, tuple[Offered, ...]] = MappingProxyType(dict.fromkeys(BESIDE_TOOLS, ()))
    owners: Mapping[Listing, Mapping[str, Offered]] = MappingProxyType({listing: {} for listing in BESIDE_TOOLS})
    schemes: Mapping[str, frozenset[str]] = {}
    fitting: frozenset[str] = frozenset()
    budget: NameBudget | None = None

    def own(self, name: str) -> str:
        """The qualified name of the tool that clients call so."""
        return self.aliases.get(name, name)


NOTHING: Final = Catalogue()


def look(endpoint: LiveEndpoint, overrides: ServerOverrides, before: ServerOffers | None = None) -> ServerOffers:
    """What a server offers now; `before` itself where that is the same.

    Args:
        endpoint: the server.
        overrides: what of it is shown otherwise.
        before: what it offered at the last look.
    """
    server, tools, tasks = endpoint.config.id, endpoint.offered(), endpoint.task_support()
    own = {listing: endpoint.offers(listing) for listing in BESIDE_TOOLS}
    if before is None or before.overrides is not overrides:
        before = ServerOffers(server, overrides)
    has_tasks = tasks.is_for(is_modern=False)
    same_tools = tools is before.own_tools and has_tasks == before.tasks.is_for(is_modern=False)
    same_lists = [own[listing] is before.own.get(listing, ()) for listing in BESIDE_TOOLS]
    if same_tools and all(same_lists) and tasks == before.tasks:
        return before
    shown, refused = before.tools, before.refused
    names: Mapping[str, str] = {name: each.own for name, each in before.calls.items()}
    if not same_tools:
        published = publish_tools(tools, overrides)
        shown, refused = _shown_tools(published.tools, tools, before, has_tasks=has_tasks), published.refused
        names = published.own
    offers = {
        listing: before.offers.get(listing, ()) if is_same else publish_offers(listing, own[listing], overrides)
        for listing, is_same in zip(BESIDE_TOOLS, same_lists, strict=True)
    }
    found = ServerOffers(server, overrides, tools, own, shown, offers, refused, tasks, _held(tools, tasks))
    start = len(server) + len(QUALIFIER)
    calls = {name: found.called(name[start:], tool) for name, tool in names.items()}
    return msgspec.structs.replace(found, calls=calls)


def _shown_tools(
    published: Sequence[RemoteTool], own: Sequence[RemoteTool], before: ServerOffers, *, has_tasks: bool
) -> tuple[ToolDescriptor, ...]:
    """The tools of a server as clients are shown them: the very descriptors of before where its own are the same."""
    known: dict[str, ToolDescriptor] = {}
    if has_tasks == before.tasks.is_for(is_modern=False):
        same = {id(tool) for tool in before.own_tools} & {id(tool) for tool in own}
        names = {before.overrides.public(tool.ref.name) for tool in own if id(tool) in same}
        known = {each.name: each for each in before.tools if each.name.partition(QUALIFIER)[2] in names}
    return tuple(known.get(tool.descriptor.name) or _told(tool.descriptor, has_tasks=has_tasks) for tool in published)


def _told(shown: ToolDescriptor, *, has_tasks: bool) -> ToolDescriptor:
    if has_tasks or shown.definition is None:
        return shown
    # A client that believes it would ask for a task, and be answered without one.
    definition = without_task_support(shown.definition)
    return shown if definition is shown.definition else replace(shown, definition=definition)


def _held(tools: Iterable[RemoteTool], tasks: TaskSupport) -> frozenset[str] | None:
    if tasks.is_for(is_modern=True):
        return None
    offered = tools if tasks.is_for(is_modern=False) else ()
    return frozenset(each.ref.name for each in offered if is_for_tasks_alone(each.descriptor.definition or b""))


def merged(
    servers: Mapping[str, ServerOffers], before: Catalogue, *, alone: str = "", budget: NameBudget | None = None
) -> Catalogue:
    """The snapshot of these servers, in configuration order.

    Args:
        servers: what each offers.
        before: the last snapshot.
        alone: see `Catalogue`.
        budget: see `Catalogue`.
    """
    is_named_so = (alone, budget) == (before.alone, before.budget)
    tools = _same(itertools.chain.from_iterable(each.tools for each in servers.values()), before.tools)
    shown, aliases, fitting = before.shown, before.aliases, before.fitting
    if tools is not before.tools or not is_named_so:
        shown, aliases, fitting = _named_tools(tools, before, alone, budget)
    lists, owners = dict(before.lists), dict(before.owners)
    schemes = before.schemes
    for listing in BESIDE_TOOLS:
        rows = {server: each.offers.get(listing, ()) for server, each in servers.items()}
        known = {server: each.offers.get(listing, ()) for server, each in before.servers.items()}
        if is_named_so and list(rows) == list(known) and all(rows[server] is known[server] for server in rows):
            continue
        offered = list(itertools.chain.from_iterable(rows.values()))
        if listing is Listing.PROMPTS:
            found = _named_prompts(offered, alone, budget)
        else:
            found, schemes = _told_apart(listing, offered, before), _all_schemes(servers)
        if tuple(found) != lists[listing]:
            lists[listing] = tuple(found)
        owners[listing] = {each.public: each for each in found}
    return Catalogue(servers, alone, tools, shown, aliases, lists, owners, schemes, fitting, budget)


def calls_of(catalogue: Catalogue) -> dict[str, CalledTool]:
    """What calls of all tools need, by all names that clients may call them."""
    found: dict[str, CalledTool] = {}
    for each in catalogue.servers.values():
        found |= {call.key: call for call in each.calls.values()} if catalogue.alone else each.calls
    return found | {alias: found[name] for alias, name in catalogue.aliases.items() if name in found}


def difference(before: Catalogue, after: Catalogue) -> frozenset[Listing]:
    """The lists of which a client that may use everything sees another one."""
    changed = {listing for listing in BESIDE_TOOLS if before.lists[listing] is not after.lists[listing]}
    return frozenset(changed if are_same(before.shown, after.shown) else {Listing.TOOLS, *changed})


def are_same(tools: Sequence[ToolDescriptor], others: Sequence[ToolDescriptor]) -> bool:
    """Whether a client is shown the same of both."""
    if tools is others or len(tools) != len(others):
        return tools is others
    # Of one server's change nearly all are the very same: among thousands that is seen at once.
    return all(starmap(_is_same, compress(zip(tools, others, strict=True), map(operator.is_not, tools, others))))


def _is_same(tool: ToolDescriptor, other: ToolDescriptor) -> bool:
    # As bytes: to compare schemas that a server wrote takes time, and recursion, of its choosing.
    return tool.definition is not None and (tool.name, tool.definition) == (other.name, other.definition)


def _same(found: Iterable[ToolDescriptor], before: tuple[ToolDescriptor, ...]) -> tuple[ToolDescriptor, ...]:
    after = tuple(found)
    return before if len(after) == len(before) and all(map(operator.is_, after, before)) else after


# Names


def _named_tools(
    tools: tuple[ToolDescriptor, ...], before: Catalogue, alone: str, budget: NameBudget | None
) -> tuple[tuple[ToolDescriptor, ...], Mapping[str, str], frozenset[str]]:
    """The tools under the names that clients know, the aliases among these, and the names that fit."""
    plain = [tool.name.partition(QUALIFIER)[2] for tool in tools] if alone else [tool.name for tool in tools]
    fitting = before.fitting if budget == before.budget else frozenset[str]()
    if budget is not None:
        fitting = fitting | {name for name in plain if name not in fitting and budget.fits(name)}
    is_plain = budget is None or all(name in fitting for name in plain)
    if is_plain and not alone and not before.aliases:
        return tools, {}, fitting  # as it mostly is: no name has to be shortened, or was before
    names = dict(zip(plain, plain, strict=True)) if budget is None else public_names(plain, budget)
    known = {(each.name, id(tool)): each for tool, each in zip(before.tools, before.shown, strict=True)}
    shown = tuple(
        tool if tool.name == public else known.get((public, id(tool))) or replace(tool, name=public)
        for tool, public in zip(tools, (names[name] for name in plain), strict=True)
    )
    return (
        shown,
        _aliases({alias: name for name, alias in names.items() if name != alias}, before.aliases, names),
        fitting,
    )


def _aliases(present: dict[str, str], before: Mapping[str, str], names: Mapping[str, str]) -> Mapping[str, str]:
    """Whose the aliases are that are shown, and the latest that are not any more."""
    fresh = [(name, alias) for alias, name in present.items() if before.get(alias) != name]
    for name, alias in fresh[:MAX_LOGGED]:
        _log.info("the tool %s is shown to clients as %s", name, alias)
    if len(fresh) > MAX_LOGGED:
        _log.info("%d further tools are shown to clients under shorter names", len(fresh) - MAX_LOGGED)
    past = {alias: name for alias, name in before.items() if alias not in present and alias not in names}
    return dict(itertools.islice(past.items(), max(0, len(past) - MAX_PAST), None)) | present


def _named_prompts(rows: Sequence[Offered], alone: str, budget: NameBudget | None) -> list[Offered]:
    if alone:
        return [_as(row, row.key) for row in rows]
    qualified = [qualify_tool_name(RemoteToolRef(row.server, row.key)) for row in rows]
    names = public_names(qualified, budget) if budget is not None else {}
    return [_as(row, names.get(name, name)) for row, name in zip(rows, qualified, strict=True)]


def _told_apart(listing: Listing, rows: Sequence[Offered], before: Catalogue) -> list[Offered]:
    """Resources or templates, those of a URI that another server has under one that names their own."""
    shown: dict[str, Offered] = {}
    for row in rows:
        public = row.key
        if public in shown or split_prefixed(public) is not None:
            public = prefixed(row.server, row.key)
            if public not in before.owners[listing]:
                _log.info("%s: %s is another server's, too: of %s it is %s", listing, row.key, row.server, public)
        shown[public] = _as(row, public)
    return list(shown.values())


def _all_schemes(servers: Mapping[str, ServerOffers]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for listing in (Listing.RESOURCES, Listing.TEMPLATES):
        for server, each in servers.items():
            if rows := each.offers.get(listing, ()):
                found.setdefault(server, set()).update(scheme_of(row.key) for row in rows)
    return {server: frozenset(schemes) for server, schemes in found.items()}


def _as(row: Offered, public: str) -> Offered:
    return row if row.public == public else msgspec.structs.replace(row, public=public)
