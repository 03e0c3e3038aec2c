"""What this machine's own interfaces are called."""

import socket
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from quarterdeck_protocol.addresses import AddressKind, kind_of_address, parse_address
from quarterdeck_sandbox.network.namespace import own_addresses


def test_loopback_is_among_them() -> None:
    """Nothing would be known as this machine's own."""
    assert parse_address("127.0.0.1") in own_addresses()


def test_addresses_of_both_families_are_read_and_no_hardware_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service could be reached by an address that was left out; a hardware address of eight bytes reads as IPv6."""
    found = {
        "eth0": [(socket.AF_INET, "93.184.216.34"), (socket.AF_INET6, "fe80::1%eth0"), (17, "00:11:22:33:44:55:66:77")],
        "ib0": [(socket.AF_INET6, "2606:2800:220:1::9")],
    }

    def interfaces() -> dict[str, Any]:
        return {
            name: [SimpleNamespace(family=family, address=address) for family, address in addresses]
            for name, addresses in found.items()
        }

    monkeypatch.setattr(psutil, "net_if_addrs", interfaces)
    own = own_addresses()
    assert own == set(map(parse_address, ("93.184.216.34", "fe80::1", "2606:2800:220:1::9")))
    assert kind_of_address(parse_address("93.184.216.34"), own) is AddressKind.OWN
