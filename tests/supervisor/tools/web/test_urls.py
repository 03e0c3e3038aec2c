"""Which URLs are fetched, and where redirects lead."""

import socket
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.urls import MAX_URL_CHARS, UrlError, follow, literal_address, parse_url, port_of, shown


@pytest.mark.parametrize(
    ("text", "url", "port"),
    [
        ("http://example.com", "http://example.com", 80),
        (" https://Example.COM/a?b=c#part ", "https://example.com/a?b=c", 443),
        ("https://example.com:8443/", "https://example.com:8443/", 8443),
        ("HTTP://[::1]:80/x", "http://[::1]/x", 80),
        ("http://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC", 80),
        ("http://example.com/a b", "http://example.com/a%20b", 80),
    ],
)
def test_a_url_is_read_as_it_is_meant(text: str, url: str, port: int) -> None:
    """Another page than the one asked for would be fetched."""
    assert (str(parse_url(text)), port_of(parse_url(text))) == (url, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no scheme"),
        ("example.com", "no scheme"),
        ("//example.com/", "no scheme"),
        ("/etc/passwd", "no scheme"),
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.com/", "only http and https"),
        ("gopher://127.0.0.1:6379/_x", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("data:text/html,x", "only http and https"),
        ("http://user@example.com/", "a user or a password"),
        ("http://user:secret@example.com/", "a user or a password"),
        ("http://:secret@example.com/", "a user or a password"),
        ("http://", "without a host"),
        ("http:///path", "without a host"),
        ("http://[fe80::1%25eth0]/", "without a host"),
        ("http://a%00b/", "without a host"),
        ("http://[::1/", "not a URL"),
        ("http://300.1.1.1/", "not a URL"),
        ("http://example.com:0/", "not a port"),
        ("http://example.com:70000/", "not a port"),
        ("http://example.com:-1/", "not a port"),
        ("http://example.com:x/", "not a URL"),
        ("http://example.com/\r\nHost: other", "not a URL"),
        ("http://example.com/\x00", "not a URL"),
        ("http://example.com/" + "a" * MAX_URL_CHARS, "longer than"),
    ],
)
def test_any_other_url_is_refused_with_the_reason(text: str, why: str) -> None:
    """A model could not tell what to write instead, or would read files."""
    with pytest.raises(UrlError, match=why) as caught:
        parse_url(text)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_a_url_or_a_url_error(text: str) -> None:
    """A model's odd spelling could crash the tool."""
    for prefix in ("", "http://", "https://[", "http://h:"):
        try:
            url = parse_url(prefix + text)
        except UrlError:
            continue
        assert url.scheme in ("http", "https")
        assert url.host
        assert not url.userinfo


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/b", "https://example.com/b"),
        ("c?d", "https://example.com/a/c?d"),
        ("//other.example/x", "https://other.example/x"),
        ("https://other.example:444/#f", "https://other.example:444/"),
        ("", "https://example.com/a/"),
    ],
)
def test_a_redirect_is_relative_to_where_it_stands(location: str, target: str) -> None:
    """Redirects would lead to pages that are not there."""
    assert str(follow(parse_url("https://example.com/a/"), location)) == target


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://example.com/", "from https to plain"),
        ("file:///etc/passwd", "only http and https"),
        ("https://user@example.com/", "a user or a password"),
        ("https://[/", "without a host"),
        ("https://example.com:99999/", "not a port"),
        ("a" * (MAX_URL_CHARS + 1), "longer than"),
    ],
)
def test_a_redirect_to_what_is_not_fetched_is_refused(location: str, why: str) -> None:
    """A server could lead a fetch to files, or off the encrypted way."""
    with pytest.raises(UrlError, match=why):
        follow(parse_url("https://example.com/a/"), location)


def test_plain_http_may_be_redirected_to_either() -> None:
    """Half of the old web redirects to https, the other half does not."""
    for scheme in ("http", "https"):
        assert follow(parse_url("http://a/"), f"{scheme}://b/").scheme == scheme


@given(st.ip_addresses(v=4), st.sampled_from(["{}", "{:#x}", "0{:o}"]), st.integers(1, 4))
def test_every_spelling_of_an_address_is_seen_through(address: IPv4Address, form: str, parts: int) -> None:
    """Behind a proxy `0x7f.1` would pass for a name."""
    number, numbers = int(address), []
    for index in range(parts - 1):
        shift = 24 - 8 * index
        numbers.append(number >> shift & 0xFF)
    numbers.append(number & (1 << (32 - 8 * (parts - 1))) - 1)
    text = ".".join(form.format(each) for each in numbers)
    assert socket.inet_aton(text) == address.packed
    assert literal_address(text) == str(address)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("example.com", None),
        ("1.2.3.4.5", None),
        ("4294967296", None),
        ("::1", "::1"),
        ("localhost", "127.0.0.1"),
        ("a.localhost.", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("08.1.1.1", None),
        ("", None),
        (".", None),
    ],
)
def test_a_name_is_no_address(host: str, address: str | None) -> None:
    """Names would be judged as addresses, or crash the judgement."""
    assert literal_address(host) == address


def test_what_is_shown_is_short_and_on_one_line() -> None:
    """A server's text could look like ours."""
    assert shown("a\n\tb") == "'a b'"
    assert len(shown("x" * 1000)) < 250
