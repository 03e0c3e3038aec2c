"""Which loopback address stands for which host."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_sandbox.policy.host_names import NO_RESOLVER, Route, hosts_text, routes_of

NETWORK = IPv4Network("127.64.0.0/10")
HOSTS = st.one_of(st.just("localhost"), st.from_regex(r"[a-z][a-z0-9]{0,6}(\.[a-z]{2,5}){0,2}", fullmatch=True))
ENTRIES = st.lists(st.tuples(HOSTS, st.integers(1, 65535)), min_size=1, max_size=64)


def test_the_ports_of_one_host_share_its_address() -> None:
    """A program that resolves once and dials two ports would find one of them refused."""
    assert routes_of(("a.example:443", "b.example:5432", "A.example:80", "a.example:443")) == (
        Route("a.example", 443, "127.64.0.1"),
        Route("b.example", 5432, "127.64.0.2"),
        Route("a.example", 80, "127.64.0.1"),
    )


def test_localhost_stays_where_every_program_looks_for_it() -> None:
    """Many programs never look `localhost` up, and would miss a listener elsewhere."""
    assert routes_of(("db.example:5432", "localhost:8080")) == (
        Route("db.example", 5432, "127.64.0.1"),
        Route("localhost", 8080, "127.0.0.1"),
    )


def test_a_listed_address_stands_for_itself() -> None:
    """A program that was told an address would dial it in vain, or be led to another entry's host."""
    routes = routes_of(("10.0.0.5:443", "a.example:1", "[fd00::5]:443", "127.64.0.1:1", "127.0.0.1:80", "localhost:80"))
    assert routes == (
        Route("10.0.0.5", 443, "10.0.0.5"),
        Route("a.example", 1, "127.64.0.2"),
        Route("fd00::5", 443, "fd00::5"),
        Route("127.64.0.1", 1, "127.64.0.1"),
        Route("127.0.0.1", 80, "127.0.0.1"),
    )
    assert [route.needs_address for route in routes] == [True, False, True, False, False]
    assert hosts_text(routes, "x") == "127.0.0.1 localhost x\n::1 ip6-localhost ip6-loopback\n127.64.0.2 a.example\n"
    assert str(routes[2]) == "[fd00::5]:443"


@pytest.mark.parametrize("mode", [None, *NetworkMode])
def test_a_mode_has_no_routes(mode: NetworkMode | None) -> None:
    """A server with the whole internet would be led to listeners that do not exist."""
    assert routes_of(mode) == ()


def test_the_hosts_file_names_each_host_once() -> None:
    """A name with two lines would resolve to two addresses, or in some libraries to neither."""
    routes = routes_of(("a.example:443", "localhost:1", "a.example:80", "b.example:1"))
    assert hosts_text(routes, "sandbox") == (
        "127.0.0.1 localhost sandbox\n::1 ip6-localhost ip6-loopback\n127.64.0.1 a.example\n127.64.0.2 b.example\n"
    )


def test_no_resolver_is_named() -> None:
    """A name that is not listed would be asked of somebody."""
    assert all(line.startswith("#") for line in NO_RESOLVER.splitlines())


@given(ENTRIES)
def test_routes_are_one_for_each_pair_and_addresses_one_for_each_host(entries: list[tuple[str, int]]) -> None:
    """Two hosts behind one address would receive each other's connections."""
    routes = routes_of(tuple(f"{host}:{port}" for host, port in entries))
    assert [(route.host, route.port) for route in routes] == list(dict.fromkeys(entries))
    addresses = {route.host: route.address for route in routes}
    assert all(route.address == addresses[route.host] for route in routes)
    assert len(set(addresses.values())) == len(addresses)
    for host, address in addresses.items():
        assert address == "127.0.0.1" if host == "localhost" else IPv4Address(address) in NETWORK
