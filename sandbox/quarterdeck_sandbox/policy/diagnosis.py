"""What this machine's sandboxes are worth: a line per mechanism, property and attack, with each gap's remedy.

`doctor.probe` finds the facts and `doctor.self_test` attacks a real sandbox; here they are judged. Remedies are exact
commands, chosen by what was found.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck_protocol.policy_values import NetworkMode, PolicyValues, Property, Tier
from quarterdeck_sandbox.program.launch import LaunchError

from .choice import choose
from .machine import CONTROLLERS, Machine
from .promises import SCOPES_ABI, PropertyFinding, Receipt, Situation, Strength, promise


class AttackOutcome(StrEnum):
    """The outcome of an attack."""

    HELD = "held"
    ESCAPED = "escaped"
    UNKNOWN = "unknown"  # it did not get as far as trying


class Attack(msgspec.Struct, frozen=True):
    """One attack of the self-test: its name, the property that it was against, and its outcome."""

    name: str
    against: Property
    outcome: AttackOutcome
    detail: str = ""


class SelfTest(msgspec.Struct, frozen=True):
    """The outcome of attacking a sandbox, under its `receipt`; `why` there was no sandbox to attack, else empty."""

    attacks: tuple[Attack, ...] = ()
    why: str = ""
    receipt: Receipt | None = None


class LineState(StrEnum):
    """The state of a line's subject."""

    OK = "ok"
    WEAKER = "weaker"  # kept with a gap, or by something weaker
    MISSING = "missing"


class DiagnosisLine(msgspec.Struct, frozen=True):
    """The finding on a mechanism, property or attack; `remedy` may have several lines, or be empty."""

    subject: str
    state: LineState
    what: str
    remedy: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """What this machine's sandboxes are worth."""

    tier: Tier  # how servers are confined here
    runs: bool  # whether servers of the preset `standard` start, in a sandbox that keeps its promises
    mechanisms: tuple[DiagnosisLine, ...]
    properties: tuple[DiagnosisLine, ...]  # the guarantees of `standard`, as observed where that was possible
    attacks: tuple[DiagnosisLine, ...]

    @property
    def exit_code(self) -> int:
        """0 if everything holds in full, 1 if something is weaker, 2 if servers cannot be run confined."""
        if not self.runs:
            return 2
        lines = (*self.mechanisms, *self.properties, *self.attacks)
        return int(any(line.state is not LineState.OK for line in lines))


STANDARD: Final = PolicyValues()  # the default policy; the self-test starts its attacks under it


def diagnose(machine: Machine, test: SelfTest) -> Diagnosis:
    """Judge the facts of `machine` and the attacks on a sandbox of it."""
    refusal = ""
    network = NetworkMode.INTERNET if machine.gives_internet else NetworkMode.FULL
    findings = promise(Situation(STANDARD, machine, machine.tier, network))
    try:
        choose(STANDARD, machine)
    except LaunchError as error:
        refusal = str(error)
    if test.receipt is not None and not refusal:
        findings = test.receipt.findings
    broken = test.why or any(
        attack.outcome is AttackOutcome.ESCAPED and findings[attack.against].strength is Strength.FULL
        for attack in test.attacks
    )
    return Diagnosis(
        tier=machine.tier,
        runs=not refusal and not broken,
        mechanisms=tuple(_mechanisms(machine)),
        properties=tuple(
            DiagnosisLine(name.value, _state(name, finding, machine.tier), finding.mechanism)
            for name, finding in findings.items()
            # A limit that `standard` does not set is no gap of the machine.
            if STANDARD.limits_set(name)
        ),
        attacks=tuple(_attacks(test, findings, machine.tier)),
    )


def _state(name: Property, finding: PropertyFinding, tier: Tier) -> LineState:
    # No machine keeps temporary files in full: that it is looked at is as good as it gets.
    if finding.strength is Strength.FULL or (name is Property.SCRATCH and finding.strength is Strength.PARTIAL):
        return LineState.OK
    # Where servers start confined, what one property lacks makes them weaker.
    return LineState.MISSING if finding.strength is Strength.NONE and tier is Tier.LIMITS else LineState.WEAKER


def _mechanisms(machine: Machine) -> Iterator[DiagnosisLine]:
    if machine.system != "linux":
        yield DiagnosisLine("system", LineState.MISSING, *(machine.lacks_gate or ("", "")))
        return
    where = f", in a container ({machine.container})" if machine.container else ""
    yield DiagnosisLine("system", LineState.OK, f"Linux {machine.kernel} on {machine.architecture}{where}")
    yield from _bubblewrap(machine)
    yield _landlock(machine)
    closed = "closed parts of writable paths"
    if machine.closes:
        yield DiagnosisLine(closed, LineState.OK, "by read-only mounts")
    else:
        what = "no mount namespace can be made: where configuration lies in a writable path, nothing starts"
        yield DiagnosisLine(closed, LineState.WEAKER, what, closing_remedy(machine))
    if machine.seccomp:
        yield DiagnosisLine("seccomp", LineState.OK, "a filter of system calls was loaded, and held")
    else:
        yield DiagnosisLine("seccomp", LineState.MISSING, "no filter can be loaded", seccomp_remedy(machine))
    if machine.lacks_gate:
        yield DiagnosisLine("gate", LineState.MISSING, *machine.lacks_gate)
    else:
        yield DiagnosisLine("gate", LineState.OK, "it runs")
    for controller in CONTROLLERS:
        subject = f"control group: {controller}"
        if place := machine.cgroups.controllers.get(controller):
            version = 1 if controller in machine.cgroups.legacy else 2
            yield DiagnosisLine(subject, LineState.OK, f"version {version}, in {place}")
        else:
            yield DiagnosisLine(subject, LineState.WEAKER, "not writable for us", cgroups_remedy(machine))
    yield _internet(machine)


