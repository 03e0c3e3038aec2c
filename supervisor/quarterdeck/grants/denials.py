"""Propose the narrowest grants for what the sandbox denied to a server's calls.

What a server names may be an attacker's choice: a proposal is one path that exists, with its evidence, never collapsed
with others into a folder above them.  What `needs` and the sandbox never offer is no proposal.  Only looks.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Final

import msgspec

from quarterdeck.config.allow_paths import places_of
from quarterdeck.config.places.paths import seals_dir
from quarterdeck.grants.needs import Need, client_in, clients_by_file
from quarterdeck_protocol.addresses import is_whole_name, parse_destination
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox import RequiredPath, is_within, why_not_granted

MAX_PROPOSALS: Final = 30
"""More would hide the ones that matter."""

MAX_TOOLS: Final = 5
"""Of one proposal."""


class DeniedCall(msgspec.Struct, frozen=True):
    """One call, as the ledger has it; `denied` is `read` or `write` and a path, or `network` and a `host:port`."""

    at: str
    tool: str
    client: str
    denied: str


class Proposal(msgspec.Struct, frozen=True):
    """A grant with the calls that it would have served.

    Attributes:
        key: `read`, `write` or `network`.
        path: what it grants; a `host:port` of the network.
        real: where that leads; it may have links in it.
        count: the calls that were denied it.
        tools: the tools that were called, those of the last calls first.
        example: the last call.
        is_default: whether a yes to all gives it.
    """

    key: str
    path: str
    real: str
    count: int
    tools: tuple[str, ...]
    first: str
    last: str
    example: DeniedCall
    remark: str = ""
    is_default: bool = True

    @property
    def need(self) -> Need:
        """The same as what a server needs."""
        return Need(self.key, self.path, f"denied to {self.example.tool}", self.remark, is_default=self.is_default)


class Proposals(msgspec.Struct, frozen=True):
    """The proposals, why other denied paths are none, and the number of further paths, which were not looked at."""

    found: tuple[Proposal, ...] = ()
    refused: tuple[str, ...] = ()
    more: int = 0


def objection_to(
    config: StdioServerConfig, home: Path, tmp: Path, environ: Mapping[str, str]
) -> Callable[[RequiredPath], str]:
    """Return what tells why a path may not be proposed for a server with these directories; empty if it may be."""
    places, policy = places_of(home, tmp, Path(config.cwd or home), environ), config.sandbox.values
    clients = clients_by_file()
    seals = os.path.realpath(seals_dir())

    def objection(need: RequiredPath) -> str:
        real = os.path.realpath(need.path)
        if is_within(real, seals) or is_within(seals, real):
            return "quarterdeck keeps sealed packages there, which nothing may change"
        client = client_in(need.path, clients)
        return f"{client} keeps its settings there" if client else why_not_granted(need, policy, places)

    return objection


def propose(
    calls: Iterable[DeniedCall],
    policy: SandboxPolicy,
    writing: Iterable[str],
    objection: Callable[[RequiredPath], str],
) -> Proposals:
    """Return what the denied calls, the last one first, would have needed that `policy` still does not give.

    `writing` are the tools that change something; `objection` returns why a path may not be granted, else nothing.
    """
    tools, grouped = frozenset(writing), dict[tuple[str, str], list[DeniedCall]]()
    given = {"read": frozenset(policy.read + policy.write), "write": frozenset(policy.write)}
    for call in calls:
        key, _, path = call.denied.partition(" ")
        if key == "network":
            if isinstance(policy.network, tuple) and path not in policy.network and _is_host(path):
                grouped.setdefault((key, path), []).append(call)
            continue
        if key not in {"read", "write"} or path != os.path.normpath(path) or not os.path.isabs(path):
            continue
        key = "write" if call.tool in tools else key
        if path not in given[key] and given[key].isdisjoint(map(str, PurePath(path).parents)):
            grouped.setdefault((key, path), []).append(call)
    ranked = sorted(grouped, key=lambda each: -len(grouped[each]))
    found, refused = dict[tuple[str, str], Proposal](), list[str]()
    for key, path in ranked[:MAX_PROPOSALS]:
        if key == "network":
            found[key, path] = _host(path, grouped[key, path])
            continue
        proposal = _proposal(key, path, grouped[key, path])
        if why := objection(RequiredPath(key, proposal.path)):
            refused.append(f"{proposal.path} is not proposed: {why}")
            continue
        other = found.get((key, proposal.path))
        found[key, proposal.path] = _together(other, proposal) if other is not None else proposal
    return Proposals(
        tuple(found.values()), tuple(refused), len(ranked) - MAX_PROPOSALS if ranked[MAX_PROPOSALS:] else 0
    )


def _proposal(key: str, denied: str, calls: list[DeniedCall]) -> Proposal:
    """Return the proposal for a path; one that is gone has the nearest folder that is there in its place."""
    path = denied
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    real, is_default = os.path.realpath(path), True
    remark = f"for {denied}, which is gone" if path != denied else ""
    if real != path:
        # Whoever can put a link there could have something else granted than what was denied.
        remark, is_default = f"leads to {real}", not os.path.islink(path)
    return Proposal(key, path, real, len(calls), _tools(calls), calls[-1].at, calls[0].at, calls[0], remark, is_default)


def _is_host(entry: str) -> bool:
    """Return whether an entry is a whole name and a port, as a list of hosts has them; a worker wrote it."""
    try:
        host, _ = found = parse_destination(entry)
    except ValueError:
        return False
    return str(found) == entry and is_whole_name(host)


def _host(entry: str, calls: list[DeniedCall]) -> Proposal:
    """Return the proposal of a host, which a yes to all does not give: an attacker could have it named."""
    remark, last = "only the server's words name it", calls[0]
    return Proposal("network", entry, entry, len(calls), _tools(calls), calls[-1].at, last.at, last, remark, False)  # noqa: FBT003


def _tools(calls: Iterable[DeniedCall]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(call.tool for call in calls))[:MAX_TOOLS]


def _together(one: Proposal, other: Proposal) -> Proposal:
    """Return the proposal of one path for the calls of both."""
    later = max(one, other, key=lambda each: each.last)
    return msgspec.structs.replace(
        later,
        count=one.count + other.count,
        tools=tuple(dict.fromkeys((*later.tools, *one.tools, *other.tools)))[:MAX_TOOLS],
        first=min(one.first, other.first),
        remark=later.remark or one.remark or other.remark,
    )
