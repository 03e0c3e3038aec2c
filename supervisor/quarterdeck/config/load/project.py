"""Refuse what a project's file may not say: a looser sandbox than the default, the user's variables, secrets and files.

Such a file is untrusted.  Its rows never start unapproved; what is refused here cannot be approved either.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck_protocol.configs import AskMode, ServerConfig, StdioServerConfig, TrustMode
from quarterdeck_protocol.policy import Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import MAX_SEAL_BYTES, NetworkMode, Preset, Tier

from .problems import Problem, at

ALLOW_KEY: Final = "allow_project_env"
"""The top-level key of a user's file with the variables that projects may expand and pass on."""

_TIGHT: Final = frozenset({None, NetworkMode.NONE, NetworkMode.LOOPBACK, NetworkMode.INTERNET})
"""None is the default itself.  A list is not allowed: a name may lead into the user's own network."""

_OWN_FILE: Final = "write the row into a file of your own if you want it"


class ProjectBounds(msgspec.Struct, frozen=True):
    """How far a project's file reaches: its directory (absolute, without links) and the variables open to it.

    `root` is None where nothing may count as the project's; `trust` is that of rows that do not say `strict`
    themselves.
    """

    root: str | None
    allowed_env: frozenset[str] = frozenset()
    trust: TrustMode = TrustMode.BASELINE

    def holds(self, place: str) -> bool:
        """Return whether `place`, absolute and without links, is in the project."""
        return self.root is not None and (place == self.root or place.startswith(f"{self.root}/"))


def project_root(cwd: Path, own: tuple[Path, ...]) -> str | None:
    """Return the project of the working directory `cwd`; None where it holds one of the user's `own` directories.

    Clients start programs in the root or in the home directory: not everything in there is one project's.
    """
    root = os.path.realpath(cwd)
    inside = ProjectBounds(root.rstrip("/"))
    return None if any(inside.holds(os.path.realpath(place)) for place in own) else root


def excesses(config: ServerConfig, bounds: ProjectBounds, location: str) -> tuple[Problem, ...]:
    """Return all that the row of a project's file wants beyond the default."""
    asks = [Problem(at(location, "ask"), f"a project's file may not say 'allow': {_OWN_FILE}")]
    asks = asks if config.ask is AskMode.ALLOW else []
    if not isinstance(config, StdioServerConfig):
        return tuple(asks)
    if not config.seal:
        asks.append(Problem(at(location, "seal"), f"a project's file may not say false: {_OWN_FILE}"))
    if config.max_seal_bytes > MAX_SEAL_BYTES:
        asks.append(Problem(at(location, "max_seal_bytes"), f"a project's file may not raise it: {_OWN_FILE}"))
    found = [
        Problem(at(location, "inherit_env", index), closed_variable(name), "unset_variable")
        for index, name in enumerate(config.inherit_env)
        if name not in bounds.allowed_env
    ]
    return (*asks, *found, *_loosened(config.sandbox, bounds, at(location, "sandbox")))


def strictest(written: object, bounds: ProjectBounds) -> TrustMode:
    """Return the trust of a row that says `written`."""
    return TrustMode.STRICT if written == TrustMode.STRICT else bounds.trust


def _loosened(policy: SandboxPolicy, bounds: ProjectBounds, location: str) -> Iterator[Problem]:
    if policy.preset is Preset.TRUSTED:
        yield Problem(at(location, "preset"), f"a project's file may not say 'trusted': {_OWN_FILE}")
    elif not isinstance(policy.network, NetworkMode | None) or policy.network not in _TIGHT:
        yield Problem(at(location, "network"), "a project's file may say only 'none', 'loopback' or 'internet'")
    for key in ("read", "write"):
        for index, path in enumerate(getattr(policy, key)):
            if not bounds.holds(os.path.realpath(path)):
                yield Problem(at(location, key, index), f"a project's file may grant only what is in it: {_OWN_FILE}")
    if policy.grants:
        yield Problem(at(location, "grants"), f"a project's file may not use grants: {_OWN_FILE}")
    for index, name in enumerate(policy.environment):
        if name not in bounds.allowed_env:
            yield Problem(at(location, "environment", index), closed_variable(name), "unset_variable")
    if policy.preset is not Preset.TRUSTED:  # else these follow from it
        if policy.minimum is Tier.LIMITS:
            yield Problem(at(location, "minimum"), f"a project's file may not go below {Tier.LANDLOCK.value!r}")
        yield from _raised(policy.limits, at(location, "limits"))


def _raised(limits: Limits, location: str) -> Iterator[Problem]:
    default: Mapping[str, float | None] = dict(Limits())
    for key, most in default.items():
        value = getattr(limits, key)
        if most is not None and (value is None or value > most):
            yield Problem(at(location, key), f"a project's file may not raise the default, {most:.15g}")


def closed_variable(name: str) -> str:
    """Say why a project's file may not use a variable, and what to do."""
    return (
        f"the variable {name[:64]!r} is not open to a project's file: "
        f"list it in '{ALLOW_KEY}' of a configuration of your own"
    )