def _bubblewrap(machine: Machine) -> Iterator[DiagnosisLine]:
    found = machine.bubblewrap
    if not found.works:
        what = f"{found.path} fails: {found.why}" if found.path else "not installed"
        if found.wheel and not found.version:
            what = f"not used: {found.why}"
        yield DiagnosisLine("bubblewrap", LineState.MISSING, what, bubblewrap_remedy(machine))
        return
    origin = f", from the wheel {found.wheel}" if found.wheel else ""
    yield DiagnosisLine("bubblewrap", LineState.OK, f"{found.path}, version {found.version}{origin}")
    if found.makes_network:
        yield DiagnosisLine("network namespace", LineState.OK, "made by bubblewrap")
    else:
        yield DiagnosisLine("network namespace", LineState.MISSING, found.why, bubblewrap_remedy(machine))
    if found.nests_safely:
        yield DiagnosisLine("mounts in writable paths", LineState.OK, "bubblewrap stays inside")
    else:
        what = 'bubblewrap follows links out of the sandbox (CVE-2026-87766): "hidden" is refused there'
        yield DiagnosisLine("mounts in writable paths", LineState.WEAKER, what, NEWER_BUBBLEWRAP)


def _landlock(machine: Machine) -> DiagnosisLine:
    abi, spare = machine.landlock_abi, machine.bubblewrap.works
    role = "not needed beside bubblewrap" if spare else "files"
    if not abi:
        state = LineState.OK if spare else LineState.MISSING
        return DiagnosisLine("landlock", state, f"none; {role}" if spare else "none", "" if spare else LANDLOCK)
    if abi < SCOPES_ABI and not spare:
        what, remedy = f"version {abi}: signals get through", "use Linux 6.12 or later, or install bubblewrap"
        return DiagnosisLine("landlock", LineState.WEAKER, what, remedy)
    if machine.why_no_broker and not spare:
        what = f"version {abi}: servers cannot change mode, owner and times even of their own files, as "
        return DiagnosisLine("landlock", LineState.WEAKER, what + machine.why_no_broker, bubblewrap_remedy(machine))
    return DiagnosisLine("landlock", LineState.OK, f"version {abi}; {role}" if spare else f"version {abi}")


def _internet(machine: Machine) -> DiagnosisLine:
    subject, helper = "internet without the host", machine.pasta or machine.slirp4netns
    if machine.gives_internet:
        return DiagnosisLine(subject, LineState.OK, helper)
    return DiagnosisLine(subject, LineState.WEAKER, machine.lacks_for_internet, internet_remedy(machine))


def _attacks(test: SelfTest, findings: Mapping[Property, PropertyFinding], tier: Tier) -> Iterator[DiagnosisLine]:
    if test.why:
        yield DiagnosisLine("self-test", LineState.MISSING, test.why, REPORT)
    for attack in test.attacks:
        subject = f"attack: {attack.name}"
        finding = findings[attack.against]
        match attack.outcome:
            case AttackOutcome.HELD:
                yield DiagnosisLine(subject, LineState.OK, attack.detail)
            case AttackOutcome.UNKNOWN:
                yield DiagnosisLine(subject, LineState.WEAKER, attack.detail, REPORT)
            case AttackOutcome.ESCAPED if finding.strength is Strength.FULL:
                yield DiagnosisLine(subject, LineState.MISSING, f"{attack.detail}, against {finding.mechanism}", REPORT)
            case AttackOutcome.ESCAPED:
                yield DiagnosisLine(subject, _state(attack.against, finding, tier), attack.detail)


INSTALL_BUBBLEWRAP: Final = "apt install bubblewrap   (or: dnf install bubblewrap, pacman -S bubblewrap)"

NEWER_BUBBLEWRAP: Final = (
    "install bubblewrap 0.12.0 or later, or your distribution's update for CVE-2026-87766; until then, hide no path "
    "inside a path that may be written"
)

LANDLOCK: Final = (
    "use Linux 5.13 or later, started with lsm=…,landlock (see /sys/kernel/security/lsm); or install bubblewrap"
)

REPORT: Final = "please report this, with the output of `quarterdeck doctor --json`"
APPARMOR: Final = """\
let bubblewrap make user namespaces (Ubuntu 24.04 and later ask for a profile); as root:
  cat > /etc/apparmor.d/bwrap <<'END'
  abi <abi/4.0>,
  include <tunables/global>
  profile bwrap {path} flags=(unconfined) {{
    userns,
    include if exists <local/bwrap>
  }}
  END
  apparmor_parser -r /etc/apparmor.d/bwrap"""

