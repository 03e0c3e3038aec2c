"""What kind of place an address is."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck_protocol import addresses

EDGES = [
    ip_address(number) if net.version == 4 else IPv6Address(number)
    for table in addresses._TABLES.values()
    for net, _ in table
    for edge in (int(net.network_address), int(net.broadcast_address))
    for number in (edge - 1, edge, edge + 1)
    if 0 <= number < 1 << net.max_prefixlen
]

ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.sampled_from(EDGES))


PLACES = {
    addresses.AddressKind.INTERNET: (
        "93.184.216.34 2606:2800:220:1:248:1893:25c8:1946 172.32.0.1 168.63.129.17 ::ffff:93.184.216.34 "
        "64:ff9b::93.184.216.34"
    ),
    addresses.AddressKind.UNSPECIFIED: "0.0.0.0 0.1.2.3 ::",
    addresses.AddressKind.LOOPBACK: "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 64:ff9b::127.0.0.1",
    addresses.AddressKind.PRIVATE: "10.0.0.1 172.16.0.1 192.168.255.255 fc00::1 fec0::1",
    addresses.AddressKind.LINK_LOCAL: "169.254.1.1 fe80::1",
    addresses.AddressKind.METADATA: (
        "169.254.169.254 169.254.170.2 169.254.170.23 192.0.0.192 fd00:ec2::23 fd20:ce::254 "
        "64:ff9b::a9fe:a9fe 168.63.129.16 100.100.100.200 ::ffff:a9fe:a9fe fd00:ec2::254 fe80::a9fe:a9fe"
    ),
    addresses.AddressKind.RESERVED: "192.0.0.1 2001:20::1 240.0.0.1 64:ff9b:1::7f00:1 100::1 5f00::1 4000::1",
    addresses.AddressKind.SHARED: "100.64.0.1",
    addresses.AddressKind.MULTICAST: "224.0.0.1 255.255.255.255 ff02::1",
    addresses.AddressKind.DOCUMENTATION: "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1",
    addresses.AddressKind.BENCHMARKING: "198.19.255.255 2001:2::1",
    addresses.AddressKind.TUNNEL: "192.88.99.1 ::127.0.0.1 2001:0:53aa:64c::1 2002:7f00:1::",
}


@pytest.mark.parametrize("place", PLACES)
def test_every_kind_of_place_is_told(place: addresses.AddressKind) -> None:
    """A page could lead a fetch to a machine that trusts whoever is near."""
    wrong = [each for each in PLACES[place].split() if addresses.kind_of_address(ip_address(each)) is not place]
    assert wrong == []


def naive_is_global(address: addresses.Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_loopback)


@given(ADDRESSES)
@example(ip_address("192.0.0.9"))
def test_what_is_open_is_global_by_the_standard_library_too(address: addresses.Address) -> None:
    """A range could be missing from the table."""
    if addresses.kind_of_address(address) is addresses.AddressKind.INTERNET:
        assert naive_is_global(addresses.reached_by(address))


CLOSED_ALL_THE_SAME = [
    ip_network(net)
    for net in (
        *("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32"),
        *("2001::/23", "2002::/16", "3fff::/20", "::/96", "64:ff9b:1::/48", "fec0::/10", "5f00::/16"),
    )
]


@given(ADDRESSES)
def test_what_is_closed_is_not_global_or_is_known_to_be_an_exception(address: addresses.Address) -> None:
    """A typo in the table could close a part of the internet."""
    reached = addresses.reached_by(address)
    if addresses.kind_of_address(address) is not addresses.AddressKind.INTERNET and naive_is_global(reached):
        unassigned = isinstance(reached, IPv6Address) and reached not in ip_network("2000::/3")
        assert unassigned or any(reached in net for net in CLOSED_ALL_THE_SAME), reached


@pytest.mark.parametrize("address", ["93.184.216.34", "::ffff:93.184.216.34", "64:ff9b::5db8:d822", "203.0.113.2"])
def test_an_address_of_this_machine_is_its_own_in_every_spelling(address: str) -> None:
    """The user's services, which listen on all addresses, would be reached by the public one."""
    own = {ip_address("93.184.216.34"), ip_address("203.0.113.2")}
    assert addresses.kind_of_address(ip_address(address)) in addresses.OPEN
    assert addresses.kind_of_address(ip_address(address), own) is addresses.AddressKind.OWN
    assert addresses.kind_of_address(ip_address("93.184.216.35"), own) is addresses.AddressKind.INTERNET
    assert addresses.kind_of_address(ip_address("10.0.0.1"), {ip_address("10.0.0.1")}) is addresses.AddressKind.PRIVATE


