"""The policy of `webfetch`, and the judgement of one address."""

from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from quarterdeck.config.web_policy import BLOCKED_PORTS, FetchPolicy, allowed_by, parse_allowed, refusal
from quarterdeck_protocol.addresses import OPEN, Address, AddressKind, kind_of_address
from quarterdeck_sandbox.network import relay


def judged(*entries: str, host: str = "example.com", port: int = 80, address: str = "127.0.0.1") -> str | None:
    return refusal(host, port, address, allowed_by(FetchPolicy(allow=entries)))


@given(st.ip_addresses())
@example(ip_address("203.0.113.7"))
@example(ip_address("2001:db8::7"))
def test_by_default_exactly_the_internet_is_open(address: object) -> None:
    """A fetch would reach private machines, or nothing."""
    assert (judged(address=str(address)) is None) == (kind_of_address(ip_address(str(address))) is AddressKind.INTERNET)


@given(st.ip_addresses(), st.frozensets(st.ip_addresses(), max_size=2))
@example(ip_address("168.63.129.16"), frozenset())
@example(ip_address("64:ff9b::a9fe:a9fe"), frozenset())
@example(ip_address("93.184.216.34"), frozenset({ip_address("93.184.216.34")}))
@example(ip_address("::ffff:93.184.216.34"), frozenset({ip_address("93.184.216.34")}))
def test_what_the_table_closes_is_closed_to_webfetch_and_relay(address: Address, own: frozenset[Address]) -> None:
    """One way out would lead where the other does not; the uplink's routes are the table's own (`closed_networks`)."""
    place = kind_of_address(address, own)
    is_closed = place not in OPEN
    by_webfetch = refusal("example.com", 80, str(address), (), own) is not None
    assert by_webfetch is (is_closed or place is AddressKind.DOCUMENTATION)
    assert (relay.refusal("example.com", str(address), own) is not None) is is_closed


def test_a_refusal_names_the_address_and_what_it_is() -> None:
    """Nobody could tell why a name that looks public is refused."""
    assert judged() == "127.0.0.1 is this machine itself"


