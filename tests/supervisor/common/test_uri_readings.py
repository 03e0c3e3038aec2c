"""What a resource's URI means, held against parsers that servers use: WHATWG's, and Python's own."""

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote, urlparse, urlsplit

import ada_url
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck.common.patterns import may_fit, surely_fits
from quarterdeck.common.uri_readings import judged_uri, read_uri

CANONICAL = (
    *("file:///docs/a.txt", "file:///docs/a%20b", "file:///", "file:///docs//a", "file:///caf%C3%A9?x=1"),
    *("memo:abc", "memo:a/b", "notes://Mine/x", "notes:///x", "postgres://me:pw@db:5432/public/t", "urn:isbn:1-2"),
    *("https://example.com/", "https://example.com:8443/a?b=c&d=e", "http://[::1]/", "http://10.0.0.1/"),
    *("git://repo/compare?range=main..dev", "data:text/plain,a", "x+y.z-1:a", "file:///C%23/100%25", "notes://"),
)

OTHER = (
    *("FILE:///a", "file:/a", "file:a", "file://localhost/a", "file://host/a", "file:///a b", "file:///a\tb"),
    *(" file:///a", "file:///a\n", "file:///a\\b", "file:///a/./b", "file:///a/../b", "file:///a/%2e%2E/b"),
    *("file:///a%2Fb", "file:///%61", "file:///a%2fb", "file:///%c3%a9", "file:///é", "file:///a#b", "file:///a?"),
    *("file:///%", "file:///%00", "file:///%FF", "https://EXAMPLE.com/", "https://example.com"),
    *("https://example.com:443/", "https://me@example.com/", "https:/e/", "https://example.com./"),
    *("https://exämple.com/", "https://%65xample.com/", "http://0x7f.1/", "http://2130706433/", "http://127.1/"),
    *("http://[::0:1]/", "https://h:99999/", "https://h/?'", "notes://h:/x", "notes://h:08/x", "n://a:b/", ""),
    *("abc", "/etc/passwd", "1:a", "memo:a/../b", "memo:..", "notes://a/..;/b", "file:///a%252e%252e/%25252525"),
    *("a:{b}", "file:///%252e%252e/private", "file:///C|/x", "a:b[c]"),
)


def test_a_canonical_uri_is_what_whatwgs_parser_writes() -> None:
    """A client that does all right would be refused; what its server gets would not be what was judged."""
    assert [uri for uri in CANONICAL if read_uri(uri).problem] == []
    assert [ada_url.URL(uri).href for uri in CANONICAL] == [*CANONICAL]


def test_any_other_spelling_is_not_canonical() -> None:
    """A client of a group would reach a resource by a spelling that nothing was held against."""
    assert [uri for uri in OTHER if not read_uri(uri).problem] == []


_PARTS = (
    *("file", "FILE", "fi", "le", "http", "https", "notes", "memo", ":", ":", "/", "/", "//", "///", "\\", "."),
    *("..", "%2e", "%2E", "%2f", "%2F", "%5c", "%25", "%252e", "%252f", "\t", "\n", "\r", " ", "docs", "docs/"),
    *("private", "private/", "pri", "vate", "p%72ivate", "%2570rivate", "secret", "localhost", "host", "internal"),
    *("INTERNAL", "me@", ":80", ":443", ":", "?", "#", ";", "=", "&", "a", "b.md", "%00", "%ff", "é", "ｐrivate"),
    *("|", "{", "}", "[", "]", "'", '"', "^", "`"),
)
_BEGINNINGS = (
    *("", "", "file:///docs/", "file:///", "file:/", "notes://docs/", "https://host/docs/", "https://", "http:"),
)
_URIS = st.builds(
    lambda begin, parts: begin + "".join(parts),
    st.sampled_from(_BEGINNINGS),
    st.lists(st.sampled_from(_PARTS), max_size=8),
)


@given(_URIS)
def test_whatever_counts_as_canonical_is_written_so_by_whatwgs_parser(uri: str) -> None:
    """The rule would let through what a server of Node reads as something else."""
    if not read_uri(uri).problem:
        assert ada_url.URL(uri).href == uri


