"""Changes to a network, as a shell and `ip` are told them."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from quarterdeck_protocol.addresses import parse_address
from quarterdeck_sandbox.network.changes import (
    AddAddress,
    AddNeighbour,
    AddPolicy,
    AddRoute,
    AskNobody,
    NetworkChange,
    Raise,
    Refuse,
    SetMtu,
    Setting,
    ip_batch,
    ip_command,
    shell_script,
)

NEEDED = Setting("/proc/sys/net/a", "0")
WISHED = Setting("/proc/sys/net/b", "1", needed=False)
HERE = IPv4Address("10.0.2.100")


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (NEEDED, "echo 0 >/proc/sys/net/a || exit 1"),
        (WISHED, "echo 1 2>/dev/null >/proc/sys/net/b"),
        (SetMtu("tap0", 1500), "link set tap0 addrgenmode none mtu 1500"),
        (Raise("tap0"), "link set tap0 up"),
        (AddAddress("lo", parse_address("fd00::5")), "address add fd00::5/128 dev lo"),
        (AddAddress("tap0", HERE), "address add 10.0.2.100/32 dev tap0"),
        (AskNobody("tap0"), "ntable change name arp_cache dev tap0 mcast_probes 0 ucast_probes 0 app_probes 0"),
        (
            AddNeighbour("tap0", IPv4Address("10.0.2.2"), b"\x52\x55\x0a\x00\x02\x02"),
            "neighbour replace 10.0.2.2 lladdr 52:55:0a:00:02:02 dev tap0 nud permanent",
        ),
        (
            AddRoute(IPv4Network("10.0.2.2"), "tap0", HERE),
            "route add 10.0.2.2/32 dev tap0 scope link src 10.0.2.100",
        ),
        (
            AddRoute(IPv4Network("0.0.0.0/0"), "tap0", HERE, IPv4Address("10.0.2.2")),
            "route add 0.0.0.0/0 via 10.0.2.2 dev tap0 src 10.0.2.100",
        ),
        (Refuse(IPv4Network("10.0.0.0/8")), "route add unreachable 10.0.0.0/8"),
        (
            AddPolicy(IPv4Network("10.0.2.3"), 1, allows=True, protocol="udp", port=53),
            "xfrm policy add dst 10.0.2.3/32 proto udp dport 53 dir out priority 1 action allow",
        ),
        (
            AddPolicy(IPv4Network("10.0.0.0/8"), 2, allows=False),
            "xfrm policy add dst 10.0.0.0/8 dir out priority 2 action block",
        ),
    ],
)
def test_each_change_is_a_command(change: NetworkChange, command: str) -> None:
    """A network would be another one where there is no compiled gate; and no failure could be told by its words."""
    assert ip_command(change) == command


def test_settings_are_set_by_the_shell_and_all_else_by_ip() -> None:
    """Files below /proc/sys cannot be set by `ip`, and routes not by a shell."""
    changes = (NEEDED, Raise("lo"), WISHED, Raise("tap0"))
    assert shell_script(changes) == f'{ip_command(NEEDED)}; {ip_command(WISHED)}; exec "$0" -batch -'
    assert ip_batch(changes) == "link set lo up\nlink set tap0 up\n"


def test_settings_alone_take_no_ip() -> None:
    """A port below 1024 could not be listened on where `ip` is not installed."""
    assert shell_script((NEEDED,)) == ip_command(NEEDED)
    assert ip_batch((NEEDED,)) == ""
