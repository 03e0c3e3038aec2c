"""What to do about each gap of a machine: exact commands, chosen by what was found.  Pure."""

from typing import Final

from quarterdeck_sandbox.machine import Machine

INSTALL_BUBBLEWRAP: Final = "apt install bubblewrap   (or: dnf install bubblewrap, pacman -S bubblewrap)"

INSTALL_BOTH: Final = "apt install bubblewrap slirp4netns   (or: dnf install …, pacman -S …)"

NEWER_BUBBLEWRAP: Final = (
    "install bubblewrap 0.12.0 or later, or your distribution's update for CVE-2026-87766; until then, hide no path "
    "inside a path that may be written"
)

OLD_BUBBLEWRAP: Final = "install a newer bubblewrap (0.8.0 or later)"

OTHER_SYSTEM: Final = (
    'run it on Linux, or in a Linux virtual machine; with limits only: --allow-unsandboxed or "minimum": "limits"'
)

LANDLOCK: Final = (
    "use Linux 5.13 or later, started with lsm=…,landlock (see /sys/kernel/security/lsm); or install bubblewrap"
)

LANDLOCK_SCOPES: Final = "use Linux 6.12 or later, or install bubblewrap"

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

DOCKER: Final = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined{more} …   "
    "(podman alike; the default profiles deny namespaces, and a fresh /proc)"
)

KUBERNETES: Final = (
    "in the pod's securityContext: seccompProfile: {{type: Unconfined}}, appArmorProfile: {{type: Unconfined}}, "
    "procMount: Unmasked{more}"
)

_SYSCTLS: Final = {
    "kernel.unprivileged_userns_clone": "0",
    "user.max_user_namespaces": "0",
}
"""Settings under which no ordinary user can make a user namespace."""


def bubblewrap(machine: Machine) -> str:
    """What makes it work, or work in full."""
    found = machine.bubblewrap
    if not found.path:
        return INSTALL_BUBBLEWRAP
    if "nknown option" in found.why:
        return OLD_BUBBLEWRAP
    if machine.container not in ("", "wsl"):
        return _container(machine)
    if machine.euid == 0:
        return "start it as an ordinary user, or as a root that may mount and make namespaces (CAP_SYS_ADMIN)"
    for name, closed in _SYSCTLS.items():
        if machine.sysctls.get(name) == closed:
            value = "1" if name.startswith("kernel") else "15000"
            return f"as root: sysctl -w {name}={value}   (to keep it: a line in /etc/sysctl.d/quarterdeck.conf)"
    if machine.sysctls.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return APPARMOR.format(path=found.path)
    return f"see what {found.path} --unshare-all --unshare-user --ro-bind / / --proc /proc true says"


def closing(machine: Machine) -> str:
    """What lets a part of a folder be closed that may be written: a mount namespace, as bubblewrap makes them."""
    if machine.container not in ("", "wsl"):
        return _container(machine)
    return f"{bubblewrap(machine)}; until then, let nothing write a folder that holds configuration"


def seccomp(machine: Machine) -> str:
    """What lets filters be loaded."""
    if machine.architecture not in ("x86_64", "aarch64"):
        return "use a machine with x86-64 or aarch64: there is no filter for others"
    return "use a kernel with CONFIG_SECCOMP_FILTER, and a 64-bit Python"


def cgroups(machine: Machine) -> str:
    """What lets the kernel keep the limits of a whole tree."""
    if machine.container not in ("", "wsl"):
        return "mount the control groups writable (podman run --cgroups=split; docker run --privileged)"
    return "systemd-run --user --scope quarterdeck serve …   (where systemd keeps your session; else as root)"


def internet(machine: Machine) -> str:
    """What gives the network mode `internet`."""
    found = machine.bubblewrap
    if not (found.works and found.makes_network):
        remedy = bubblewrap(machine)
        if remedy == INSTALL_BUBBLEWRAP and not (machine.pasta or machine.slirp4netns):
            return INSTALL_BOTH  # at once: half of it would ask for the other half
        return remedy
    if machine.uplink_why.startswith("/dev/net/tun"):
        if machine.container not in ("", "wsl"):
            return "docker run --device /dev/net/tun …, and chmod 0666 /dev/net/tun"
        return "as root: modprobe tun && chmod 0666 /dev/net/tun"
    if machine.uplink_why:
        return "install another helper: apt install passt slirp4netns"
    if not (machine.pasta or machine.slirp4netns):
        return "apt install passt   (or: apt install slirp4netns)"
    return "apt install util-linux iproute2"


def _container(machine: Machine) -> str:
    more = " --cap-add SYS_ADMIN" if machine.euid == 0 else ""
    if machine.container.startswith("kubernetes"):
        return KUBERNETES.format(more=", capabilities: {add: [SYS_ADMIN]}" if machine.euid == 0 else "")
    return DOCKER.format(more=more)
