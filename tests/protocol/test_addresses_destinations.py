"""What a policy's network list may hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.addresses import Destination, parse_destination


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
    assert parse_destination(text) == Destination(host, port)


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
        parse_destination(text)
    assert str(caught.value).startswith(reason)


@given(st.text(st.sampled_from("aB0x.:-_[]*%/ \n1"), max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """What is read is read the same again, and fits one field of /etc/hosts."""
    try:
        found = parse_destination(text)
    except ValueError:
        return
    assert parse_destination(str(found)) == found
    assert set(found.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
