"""Compare a changed row with the one before: by which keys it asks for more.  Pure.

`config.load.project.excesses` compares a project's row with the defaults.  Paths are compared as they are written;
where links lead does not count.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, TrustMode
from quarterdeck_protocol.policy import Network, NetworkMode, Preset, SandboxPolicy, Tier
from quarterdeck_sandbox import is_within_any

_NETWORKS: Final = {
    NetworkMode.NONE: 0,
    NetworkMode.LOOPBACK: 1,
    NetworkMode.INTERNET: 2,
    None: 3,  # the default: the internet, and everything where a machine cannot give just that
    NetworkMode.FULL: 4,
}

_TIERS: Final = {Tier.BUBBLEWRAP: 0, Tier.LANDLOCK: 1, Tier.LIMITS: 2}

_TRUST: Final = {TrustMode.STRICT: 0, TrustMode.BASELINE: 1, TrustMode.OPEN: 2}


def loosens(old: ServerConfig | None, new: ServerConfig) -> tuple[str, ...]:
    """The keys by which a server's row asks for more than before.

    Args:
        old: the row before; None for a row that is new, which is held against the defaults.
        new: the row now.
    """
    return tuple(dict.fromkeys(_of_servers(old, new)))


def loosens_native(old: NativeSettings, new: NativeSettings) -> tuple[str, ...]:
    """The same of the key `native`."""
    found = [f"sandbox.{key}" for key in _of_policies(old.sandbox or SandboxPolicy(), new.sandbox or SandboxPolicy())]
    before, after = old.webfetch or FetchPolicy(), new.webfetch or FetchPolicy()
    if not set(after.allow) <= set(before.allow):
        found.append("webfetch.allow")
    if after.proxy != before.proxy:
        found.append("webfetch.proxy")  # every request goes through it
    return tuple(dict.fromkeys(found))


def _of_servers(old: ServerConfig | None, new: ServerConfig) -> Iterator[str]:
    if _TRUST[new.trust] > _TRUST[old.trust if old is not None else TrustMode.BASELINE]:
        yield "trust"
    if not isinstance(new, StdioServerConfig):
        return
    before = old if isinstance(old, StdioServerConfig) else None
    yield from _of_policies(before.sandbox if before is not None else SandboxPolicy(), new.sandbox)
    if not set(new.inherit_env) <= set(before.inherit_env if before is not None else ()):
        yield "inherit_env"


def _of_policies(old: SandboxPolicy, new: SandboxPolicy) -> Iterator[str]:
    if not old.confines_files:
        return  # it confined nothing: there is nothing beyond that
    if new.preset is Preset.TRUSTED:
        yield "preset"
    if _is_wider(old.network, new.network):
        yield "network"
    if not _are_within(new.read, (*old.read, *old.write)):
        yield "read"
    if not _are_within(new.write, old.write):
        yield "write"
    if not _are_within(old.hidden, new.hidden):
        yield "hidden"
    for key in ("grants", "environment"):
        if not set(getattr(new, key)) <= set(getattr(old, key)):
            yield key
    if not set(old.require) <= set(new.require):
        yield "require"
    if _TIERS[new.minimum] > _TIERS[old.minimum]:
        yield "minimum"
    for key, most in dict(old.limits).items():
        value = getattr(new.limits, key)
        if most is not None and (value is None or value > most):
            yield f"limits.{key}"


def _is_wider(old: Network | None, new: Network | None) -> bool:
    if old is NetworkMode.FULL:
        return False
    if isinstance(new, tuple):
        # A name may lead into the user's own network, which the internet is not: only what was listed is no more.
        return not isinstance(old, tuple) or not set(new) <= set(old)
    if isinstance(old, tuple):
        return _NETWORKS[new] > _NETWORKS[NetworkMode.LOOPBACK]
    return _NETWORKS[new] > _NETWORKS[old]


def _are_within(paths: Iterable[str], places: tuple[str, ...]) -> bool:
    return all(is_within_any(path, places) for path in paths)
