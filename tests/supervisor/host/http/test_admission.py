"""Which requests may reach the protocol."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.http.admission import (
    LOOPBACK_NAMES,
    OWNER,
    Admission,
    Admitted,
    Authority,
    Holder,
    HttpAnswer,
    ReadinessAsked,
    Scope,
    parse_authority,
    parse_name,
)
from quarterdeck_protocol.tools import Client

TOKEN = "t" * 40
BEARER = ("authorization", f"Bearer {TOKEN}")
HOST = ("host", "127.0.0.1:8808")
NAMES = [parse_name(name) for name in (*LOOPBACK_NAMES, "deck.example", "port.example:8443", "fd00::7")]


def judged(*headers: tuple[str, str], method: str = "POST", path: str = "/mcp", token: str | None = TOKEN) -> int:
    """The status of the refusal; 0 when it goes on."""
    verdict = judge(*headers, method=method, path=path, token=token)
    return verdict.status if isinstance(verdict, HttpAnswer) else 0


def judge(
    *headers: tuple[str, str], method: str = "POST", path: str = "/mcp", token: str | None = TOKEN
) -> HttpAnswer | Admitted:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return Admission(NAMES, token).judge(method, path, raw, dict(raw))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", None),
        ("LocalHost:1", "localhost", 1),
        ("127.0.0.1:65535", "127.0.0.1", 65535),
        ("[::1]", "::1", None),
        ("[0:0:0:0:0:0:0:1]:8808", "::1", 8808),
        ("[FD00::7]:1", "fd00::7", 1),
        ("a-b_c.example", "a-b_c.example", None),
    ],
)
def test_an_authority_is_a_host_and_perhaps_a_port(text: str, host: str, port: int | None) -> None:
    """A client would be refused by its spelling."""
    assert parse_authority(text) == Authority(host, port)


NO_AUTHORITIES = (
    *("", ":", ":80", "a:", "a:0", "a:65536", "a:99999999", "a:+1", "a:1 ", " a", "a b", "a\t", "a\n", "a:٣"),
    *("u@a", "a:1@b", "127.0.0.1:8808@evil.example", "a/b", "a?b", "a#b", "a\\b", "a%2e", "%31", "a,b", "a;b"),
    *("::1", "[::1", "::1]", "[::1]x", "[::1]:", "[::1]1", "[[::1]]", "[::1%lo]", "[127.0.0.1]", "[]", "[a]"),
    *("http://a", "a:1:2", "bücher.example", "a" * 254),
)


def test_what_is_no_authority_is_none() -> None:
    """A prefix that looks like ours would let another's through."""
    assert [text for text in NO_AUTHORITIES if parse_authority(text) is not None] == []


@given(st.text(st.sampled_from("aA1.:[]@/%-_ \\"), max_size=20))
def test_any_text_is_an_authority_or_none(text: str) -> None:
    """A request could crash the guard; or what is read be more than a host and a port."""
    if (found := parse_authority(text)) is not None:
        shown = f"[{found.host}]" if ":" in found.host else found.host
        assert parse_authority(shown if found.port is None else f"{shown}:{found.port}") == found
        assert not set(found.host) & set("@/% \\[]")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]:9", "DECK.example:7", "port.example:8443"])
def test_a_host_of_ours_is_served(host: str) -> None:
    """A client behind a tunnel or a proxy could not connect."""
    assert judged(("host", host), BEARER) == 0


FOREIGN_HOSTS = (
    *("evil.example", "127.0.0.1.evil.example", "localhost.evil", "127.0.0.1:8808@evil.example", "127.0.0.1.", ""),
    *("localhost.", "localhost@evil.example", "127.1", "0x7f.1", "2130706433", "0.0.0.0", "[::]", "::1", "null"),
    *("127.0.0.1:8808, evil.example", "127.0.0.1:8808 evil.example", "127.0.0.1%00.evil.example", "[::1].evil"),
    *("port.example", "port.example:1", "127.0.0.1:x", "127.0.0.1:", "xn--localhost-", "[::ffff:127.0.0.1]"),
)


def test_a_foreign_host_is_refused() -> None:
    """A web page could reach loopback under its own name (DNS rebinding)."""
    for host in FOREIGN_HOSTS:
        assert judged(("host", host), BEARER) == 421, host
        assert judged(HOST, ("host", host), BEARER) == 421, host


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    """Whoever is in between could look at one of them, and we at the other."""
    assert judged(BEARER) == 421
    assert judged(HOST, HOST, BEARER) == 421


