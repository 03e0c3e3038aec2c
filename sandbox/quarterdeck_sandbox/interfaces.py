"""Read the addresses of this machine's own network interfaces."""

import socket

import psutil

from quarterdeck_protocol.addresses import Address, parse_address


def own_addresses() -> frozenset[Address]:
    """Every address that an interface has now, loopback's included: what listens on all addresses listens there too.

    Asked anew for each judgement, for interfaces come and go; it takes a fraction of a millisecond.
    """
    return frozenset(
        parse_address(one.address)
        for interface in psutil.net_if_addrs().values()
        for one in interface
        if one.family in (socket.AF_INET, socket.AF_INET6)
    )
