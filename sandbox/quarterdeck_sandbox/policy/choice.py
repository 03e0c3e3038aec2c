"""Choose how a policy is enforced on a machine, or refuse with what to do about it.

Above: `confine` compiles the choice.  What a policy says outright is given or refused; only where it leaves the choice
(the network of `standard`, the tier above its `minimum`) may it start weaker, and then `gaps` says so.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from quarterdeck_protocol.policy_values import Network, NetworkMode, PolicyValues, Preset, Property, Tier
from quarterdeck_sandbox.program.launch import refusal

from .host_names import routes_of
from .machine import CONTROLLER_OF, NOT_USED, Machine
from .promises import SOCKET_GRANTS, PropertyFinding, Situation, Strength, promise

WEAKEST_FIRST: Final = (Tier.LIMITS, Tier.LANDLOCK, Tier.BUBBLEWRAP)

INTENDED: Final = (Property.FILESYSTEM, Property.NETWORK, Property.PROCESSES, Property.SYSCALLS, Property.TREE_DEATH)
"""A policy that confines anything wants these in full.  Limits may be kept by looking now and then."""


class Choice(Situation, frozen=True, kw_only=True):
    """How a policy will be enforced."""

    findings: Mapping[Property, PropertyFinding]  # every property, as promised
    gaps: tuple[str, ...]  # one line for each way in which this is weaker than the policy intends, with the remedy


def choose(
    policy: PolicyValues,
    machine: Machine,
    *,
    allow_unsandboxed: bool = False,
    stays_root: bool = False,
    open_port: int | None = None,
) -> Choice:
    """Choose the strongest tier that the machine gives; a trusted process gets limits and a reaper, and runs as us.

    With `allow_unsandboxed` a minimum of `landlock`, the default, does not count; `bubblewrap` does.  At `open_port` a
    deck of ours on this machine's loopback asks for no token and must not be reached; 0: not known yet, None: no such
    deck. Raise LaunchError `sandbox_refused`, with the remedy, for a requirement, minimum or explicit setting that
    cannot be met.
    """
    if machine.lacks_gate:
        raise refusal("; ".join(machine.lacks_gate))
    tier = _choose_tier(policy, machine, allow_unsandboxed)
    if policy.hidden and tier is not Tier.BUBBLEWRAP:
        raise refusal(f'"hidden" needs bubblewrap, as nothing else can take back a part: {_get_bubblewrap(machine)}')
    situation = Situation(policy, machine, tier, _choose_network(policy, machine, tier), stays_root)
    if open_port is not None and reaches(situation.network, open_port):
        raise refusal(
            "its network leads to this deck, which asks for no token, so that it could call every tool: "
            f"start `serve` without --no-token, or {_keep_from_host(policy, machine)}"
        )
    if situation.sockets_lead_out:
        named = ", ".join(f'"{grant}"' for grant in policy.grants if grant in SOCKET_GRANTS)
        raise refusal(
            f'"grants": [{named}] would open every Unix socket of this machine, of which many act outside of any '
            f"sandbox: before Linux 7.1 Landlock cannot tell them apart; {_get_bubblewrap(machine)}, or take it out"
        )
    findings = promise(situation)
    for name in policy.require:
        if findings[name].strength is not Strength.FULL:
            raise refusal(
                f"the policy requires {name.value!r}, but this machine gives {findings[name].strength} "
                f'({findings[name].mechanism}): {_remedy(name, situation)}, or take it out of "require"'
            )
    gaps = tuple(_gaps(situation, findings))
    return Choice(policy, machine, tier, situation.network, stays_root, findings=findings, gaps=gaps)


def _choose_tier(policy: PolicyValues, machine: Machine, allow_unsandboxed: bool) -> Tier:
    if not policy.confines_files:
        return Tier.LIMITS
    tier, minimum = machine.tier, policy.minimum
    if allow_unsandboxed and minimum is Tier.LANDLOCK:
        minimum = Tier.LIMITS
    if WEAKEST_FIRST.index(tier) < WEAKEST_FIRST.index(minimum):
        anyway = '"preset": "standard"' if policy.preset is Preset.STRICT else f'"minimum": "{tier}"'
        anyway = f"use {anyway} to start weaker"
        if minimum is Tier.LANDLOCK:
            anyway += ", or --allow-unsandboxed to start with limits alone"
        raise refusal(
            f"the policy needs {minimum} and this machine gives {tier}: {_get_bubblewrap(machine)}, or {anyway}"
        )
    return tier


def _choose_network(policy: PolicyValues, machine: Machine, tier: Tier) -> Network:
    wanted = policy.network
    can_separate = tier is Tier.BUBBLEWRAP and machine.bubblewrap.makes_network
    has_internet = tier is Tier.BUBBLEWRAP and machine.gives_internet
    match wanted:
        case None:
            return NetworkMode.INTERNET if has_internet else NetworkMode.FULL
        case NetworkMode.FULL:
            given = True
        case NetworkMode.NONE:
            given = can_separate or machine.seccomp
        case NetworkMode.INTERNET:
            given = has_internet
        case _:
            given = can_separate
    if not given:
        named = repr(str(wanted)) if isinstance(wanted, NetworkMode) else "of listed hosts"
        remedy = _get_internet(machine) if wanted is NetworkMode.INTERNET else _get_network(machine)
        raise refusal(f'the network {named} cannot be had here: {remedy}, or use "network": "full" to leave it open')
    return wanted


def reaches(network: Network, port: int) -> bool:
    """Return whether a process with this network can connect to a port of this machine's loopback."""
    if isinstance(network, NetworkMode):
        return network is NetworkMode.FULL
    return any(route.port == port and route.is_loopback for route in routes_of(network))