@given(st.ip_addresses(v=4), st.frozensets(st.ip_addresses(), max_size=3))
@example(IPv4Address("168.63.129.16"), frozenset())
@example(IPv4Address("93.184.216.34"), frozenset({IPv4Address("93.184.216.34")}))
def test_the_closed_networks_are_those_of_the_table(address: IPv4Address, own: frozenset[addresses.Address]) -> None:
    """Routes would let through what a judgement of one address refuses, or close a part of the internet."""
    networks = addresses.closed_networks(own)
    assert (addresses.kind_of_address(address, own) not in addresses.OPEN) == any(address in net for net in networks)
    assert not any(one != other and one.subnet_of(other) for one in networks for other in networks)
    assert len(set(networks)) == len(networks)


def test_a_zone_is_no_part_of_an_address() -> None:
    """A link-local address, which comes with one, could not be judged."""
    assert addresses.parse_address("fe80::1%eth0") == ip_address("fe80::1")


def test_what_no_name_may_lead_to_is_closed() -> None:
    """A name that a user opened could lead to a cloud's credentials."""
    assert addresses.OPEN.isdisjoint(addresses.NEVER_BY_NAME)
    assert {
        addresses.AddressKind.METADATA,
        addresses.AddressKind.LINK_LOCAL,
        addresses.AddressKind.MULTICAST,
        addresses.AddressKind.UNSPECIFIED,
    } == addresses.NEVER_BY_NAME


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_what_it_stands_for(address: IPv4Address) -> None:
    """The guard would be passed by writing an address in IPv6."""
    for prefix in (0xFFFF << 32, 0x64FF9B << 96):
        assert addresses.kind_of_address(IPv6Address(prefix | int(address))) is addresses.kind_of_address(address)
    assert addresses.plain(IPv6Address((0xFFFF << 32) | int(address))) == address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.com:443", "example.com", 443),
        ("Example.COM.:1", "example.com", 1),
        ("localhost:65535", "localhost", 65535),
        ("my_db:5432", "my_db", 5432),
        ("xn--bcher-kva.example:80", "xn--bcher-kva.example", 80),
        ("4chan.org:443", "4chan.org", 443),
        ("1.2.3.example:80", "1.2.3.example", 80),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("169.254.169.254:80", "169.254.169.254", 80),
        ("[FD00:0::1]:443", "fd00::1", 443),
        ("[::ffff:10.0.0.1]:443", "10.0.0.1", 443),
        ("[::1]:443", "::1", 443),
    ],
)
def test_a_host_and_a_port_are_read(text: str, host: str, port: int) -> None:
    """Two spellings of one host would be two entries of /etc/hosts, of which the second is never asked."""
    assert addresses.parse_destination(text) == addresses.Destination(host, port)


PART = "is an incomplete address, or not in the usual spelling"
NOBODY = "names an address that cannot be listed: it is "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, PART) for text in ("::1:443", "::1", "127.1:80", "010.0.0.1:80", "10.0.0.1.:80", "[10.0.0.1]:80")),
        *((text, PART) for text in ("2130706433:80", "0x7f000001:80", "0X7F.1.:80", "fe80::1%eth0:80", "a.0x:1")),
        ("[fe80::1%eth0]:80", PART),
        *((f"{address}:80", NOBODY) for address in ("0.0.0.0", "[::]", "224.0.0.1", "255.255.255.255", "[fe80::1]")),
        *(
            (text, "is neither a mode (none, loopback, internet, full) nor HOST:PORT")
            for text in ("example.com", "", "10.0.0.1", "[::1]")
        ),
        *(
            (f"h:{port}", "has no port: write NAME:PORT, with a port from 1 to 65535")
            for port in ("", "0", "65536", "-1", "+1", "1e3", "٣", "9" * 5000)
        ),
        *((text, "has a wildcard") for text in ("*:443", "*.example.com:443")),
        *(
            (text, "is not a host name")
            for text in (":443", "a..b:1", "-a:1", "a-:1", "a b:1", "bücher.example:1", "a\n:1")
        ),
        *((text, "is not a host name") for text in ("https://example.com:443", "user@h:22", "h/x:1", "a" * 64 + ":1")),
        ("a." * 127 + "a:1", "is not a host name"),
    ],
)
def test_what_is_no_host_and_port_is_refused_with_the_reason(text: str, reason: str) -> None:
    """An entry that maps nothing would refuse what the user meant to allow; a hosts file could gain a line."""
    with pytest.raises(ValueError, match=r"^(names|has|is) ") as caught:
        addresses.parse_destination(text)
    assert str(caught.value).startswith(reason)


@given(st.text(st.sampled_from("aB0x.:-_[]*%/ \n1"), max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """What is read is read the same again, and fits one field of /etc/hosts."""
    try:
        found = addresses.parse_destination(text)
    except ValueError:
        return
    assert addresses.parse_destination(str(found)) == found
    assert set(found.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