@pytest.mark.parametrize(
    "origin", ["http://localhost:6274", "https://127.0.0.1", "HTTP://[::1]:1", "http://deck.example"]
)
def test_a_page_of_ours_may_ask(origin: str) -> None:
    """An inspector in a browser could not connect."""
    assert judged(HOST, ("origin", origin), BEARER) == 0


FOREIGN_ORIGINS = (
    *("http://evil.example", "null", "", "file://", "http://", "http://127.0.0.1.evil.example", "localhost"),
    *(
        "http://127.0.0.1:8808@evil.example",
        "http://127.0.0.1:8808.evil.example",
        "http://localhost/",
        "ftp://localhost",
    ),
    *(
        "http://localhost http://evil.example",
        "http://localhost,http://evil.example",
        "http://localhost?x",
        "http://u@localhost",
    ),
    *(
        "http://localhost#x",
        "http://localhost\\@evil.example",
        "http://localhost%2eevil.example",
        "http://localhost:",
    ),
    *("chrome-extension://abc", "http:localhost", "http:///localhost", "http://localhost.", " http://localhost"),
)


def test_a_foreign_page_may_not_ask_first_or_second() -> None:
    """A web page could post blindly; or put its own origin behind one of ours."""
    ours = ("origin", "http://localhost:1")
    for origin in FOREIGN_ORIGINS:
        assert judged(HOST, ("origin", origin), BEARER) == 403, origin
        assert judged(HOST, ours, ("origin", origin), BEARER) == 403, origin
        assert judged(HOST, ("origin", origin), ours, BEARER) == 403, origin


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        [f"Basic {TOKEN}"],
        [f"Bearer {TOKEN}x"],
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN} x"],
        ["Bearer \xe9\xff"],
        [TOKEN],
        [f"Bearer {TOKEN}", f"Bearer {TOKEN}"],
        [f"Bearer {TOKEN}", "Bearer x"],
        ["Bearer x", f"Bearer {TOKEN}"],
    ],
)
def test_a_request_without_the_token_or_with_two_is_refused_with_a_challenge(given: list[str]) -> None:
    """Any program of any user of this machine can reach a port."""
    verdict = judge(HOST, *(("authorization", one) for one in given))
    assert verdict.status == 401
    assert dict(verdict.headers)[b"www-authenticate"].startswith(b'Bearer realm="quarterdeck"')


def test_without_a_token_to_ask_for_host_and_origin_still_count() -> None:
    """Every web page could call the tools of a `serve --no-token`."""
    assert judged(HOST, token=None) == 0
    assert judged(("host", "evil.example"), token=None) == 421
    assert judged(HOST, ("origin", "http://evil.example"), token=None) == 403


@pytest.mark.parametrize(
    "name", ["mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region", "content-type"]
)
def test_of_two_values_of_a_header_neither_counts(name: str) -> None:
    """An intermediary could judge the one session, method or name, and we serve the other."""
    assert judged(HOST, BEARER, (name, "a")) == 0
    assert judged(HOST, BEARER, (name, "a"), (name, "b")) == 400
    assert judged(HOST, BEARER, (name, "a"), ("accept", "x"), (name, "a")) == 400


def test_who_asks_is_told_by_the_token_whatever_session_is_named() -> None:
    """A client could give itself bounds of its own by a session that there is not; without a token it has no name."""
    for named in ((), (("mcp-session-id", "5"),)):
        assert judge(HOST, BEARER, *named).client == OWNER
    assert judge(HOST, token=None) == Admitted()


@pytest.mark.parametrize(
    "path", ["/", "/register", "/.well-known/oauth-protected-resource/mcp", "/mcp/x/y", "/mcp/-", "/mcpx", ""]
)
@pytest.mark.parametrize("token", [TOKEN, None])
def test_nothing_is_anywhere_else(path: str, token: str | None) -> None:
    """A client would take 401 of `/.well-known` for an OAuth server, and fail at registering with it."""
    assert judged(HOST, path=path, token=token) == 404
    assert judged(HOST, BEARER, path=path, method="GET", token=token) == 404


def test_anybody_may_ask_whether_it_is_ready_and_the_owner_alone_is_told_all() -> None:
    """A stranger, or a client that may use one server, would learn which servers there are, and why they fail."""
    ready, ci = {"method": "GET", "path": "/readyz"}, ("authorization", "Bearer ci")
    raw = [(name.encode(), value.encode()) for name, value in (ci,)]
    ofs, looks = (
        Admission(NAMES, TOKEN, lambda _, scope=scope: Holder(Client("ci", "token ci"), scope=scope)).judge(
            "GET", "/readyz", raw, dict(raw)
        )
        for scope in (None, Scope.READ)
    )
    kinds, all_of_it = ReadinessAsked(), ReadinessAsked(in_full=True)
    assert looks == all_of_it
    assert judge(**ready) == judge(("host", "10.0.0.1"), **ready) == judge(BEARER, **ready, token=None) == ofs == kinds
    assert judge(BEARER, **ready) == judge(BEARER, method="HEAD", path="/readyz") == all_of_it
    assert judged(("authorization", "Bearer x"), **ready) == judged(BEARER, BEARER, **ready) == 401
    assert judged(BEARER, path="/readyz") == 404