def _keep_from_host(policy: PolicyValues, machine: Machine) -> str:
    if not policy.confines_files:
        return 'use "preset": "standard"'
    if isinstance(policy.network, tuple):
        return 'take it out of "network"'
    if machine.gives_internet:
        return 'use "network": "internet"'
    return f'use "network": "none" (for the internet, {_get_internet(machine)})'


def _gaps(situation: Situation, findings: Mapping[Property, PropertyFinding]) -> Iterator[str]:
    policy = situation.policy
    for name, finding in findings.items():
        if name is Property.NETWORK and policy.network is NetworkMode.FULL:
            continue
        if name in INTENDED:
            weaker = policy.confines_files and finding.strength is not Strength.FULL
        else:
            weaker = policy.limits_set(name) and finding.strength is Strength.NONE
        if weaker:
            yield f"{name}: {finding.mechanism}; {_remedy(name, situation)}"


def _remedy(name: Property, at: Situation) -> str:
    machine = at.machine
    if name in CONTROLLER_OF and CONTROLLER_OF[name] not in machine.cgroups.controllers:
        return "start quarterdeck where it may make control groups (see `quarterdeck doctor`)"
    if not at.policy.confines_files:
        return 'use "preset": "standard"'
    match name:
        case Property.NETWORK if at.network is NetworkMode.FULL:
            return _get_internet(machine)
        case Property.NETWORK if at.filtered:
            return _get_network(machine)
        case Property.NETWORK | Property.SYSCALLS if not machine.seccomp:
            return "filters need Linux with seccomp, on x86-64 or aarch64"
        case Property.SCRATCH:
            return "nothing keeps it in full"
        case _:
            return _get_bubblewrap(machine)


def get_closing(machine: Machine) -> str:
    """Return the remedy where no part of a writable folder can be closed."""
    if machine.tier is not Tier.BUBBLEWRAP:
        return _get_bubblewrap(machine)
    return "let quarterdeck make mount namespaces (see `quarterdeck doctor`)"


def _get_bubblewrap(machine: Machine) -> str:
    if machine.bubblewrap.why == NOT_USED:
        return "ask for no weaker tier"
    if machine.bubblewrap.wheel and not machine.bubblewrap.version:
        return f"install bubblewrap ({machine.bubblewrap.why})"
    if machine.bubblewrap.why:
        return f"make bubblewrap work ({machine.bubblewrap.why}; see `quarterdeck doctor`)"
    return "install bubblewrap (apt install bubblewrap)"


def _get_network(machine: Machine) -> str:
    if machine.bubblewrap.works:
        return "let bubblewrap make network namespaces (see `quarterdeck doctor`)"
    return _get_bubblewrap(machine)


def _get_internet(machine: Machine) -> str:
    if not (machine.bubblewrap.path or machine.bubblewrap.why or machine.pasta or machine.slirp4netns):
        return "install bubblewrap and slirp4netns (apt install bubblewrap slirp4netns)"  # at once, as in doctor
    if not (machine.bubblewrap.works and machine.bubblewrap.makes_network):
        return _get_network(machine)
    if machine.uplink_why:
        return f"make pasta or slirp4netns work ({machine.lacks_for_internet}; see `quarterdeck doctor`)"
    return "install pasta or slirp4netns (apt install passt)"
