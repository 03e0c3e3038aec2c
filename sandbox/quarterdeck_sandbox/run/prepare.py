"""Lay out once what concerns all servers of one program under one policy, and hand it to each worker ready.

    supervisor   `Preparer.prepare`: laid out for the first server, kept by value; for the next its own is put in
    worker       `Prepared.confinement_for`: its observations are checked; then it is what `confine` would make

Each worker checks every path that decided anything, in its own process, right before its server starts, and compiles
the confinement itself if one has changed.  So a server that is replaced, a secret that appears or a link that is turned
costs one slow start, and `forget` has the next ones laid out again.

A layout holds no directory of one server except its home and its place for temporary files, and nothing that was read
within two seconds of its last change (`observed_files`).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import PolicyValues
from quarterdeck_sandbox.observed_files import Observations, observing
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.mounts import Places, is_within
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan, plan_launch
from quarterdeck_sandbox.view.layout import require_visible
from quarterdeck_sandbox.view.secret_paths import PathRules

from .confine import Requester, lay_out, own, sharable

MAX_KEPT: Final = 256  # layouts, of some 40 KB each; the oldest goes first


class Prepared(msgspec.Struct, frozen=True):
    """A confinement that rests on `observations`; its plan lacks what its worker knows: arguments and environment."""

    confinement: Confinement
    observations: Observations

    def confinement_for(self, plan: LaunchPlan) -> Confinement:
        """Return the confinement of `plan`, from which this was made; check the observations first."""
        view, laid = self.confinement.view, self.confinement.plan
        plan = LaunchPlan(laid.program, plan.argv, {**plan.env, **view.env}, plan.cwd)
        return replace(self.confinement, plan=plan)


class _Layout(msgspec.Struct, frozen=True):
    confinement: Confinement
    observations: Observations
    places: Places


class Preparer:
    """Prepares servers' confinements.  Blocking, without a lock: call it in one thread."""

    def __init__(self) -> None:
        self._layouts: dict[Any, _Layout] = {}

    def forget(self) -> None:
        """Drop all layouts: a worker found a change."""
        self._layouts.clear()

    def prepare(
        self,
        command: str,
        args: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        policy: PolicyValues,
        requester: Requester,
    ) -> Prepared | None:
        """Return what confines this server; None if its worker must find out.  An empty `cwd` is its home."""
        places = requester.places
        plan = LaunchPlan(command, (command, *args), env, cwd or str(places.home))
        try:
            layout = self._layout(plan, cwd, policy, requester)
            if layout is None:
                return None
            confinement = own(layout.confinement, plan, layout.places, places)
            with observing() as seen:
                require_visible(confinement.view, plan, PathRules.of(policy, places))
        except (LaunchError, OSError, ValueError):
            return None  # the worker will say it
        if not seen.is_settled:
            return None
        observations = _merged(_moved(layout.observations, layout.places, places), seen)
        bare = LaunchPlan(confinement.plan.program, (), {}, confinement.plan.cwd)
        return Prepared(replace(confinement, plan=bare), observations)

    def _layout(self, plan: LaunchPlan, cwd: str, policy: PolicyValues, requester: Requester) -> _Layout | None:
        key = _key(plan, cwd, policy, requester)
        layout = self._layouts.get(key)
        if layout is None:
            with observing() as seen:
                found = plan_launch(plan.program, plan.argv[1:], plan.env, plan.cwd)
                confinement = lay_out(found, policy, requester)
            if not seen.is_settled:
                return None
            layout = _Layout(confinement, seen, requester.places)
            if not _names_own(layout):
                for oldest in list(islice(self._layouts, max(0, len(self._layouts) + 1 - MAX_KEPT))):
                    del self._layouts[oldest]
                self._layouts[key] = layout
        return layout


def _key(plan: LaunchPlan, cwd: str, policy: PolicyValues, requester: Requester) -> object:
    """Return all that `plan_launch` and `lay_out` read, except for the filesystem and the two places."""
    shared, places = sharable(plan), requester.places
    return (
        (shared.program, shared.argv, frozenset(shared.env.items()), cwd, policy),
        (str(places.user_home), places.private, places.protected, frozenset(requester.environ.items())),
        # A machine holds dictionaries; there is one in a process.
        (id(requester.machine), requester.allow_unsandboxed, requester.open_port),
    )


def _own_paths(places: Places) -> tuple[str, ...]:
    """Return the paths of one server's places and of the folders around them, in the same order for each server."""
    home, tmp = str(places.home), str(places.tmp)
    found = (home, tmp, os.path.realpath(home), os.path.realpath(tmp))
    return (*found, *map(os.path.dirname, found))


def _names_own(layout: _Layout) -> bool:
    """Return whether something of this server is in it, or decided something, so that no other can use it."""
    known, seen = _own_paths(layout.places), layout.observations
    own_, around = known[:4], set(known)
    looked = {*seen.glances, *seen.accesses}
    if any(path not in around and any(is_within(path, place) for place in own_) for path in looked):
        return True
    if any(is_within(path, place) for path in seen.stamps for place in known[4:]):
        return True
    return any(f"{place}/" in f"{text}/" for text in _texts(layout) for place in known)


def _texts(layout: _Layout) -> Iterator[str]:
    confinement, places = layout.confinement, layout.places
    mine = {str(places.home), str(places.tmp)}
    for mount in confinement.view.mounts:
        if mount.target not in mine:
            yield from (mount.target, mount.source)
    yield from (value for name, value in confinement.view.env.items() if name not in {"HOME", "TMPDIR"})
    yield from (confinement.plan.program, *confinement.view.shown, *confinement.view.closed)
    yield from (*confinement.gaps, *confinement.secrets)


def _moved(seen: Observations, laid_out: Places, places: Places) -> Observations:
    """Return the observations with another server's places: their owners are settled at its start."""
    was = dict(zip(_own_paths(laid_out), _own_paths(places), strict=True))
    return Observations(
        glances={was.get(path, path): glance for path, glance in seen.glances.items()},
        statuses={path: status for path, status in seen.statuses.items() if path not in was},
        stamps=seen.stamps,
        accesses={was.get(path, path): asked for path, asked in seen.accesses.items()},
    )


def _merged(one: Observations, other: Observations) -> Observations:
    return Observations(
        glances=one.glances | other.glances,
        statuses=one.statuses | other.statuses,
        stamps=one.stamps | other.stamps,
        accesses={
            path: one.accesses.get(path, {}) | other.accesses.get(path, {}) for path in (*one.accesses, *other.accesses)
        },
    )
