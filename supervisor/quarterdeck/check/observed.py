"""What a server did in its world of decoys, what it would need in a real home, and which decoys it took.  Pure.

The values of calls are made up and lead to no decoy; a path that does is the server's own, also as a default in its
schema.  So nothing excuses an opened secret.  A document may be what a tool is for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from .decoys import READ_BY_RUNNERS, DecoyKind, Marks, granted_for
from .episode import NOT_REACHED, Did, Episode, Marked, Recording, Touches

MAX_TOUCHED: Final = 200
"""Paths of which something is told; secrets first."""

MAX_TOOLS: Final = 5
"""Tools that are named with one path."""

_CARRIERS: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Requests whose results may hold documents."""


@dataclass(frozen=True, slots=True)
class Touch:
    """Something that happened to one path, `~/…`; `kind` is None if it is no decoy.

    `tools` are those during whose calls it happened; empty if it happened only outside of calls.
    """

    path: str
    did: Did
    kind: DecoyKind | None
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskedHost:
    """A name that the server looked up, or the `host:port` that it dialled; `tools` as in `Touch`."""

    host: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """A grant that the server seems to need: `read` or `write` of `path`, for these tools."""

    key: str
    path: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """A decoy whose content the server sent, and where it was."""

    path: str
    carrier: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What a server did in its world.

    Attributes:
        touched: by path.
        needs: the grants that would let it do the same in a real home; never for a secret.
        taken: secrets that it sent anywhere, and documents that it sent elsewhere than in a result; also by a lookup.
        hosts: those that it asked for; where they cannot be recorded, by its own words.
        more: further events that were left out.
        is_complete: whether all of it was seen.
        unwatched: why only `taken` and `hosts` are known; empty if everything is.
    """

    touched: tuple[Touch, ...] = ()
    needs: tuple[Need, ...] = ()
    taken: tuple[Taken, ...] = ()
    hosts: tuple[AskedHost, ...] = ()
    more: int = 0
    is_complete: bool = True
    unwatched: str = ""


def observe(recording: Recording) -> Observed:
    """Return what a recorded server did with its decoys."""
    kinds = {decoy.path: decoy.kind for decoy in recording.decoys}
    tools: dict[tuple[str, Did], dict[str, None]] = {}
    all_touches = list(_touches(recording))
    for tool, touches in all_touches:
        for did, path in touches.seen:
            if tool or not recording.has_runner or path not in READ_BY_RUNNERS:
                tools.setdefault((path, did), {}).update({tool: None} if tool else {})
    ranked = sorted(tools, key=lambda key: (kinds.get(key[0]) is not DecoyKind.SECRET, key[0] not in kinds, key))
    kept, hosts = ranked[:MAX_TOUCHED], _hosts(recording)
    touched = [Touch(f"~/{path}", did, kinds.get(path), tuple(tools[path, did])[:MAX_TOOLS]) for path, did in kept]
    return Observed(
        touched=tuple(sorted(touched, key=lambda touch: touch.path)),
        needs=tuple(_needs(touched)),
        taken=tuple(dict.fromkeys(_taken(recording, kinds))),
        hosts=hosts[:MAX_TOUCHED],
        more=sum(touches.more for _, touches in all_touches) + len(ranked) - len(kept) + len(hosts[MAX_TOUCHED:]),
        is_complete=not any(touches.is_lossy for _, touches in all_touches),
        unwatched=recording.unwatched,
    )


def newly_done(before: Observed, after: Observed) -> tuple[str, ...]:
    """Return in words what a server did with its decoys, needs or asked for, and an earlier version of it did not."""
    known = frozenset(_deeds(before))
    return tuple(dict.fromkeys(deed for deed in _deeds(after) if deed not in known))


def _deeds(observed: Observed) -> Iterator[str]:
    yield from (f"{each.did} {each.path}" for each in observed.touched if each.kind is not None)
    yield from (f"needs to {each.key} {each.path}" for each in observed.needs)
    yield from (f"asked for {each.host}" for each in observed.hosts)


def _touches(recording: Recording) -> Iterator[tuple[str, Touches]]:
    for episode in recording.episodes:
        yield from (("", touches) for touches in episode.touches)
        yield from ((exchange.subject, exchange.touches) for exchange in episode.exchanges)


def _hosts(recording: Recording) -> tuple[AskedHost, ...]:
    asked: dict[str, dict[str, None]] = {host: {} for host in recording.hosts}
    for exchange in chain.from_iterable(episode.exchanges for episode in recording.episodes):
        for hint in exchange.outside:
            if hint.endswith(NOT_REACHED):
                tools = asked.setdefault(hint.removesuffix(NOT_REACHED), {})
                tools.update({exchange.subject: None} if exchange.subject else {})
    return tuple(AskedHost(host, tuple(tools)[:MAX_TOOLS]) for host, tools in asked.items())


def _needs(touched: list[Touch]) -> Iterator[Need]:
    needed: dict[tuple[str, str], dict[str, None]] = {}
    for touch in touched:
        if path := granted_for(touch.path.removeprefix("~/"), touch.kind):
            key = "read" if touch.did in (Did.OPENED, Did.LISTED) else "write"
            needed.setdefault((f"~/{path}", key), {}).update(dict.fromkeys(touch.tools))
    for (path, key), tools in sorted(needed.items()):
        if key == "write" or (path, "write") not in needed:
            yield Need(key, path, tuple(tools)[:MAX_TOOLS])


def _taken(recording: Recording, kinds: dict[str, DecoyKind]) -> Iterator[Taken]:
    for episode in recording.episodes:
        for marked in episode.marked:
            method, carrier = _carrier(episode, marked)
            if kinds[marked.decoy] is DecoyKind.SECRET or method not in _CARRIERS:
                yield Taken(f"~/{marked.decoy}", carrier)
    marks = Marks(recording.decoys)
    for host in recording.hosts:
        yield from (Taken(f"~/{path}", f"the name {host} that it asked for") for path in marks.found_in(host.encode()))


def _carrier(episode: Episode, marked: Marked) -> tuple[str, str]:
    """Return the method of the request that was answered with it, empty for none, and where it was in words."""
    if marked.in_stderr:
        return "", "its stderr"
    answered = next((each for each in episode.exchanges if each.request_id == marked.request_id), None)
    if answered is None or marked.request_id is None:
        return "", "a message that answers no request"
    return answered.method, f"the answer to {answered.method}" + (f" of {answered.subject}" if answered.subject else "")