def test_this_machines_own_public_address_is_refused_unless_it_is_named() -> None:
    """What listens on all addresses would be reached by the one that looks like the internet."""
    own = {ip_address("93.184.216.34"), ip_address("2606:2800:220:1::9")}
    for address in ("93.184.216.34", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34", "2606:2800:220:1::9"):
        assert refusal("example.com", 80, address, (), own) == f"{address} is an address of this machine"
    assert refusal("example.com", 80, "93.184.216.35", (), own) is None
    assert refusal("example.com", 80, "93.184.216.34", (parse_allowed("93.184.216.34:80"),), own) is None


OPENED: list[tuple[str, dict[str, object]]] = [
    ("127.0.0.1", {"address": "127.0.0.1"}),
    ("127.0.0.1:8000", {"address": "127.0.0.1", "port": 8000}),
    ("127.0.0.1", {"address": "::ffff:127.0.0.1"}),
    ("::ffff:127.0.0.1", {"address": "::ffff:127.0.0.1"}),
    ("::1", {"address": "::1"}),
    ("[::1]", {"address": "::1"}),
    ("[::1]:8000", {"address": "::1", "port": 8000}),
    ("10.0.0.0/8", {"address": "10.255.0.1"}),
    ("10.0.0.0/8:8000", {"address": "10.255.0.1", "port": 8000}),
    ("fd00::/8", {"address": "fd12::1"}),
    ("[fd00::/8]:8000", {"address": "fd12::1", "port": 8000}),
    ("localhost", {"host": "localhost"}),
    ("LocalHost:8000", {"host": "localhost", "port": 8000}),
    ("example.com", {"host": "example.com."}),
    ("intra.example.com", {"host": "intra.example.com", "address": "10.1.2.3"}),
    ("169.254.169.254", {"address": "169.254.169.254"}),
    ("169.254.169.254/32", {"address": "169.254.169.254"}),
    ("169.254.0.0/16", {"address": "169.254.1.1"}),
    ("fe80::/10", {"address": "fe80::1%eth0"}),
]


def test_an_entry_opens_what_it_names() -> None:
    """A user could not let a fetch reach their own server."""
    for entry, target in OPENED:
        assert judged(**target) is not None  # type: ignore[arg-type]
        assert judged(entry, **target) is None  # type: ignore[arg-type]


STILL_CLOSED: list[tuple[str, dict[str, object]]] = [
    ("127.0.0.1:8000", {"port": 8001}),
    ("127.0.0.2", {}),
    ("10.0.0.0/8", {}),
    ("::1", {}),
    ("127.0.0.1", {"address": "64:ff9b::127.0.0.1"}),
    ("localhost", {"host": "example.com"}),
    ("example.com", {"host": "www.example.com"}),
    ("example.com:8000", {"host": "example.com"}),
    ("example.com", {"address": "169.254.169.254"}),
    ("example.com", {"address": "fe80::1"}),
    ("example.com", {"address": "0.0.0.0"}),
    ("example.com", {"address": "::ffff:169.254.169.254"}),
    ("169.254.0.0/16", {"address": "169.254.169.254"}),
    ("0.0.0.0/0", {"address": "169.254.169.254"}),
    ("100.64.0.0/10", {"address": "100.100.100.200"}),
    ("::/0", {"address": "fd00:ec2::254"}),
]


def test_an_entry_opens_nothing_else() -> None:
    """One exception would open far more than the user meant, credentials of the cloud among it."""
    for entry, target in STILL_CLOSED:
        assert judged(entry, **target) is not None  # type: ignore[arg-type]


def test_ports_of_other_services_are_closed_unless_named() -> None:
    """A request could be smuggled into a mail or chat server."""
    assert judged(address="93.184.216.34", port=25) == "port 25 belongs to another service than the web"
    assert judged("127.0.0.1", port=6000) is not None
    assert judged("127.0.0.1:6000", port=6000) is None
    assert judged("example.com:25", address="93.184.216.34", port=25) is None
    assert {80, 443, 3000, 8000, 8080, 8443}.isdisjoint(BLOCKED_PORTS)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "not a host name"),
        ("*.example.com", "wildcard"),
        ("*", "wildcard"),
        ("http://example.com", "port"),
        ("example.com:0", "no port"),
        ("example.com:http", "no port"),
        ("example.com:65536", "no port"),
        ("10.0.0.1/8", "inside a network"),
        ("10.0.0.0/33", "not a network"),
        ("example.com/8", "not a network"),
        ("127.1", "not a whole address"),
        ("0x7f000001", "not a whole address"),
        ("[::1", "bracket"),
        ("[::1]8000", "bracket"),
        ("a b", "not a host name"),
        ("ex ample:80", "not a host name"),
    ],
)
def test_what_is_no_entry_is_said_and_not_repeated(entry: str, why: str) -> None:
    """A mistake in a configuration file would open nothing, or something else, without a word."""
    with pytest.raises(ValidationError) as caught:
        FetchPolicy(allow=("127.0.0.1", entry))
    [error] = caught.value.errors(include_input=False)
    assert "entry [1]" in error["msg"]
    assert why in error["msg"]


@given(st.text(max_size=60))
def test_any_text_is_an_entry_or_a_clear_error(text: str) -> None:
    """A configuration file could crash the reader."""
    try:
        entry = parse_allowed(text)
    except ValueError:
        return
    assert (entry.host is None) != (entry.net is None)


def test_there_are_only_so_many_entries() -> None:
    """Each connection is judged by every entry."""
    with pytest.raises(ValidationError, match="more than 64"):
        FetchPolicy(allow=tuple(f"10.0.0.{number}" for number in range(65)))


@pytest.mark.parametrize("proxy", ["", "proxy:3128", "socks5://p", "http://u:p@proxy:1", "http://p/x", "http://p:1\n"])
def test_a_proxy_is_named_by_its_url_alone(proxy: str) -> None:
    for right in ("http://proxy:3128", "https://10.0.0.1", "http://[fd00::1]:8080/", None):
        assert FetchPolicy(proxy=right).proxy == right
    with pytest.raises(ValidationError, match="is not a proxy"):
        FetchPolicy(proxy=proxy)