PREFLIGHT = (
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", "Authorization, mcp-name,\r\nx"),
)


def test_a_browser_of_a_page_of_ours_may_ask_before_it_sends_and_read_the_answer() -> None:
    """A client in a browser could never send its token."""
    origin = ("origin", "http://localhost:6274")
    verdict = judge(HOST, origin, *PREFLIGHT, method="OPTIONS")
    assert (verdict.status, verdict.error) == (204, "")
    headers = dict(verdict.headers)
    assert headers[b"access-control-allow-origin"] == b"http://localhost:6274"
    assert headers[b"access-control-allow-headers"] == b"authorization, mcp-name, x"
    passed = judge(HOST, origin, BEARER)
    assert dict(passed.headers)[b"access-control-allow-origin"] == b"http://localhost:6274"
    refused = judge(HOST, origin)
    assert dict(refused.headers)[b"access-control-allow-origin"] == b"http://localhost:6274"


def test_nobody_else_gets_a_preflight_answered() -> None:
    """A page of another site could call the tools through the user's browser; without a token, any page could."""
    assert judged(HOST, ("origin", "http://evil.example"), *PREFLIGHT, method="OPTIONS") == 403
    assert judged(HOST, *PREFLIGHT, method="OPTIONS") == 401
    assert judged(HOST, ("origin", "http://localhost"), method="OPTIONS") == 401
    open_to_all = judge(HOST, ("origin", "http://localhost"), *PREFLIGHT, method="OPTIONS", token=None)
    assert open_to_all == Admitted()


@pytest.mark.parametrize("name", ["", "a/b", "http://a", "a b", "a:x", "u@a", "[::1"])
def test_a_name_that_cannot_be_one_is_said_to_be_none(name: str) -> None:
    """A typo in `--allow-host` would be found out by the clients that it locks out."""
    with pytest.raises(ValueError, match="is not a host name"):
        parse_name(name)


CI = Client("ci", "token 1")


def bound(*decks: str, wait_s: float = 0.0) -> Callable[[str], Holder]:
    """One token, bound to decks; it may ask again in `wait_s`."""
    return lambda _: Holder(CI, decks, ("review",), wait_s=lambda: wait_s)


def asked(rules: Admission, method: str, path: str, token: str = "other") -> HttpAnswer | Admitted:
    headers = [(b"host", b"127.0.0.1:8808"), (b"authorization", f"Bearer {token}".encode())]
    return rules.judge(method, path, headers, dict(headers))


def reached(path: str, *decks: str, token: str = "other", only: str | None = None) -> str | int:
    """The deck that a request with the token reaches, or the status of the refusal."""
    verdict = asked(Admission(NAMES, TOKEN, bound(*decks), only=only), "POST", path, token)
    return verdict.status if isinstance(verdict, HttpAnswer) else verdict.deck


@pytest.mark.parametrize(
    ("path", "decks", "deck"),
    [
        ("/mcp", (), "user"),
        ("/mcp", ("api", "web"), "api"),
        ("/decks/web/mcp", ("api", "web"), "web"),
        ("/decks/web/mcp/", ("web",), "web"),
        ("/decks/user/mcp", (), "user"),
        ("/decks/user/mcp", ("web",), 403),
        ("/decks/web/mcp", (), 403),
        ("/decks/gone/mcp", ("web",), 403),
        ("/decks//mcp", ("web",), 404),
        ("/decks/../mcp", ("web",), 404),
        ("/decks/WEB/mcp", ("web",), 404),
        ("/decks/web", ("web",), 404),
    ],
)
def test_a_token_reaches_its_own_decks_alone_by_path_or_without(
    path: str, decks: tuple[str, ...], deck: object
) -> None:
    """A program that was let into one project could call the servers of every other, or learn which there are."""
    assert reached(path, *decks) == deck


def test_a_token_that_asks_too_often_is_told_when_to_ask_again_and_may_still_end_its_session() -> None:
    """One program would take the servers from all others; or be unable to clean up behind itself."""
    rules = Admission(NAMES, TOKEN, bound(wait_s=4.2))
    refused = asked(rules, "POST", "/mcp")
    assert (refused.status, dict(refused.headers)[b"retry-after"]) == (429, b"5")
    assert isinstance(asked(rules, "DELETE", "/mcp"), Admitted)