@given(_URIS)
@example("file:///docs/.\t./private/x")
@example("file:///docs/.\n./private/x")
@example("file:///docs/..\r/private/x")
@example("file:/private/x")
@example("file:private/x")
@example("file://host/private/x")
@example("file:///pri\tvate/x")
@example("file:///private?b.md")
@example("file:///docs/%252e%252e/private/x")
@example("https://me@internal/x")
@example("https:\\\\internal:443\\x")
@example("HTTPS:internal./x")
def test_no_spelling_of_what_is_denied_passes(uri: str) -> None:
    """A client of a group, or of a server with `hide`, would read what it was not to have."""
    for place in _readings(uri):
        for is_listed in (False, True):
            judged = judged_uri(uri, is_listed=is_listed)
            assert not (
                place.startswith("file /private")
                and surely_fits(f"fs__{judged}", ("fs__file:///docs*", "fs__file:///docs/*", "fs__file:///*.md"))
                and not place.endswith(".md")
            )
            if place.startswith("file /private/"):
                assert may_fit(judged, ("file:///private/*",))
                assert may_fit(f"fs__{judged}", ("fs__file:///private/*",))
            if place.startswith("https internal /"):
                assert may_fit(judged, ("https://internal/*",))
                assert not surely_fits(f"w__{judged}", ("w__https://host/*", "w__https://me*"))


def _readings(uri: str) -> Iterator[str]:
    """What parsers read: scheme, host where it counts, and path."""
    try:
        url = ada_url.URL(uri)
        yield _reading(url.protocol.removesuffix(":"), url.hostname, url.port, url.pathname)
    except ValueError:
        pass
    for split in (urlsplit, urlparse):
        try:
            parts = split(uri)
            yield _reading(parts.scheme, parts.hostname or "", str(parts.port or ""), parts.path)
        except ValueError:
            pass


def _reading(scheme: str, host: str, port: str, path: str) -> str:
    path = posixpath.normpath(unquote(path)) if path else "/"
    path = f"/{path.lstrip('/')}" if path.startswith("/") or scheme == "file" else path
    if scheme == "file":
        return f"file {path}"
    return f"{scheme} {host.removesuffix('.')}{f':{port}' if port not in ('', '443') else ''} {path}"


@pytest.mark.parametrize(
    ("name", "pattern", "is_granted"),
    [
        ("fs__file:///docs/My Notes.txt", "fs__file:///docs/*", True),  # as some servers list it
        ("fs__file:///docs/é", "fs__file:///docs/*", True),
        ("fs__file:///docs/a\tb", "fs__file:///docs/*", False),
        ("fs__file:///docs/a\tb", "fs__*", True),  # all that it could mean is granted
        ("fs__file:///docs/a\tb", "fs__file:*", True),
        ("fs__file:///docs/a\tb", "*", True),
        ("fs__file:///docs/a\tb", "fs__file:///docs/a\tb", True),  # by name
        ("lab__gitlab://p/group%2Frepo", "lab__gitlab://p/*", True),
        ("lab__gitlab://p/group%2Frepo", "lab__gitlab://p/group*", True),
        ("pg__postgres://me@db:5432/t/schema", "pg__postgres://me@db:5432/*", True),
        ("web__https://x/search?q=1", "web__https://x/search[?]q=*", True),
        ("web__https://x/search?q=1", "web__https://x/search?q=*", False),  # any character, and so no question mark
        ("fs__file:///docs/private?x.md", "fs__file:///docs/*.md", False),
        ("memo__memo:abc", "memo__memo:a*", True),
        ("memo__memo:abc", "memo__*bc", True),
        ("w__https://good.example@evil/", "w__https://good.example*", False),
        ("w__https://host/x", "w__https://*", True),
        ("w__https://a.host/x", "w__https://?.host/*", True),
    ],
)
def test_a_servers_own_spelling_is_granted_where_all_that_it_can_mean_is(
    name: str, pattern: str, is_granted: bool
) -> None:
    """A resource that a group lists could not be read, or one be read that the group does not have."""
    assert surely_fits(name, (pattern,)) is is_granted


@pytest.mark.parametrize(
    ("uri", "pattern", "is_hidden"),
    [
        ("file:///docs/a\tb", "file:///etc/*", True),  # nobody knows what it is
        ("file:///docs/a\tb", "delete_*", False),
        ("file:///docs/a\tb", "notes://*", False),
        ("notes:/private/x", "notes:///private/*", True),
        ("notes:private/x", "notes:///private/*", True),
        ("notes://PRIVATE/x", "notes://private/*", True),
        ("notes://me@private:0/x", "notes://private*", True),
        ("https://internal/a?q=other", "https://internal/a[?]q=secret", False),
        ("https://internal/a?q=secret", "https://internal/a[?]q=secret", True),
        ("https://internal/a;x", "https://internal/a", True),
        ("https://internal:8443/a", "https://internal/*", False),
        ("file:///docs/a", "file://other/*", False),
        ("file:///other/a", "file:///x/../other/*", True),
    ],
)
def test_what_may_be_hidden_is_hidden_and_nothing_else(uri: str, pattern: str, is_hidden: bool) -> None:
    """Clients would read what is hidden, or lack what is not."""
    assert may_fit(uri, (pattern,)) is is_hidden