APPARMOR_OF_THE_WHEEL: Final = (
    "sudo apt install bubblewrap   (AppArmor lets only programs with a profile make user namespaces, and has none for "
    "the one of a wheel; then run quarterdeck doctor again)"
)

DOCKER: Final = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined{more} …   "
    "(the default profiles deny namespaces, and a fresh /proc)"
)

PODMAN: Final = (
    "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL{more} …   "
    "(the default profile denies a host name of one's own, and parts of /proc are hidden)"
)

KUBERNETES: Final = (
    "in the pod's securityContext: seccompProfile: {{type: Unconfined}}, appArmorProfile: {{type: Unconfined}}, "
    "procMount: Unmasked{more}"
)

_SYSCTLS: Final = {"kernel.unprivileged_userns_clone": "0", "user.max_user_namespaces": "0"}
"""Values under which no ordinary user can make a user namespace."""


def bubblewrap_remedy(machine: Machine) -> str:
    """Return the remedy where bubblewrap does not work, or not in full."""
    found = machine.bubblewrap
    if not found.path or (found.wheel and not found.version):
        return INSTALL_BUBBLEWRAP
    if "nknown option" in found.why:
        return "install a newer bubblewrap (0.8.0 or later)"
    if machine.container not in ("", "wsl"):
        return _container(machine)
    if machine.euid == 0:
        return "start it as an ordinary user, or as a root that may mount and make namespaces (CAP_SYS_ADMIN)"
    for name, closed in _SYSCTLS.items():
        if machine.sysctls.get(name) == closed:
            value = "1" if name.startswith("kernel") else "15000"
            return f"as root: sysctl -w {name}={value}   (to keep it: a line in /etc/sysctl.d/quarterdeck.conf)"
    if machine.sysctls.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return APPARMOR_OF_THE_WHEEL if found.wheel else APPARMOR.format(path=found.path)
    return f"see what {found.path} --unshare-all --unshare-user --ro-bind / / --proc /proc true says"


def closing_remedy(machine: Machine) -> str:
    """Return the remedy where no part of a writable folder can be closed: a mount namespace."""
    if machine.container not in ("", "wsl"):
        return _container(machine)
    return f"{bubblewrap_remedy(machine)}; until then, let nothing write a folder that holds configuration"


def seccomp_remedy(machine: Machine) -> str:
    """Return the remedy where no system call filter can be loaded."""
    if machine.architecture not in ("x86_64", "aarch64"):
        return "use a machine with x86-64 or aarch64: there is no filter for others"
    return "use a kernel with CONFIG_SECCOMP_FILTER, and a 64-bit Python"


def cgroups_remedy(machine: Machine) -> str:
    """Return the remedy where the kernel cannot keep the limits of a whole tree."""
    if machine.container not in ("", "wsl"):
        return _container_groups(machine)
    return "systemd-run --user --scope quarterdeck serve …   (where systemd keeps your session; else as root)"


def internet_remedy(machine: Machine) -> str:
    """Return the remedy where the network mode `internet` is unavailable."""
    found = machine.bubblewrap
    if not (found.works and found.makes_network):
        remedy = bubblewrap_remedy(machine)
        if remedy == INSTALL_BUBBLEWRAP and not (machine.pasta or machine.slirp4netns):
            # At once: half of it would ask for the other half.
            return "apt install bubblewrap slirp4netns   (or: dnf install …, pacman -S …)"
        return remedy
    if machine.uplink_why.startswith("/dev/net/tun"):
        if machine.container not in ("", "wsl"):
            return f"{_engine(machine)} run --device /dev/net/tun …, and on the host: chmod 0666 /dev/net/tun"
        return "as root: modprobe tun && chmod 0666 /dev/net/tun"
    if machine.uplink_why:
        return "install another helper: apt install passt slirp4netns"
    return "apt install passt   (or: apt install slirp4netns)"


def _container(machine: Machine) -> str:
    more = " --cap-add SYS_ADMIN" if machine.euid == 0 else ""
    if machine.container.startswith("kubernetes"):
        return KUBERNETES.format(more=", capabilities: {add: [SYS_ADMIN]}" if machine.euid == 0 else "")
    return (PODMAN if machine.container == "podman" else DOCKER).format(more=more)


def _container_groups(machine: Machine) -> str:
    if machine.container.startswith("kubernetes"):
        return "bound all servers together: resources: {limits: {memory: 4Gi, cpu: 2}} of their container"
    if machine.euid != 0:  # an engine gives its groups to root alone
        return f"bound all servers together: {_engine(machine)} run --memory 4g --pids-limit 2000 --cpus 2 …"
    if machine.container == "podman":
        return "podman run --security-opt unmask=/sys/fs/cgroup …   (control groups version 2)"
    return "docker run --security-opt writable-cgroups=true …   (Docker 28 or later, control groups version 2)"


def _engine(machine: Machine) -> str:
    return "podman" if machine.container == "podman" else "docker"