def test_the_owners_token_reaches_every_deck() -> None:
    """They would have to make a token for what is theirs."""
    assert [reached(path, token=TOKEN) for path in ("/mcp", "/decks/web/mcp")] == ["user", "web"]


def test_where_one_configuration_is_served_tokens_of_other_decks_open_nothing() -> None:
    """A program that was let into one project could call the servers of another, served by `serve --http`."""
    assert [reached("/mcp", *decks, only="web") for decks in ((), ("web",), ("api",))] == ["web", "web", 403]
    assert reached("/mcp", "api", only="") == 403
    assert reached("/decks/web/mcp", "web", only="web") == 404


@pytest.mark.parametrize(
    ("path", "deck", "group"),
    [
        ("/mcp", "user", ""),
        ("/mcp/talk", "user", "talk"),
        ("/mcp/Talk_2/", "user", "Talk_2"),
        ("/decks/user/mcp/talk", "user", "talk"),
    ],
)
def test_a_path_names_a_group_and_a_token_has_its_own(path: str, deck: str, group: str) -> None:
    """A model would be shown everything at the address of a group, or with a token that was made for one."""
    verdict = asked(Admission(NAMES, TOKEN, bound(), only=None), "POST", path)
    assert (verdict.deck, verdict.group, verdict.granted) == (deck, group, ("review",))


@pytest.mark.parametrize(
    ("query", "is_searched"),
    [
        (b"", False),
        (b"search", True),
        (b"search=", True),
        (b"a=1&search=true", True),
        (b"search=false", False),
        (b"search=0", False),
        (b"research", False),
        (b"a=search", False),
        (b"\xff&&=", False),
    ],
)
def test_a_url_says_whether_tools_are_searched_for_there(query: bytes, *, is_searched: bool) -> None:
    """A client that can be given an address alone would be shown everything; or one that asked for none two tools."""
    headers = [(b"host", b"127.0.0.1:8808"), (b"authorization", f"Bearer {TOKEN}".encode())]
    for session in ([], [(b"mcp-session-id", b"one")]):
        verdict = Admission(NAMES, TOKEN).judge("POST", "/mcp", [*headers, *session], dict([*headers, *session]), query)
        assert verdict.client.is_searched is is_searched


def scraped(*headers: tuple[str, str], scope: Scope | None, method: str = "GET", path: str = "/metrics") -> object:
    """The status of a refusal, else whether it is a scrape, of a listener whose tokens have this scope."""
    raw = [(name.encode(), value.encode()) for name, value in (HOST, *headers)]
    client = Holder(Client("prom"), scope=scope)
    verdict = Admission(NAMES, TOKEN, lambda _: client, has_metrics=True).judge(method, path, raw, dict(raw))
    return verdict.status if isinstance(verdict, HttpAnswer) else isinstance(verdict, Admitted) and verdict.is_scrape


def test_metrics_are_for_tokens_of_their_scope_alone_which_open_nothing_else() -> None:
    """The file of a scraper would hold a token that opens every tool; or anybody read what an agent does."""
    theirs = ("authorization", "Bearer theirs")
    assert scraped(theirs, scope=Scope.METRICS) is True
    assert [scraped(scope=Scope.METRICS), scraped(BEARER, scope=Scope.METRICS)] == [401, 401]
    assert [scraped(theirs, scope=scope) for scope in (None, Scope.READ)] == [401, 401]
    assert scraped(theirs, ("origin", "https://evil.example"), scope=Scope.METRICS) == 403
    assert scraped(theirs, scope=Scope.METRICS, method="POST") == 405
    for path in ("/mcp", "/mcp/group"):
        assert [scraped(theirs, scope=scope, path=path, method="POST") for scope in Scope] == [403, 403]
    assert judged(HOST, BEARER, path="/metrics", method="GET") == 404, "where there are none"


def test_an_address_for_metrics_alone_serves_nothing_else_and_no_other_name() -> None:
    """Whatever can connect to it, a page of any site among them, could call tools, or read who calls what."""
    alone = Admission(NAMES, None, only="", has_metrics=True, serves_mcp=False)

    def status(path: str, host: str = "127.0.0.1:9464") -> int:
        raw = [(b"host", host.encode())]
        verdict = alone.judge("GET", path, raw, dict(raw))
        return verdict.status if isinstance(verdict, HttpAnswer) else 200

    assert [status("/metrics"), status("/mcp"), status("/mcp/g")] == [200, 404, 404]
    assert status("/metrics", "evil.example") == 421
