"""Faults of a remote server: a status, a page, a pause, a lost connection; none tells more of a URL than its origin."""

import errno
import socket
from datetime import UTC, datetime

import httpx2
import pytest

from quarterdeck_protocol.faults import REMEDIES, Delivery, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.mcp.client.events import GreetingFailed
from quarterdeck_worker.http.faults import (
    MAX_PAUSE_S,
    MAX_SHOWN_CHARS,
    Refusal,
    broken,
    fault_of_refusal,
    first_words,
    pause_asked,
    refusal_of,
    session_over,
    unreachable,
)

URL = "https://me:s3cret@h.example:8443/s3cret/mcp?key=s3cret"
ORIGIN = "https://h.example"
NOW = datetime(2026, 11, 23, 17, 0, tzinfo=UTC).timestamp()
CAUSE = RuntimeError(f"Client error '500' for url '{URL}'")
AT = "https://h.example:8443"
SIGN_IN = "a web page (text/html) that begins 'Sign in'"


@pytest.mark.parametrize(
    "fault",
    [
        unreachable(URL, None, CAUSE),
        unreachable(URL, Refusal(401), CAUSE),
        unreachable(URL, Refusal(500), CAUSE),
        unreachable(URL, None, failed=GreetingFailed(f"no {URL}")),
        unreachable(URL, None, loss=session_over(URL, 404)),
        session_over(URL, 401),
        session_over(URL, 404),
        broken(AT, CAUSE),
    ],
)
def test_a_fault_names_the_origin_and_no_more(fault: FaultRecord) -> None:
    """A key in a server's URL would reach the ledger, the log and every client."""
    assert AT in fault.message
    assert "s3cret" not in repr(fault)


def test_the_cause_of_a_start_that_failed_is_kept() -> None:
    """Whoever looks into it would have no name to look for."""
    cause = unreachable(URL, None, CAUSE).cause
    assert cause == RemoteCause("RuntimeError", f"Client error '500' for url '{AT}'")


@pytest.mark.parametrize(
    ("refusal", "code", "said"),
    [
        (Refusal(403), "access_denied", "403"),
        (Refusal(403, wanted_scopes=("write",)), "scope_needed", "403 for want of the scope write"),
        (Refusal(404), "connect_failed", "404: no MCP server there"),
        (Refusal(408), "request_timeout", "408"),
        (Refusal(429, pause_s=7), "rate_limited", "429; it asks to be left alone for 7 s"),
        (Refusal(500), "server_error", "500"),
        (Refusal(503), "server_unavailable", "503"),
        (Refusal(200, "text/html", "Sign in"), "web_page", f"200 with {SIGN_IN}, as a proxy or a login page does"),
    ],
)
def test_a_start_that_is_refused_has_the_code_of_its_status(refusal: Refusal, code: str, said: str) -> None:
    """A user would check a URL that is right, while the server is being restarted."""
    fault = unreachable(URL, refusal, CAUSE)
    assert (fault.code, fault.message, fault.delivery) == (code, f"{AT} answered {said}", Delivery.NOT_SENT)
    assert code in REMEDIES


def test_a_server_that_wants_a_login_says_so_once_and_the_remedy_works_today() -> None:
    """A user would look for other credentials than those that nobody gave, or for a command that is not there."""
    fault = unreachable(URL, Refusal(401), CAUSE)
    assert (fault.code, fault.message) == ("auth_needed", f"{AT} requires login: it answered 401")
    ended = session_over(URL, 401)
    assert (ended.code, ended.message) == ("auth_needed", f"{AT} requires login again: it answered 401")
    assert "quarterdeck secret set NAME" in REMEDIES["auth_needed"]
    assert '"headers": {"Authorization": "Bearer ${keyring:NAME}"}' in REMEDIES["auth_needed"]


def test_an_exception_without_words_is_told_by_its_type() -> None:
    """A fault would end in a colon."""
    assert unreachable(URL, None, LookupError()).message == f"{AT} cannot be reached: LookupError"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "its name has no address"),
        (ConnectionRefusedError(111, "Connection refused"), "nothing listens there"),
        (TimeoutError(), "it did not answer in time"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "this machine has no way to it"),
    ],
)
def test_a_url_that_cannot_be_reached_is_told_without_the_systems_numbers(error: OSError, said: str) -> None:
    """A user would read `[Errno -2]`, or that all attempts failed."""
    outer = OSError("All connection attempts failed")
    outer.__cause__ = ExceptionGroup("attempts", [error])
    for cause in (error, outer):
        message = unreachable(URL, None, cause).message
        assert message.startswith(f"{AT} cannot be reached: {said}")
        assert "Errno" not in message


@pytest.mark.parametrize("error", [httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError])
def test_a_request_that_never_left_may_be_repeated_and_any_other_not(error: type[Exception]) -> None:
    """A client would repeat a payment, or give up what was never asked for."""
    assert broken(AT, error("x")).delivery is Delivery.NOT_SENT
    lost = broken(AT, httpx2.ReadError(f"cut {URL}"))
    assert (lost.code, lost.delivery) == ("server_lost", Delivery.UNKNOWN)


@pytest.mark.parametrize(
    ("status", "code", "delivery"),
    [
        (401, "auth_needed", Delivery.NOT_SENT),
        (403, "access_denied", Delivery.NOT_SENT),
        (404, "session_gone", Delivery.NOT_SENT),
        (408, "request_timeout", Delivery.UNKNOWN),
        (413, "request_refused", Delivery.NOT_SENT),
        (429, "rate_limited", Delivery.NOT_SENT),
        (500, "server_error", Delivery.UNKNOWN),
        (502, "server_unavailable", Delivery.UNKNOWN),
        (503, "server_unavailable", Delivery.UNKNOWN),
        (504, "server_unavailable", Delivery.UNKNOWN),
        (599, "server_error", Delivery.UNKNOWN),
    ],
)
def test_each_status_has_a_code_with_a_remedy_and_says_whether_it_may_be_repeated(
    status: int, code: str, delivery: Delivery
) -> None:
    """A client would repeat a payment, or give up what only has to wait."""
    fault = fault_of_refusal(ORIGIN, Refusal(status), has_session=True)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TOOL_ERROR, code, delivery)
    assert fault.message.startswith(f"{ORIGIN} ")
    assert str(status) in fault.message
    assert code in REMEDIES


@pytest.mark.parametrize(
    ("scopes", "said"),
    [
        ((), "for want of a scope: it answered 403"),
        (("write",), "for want of the scope write: it answered 403"),
        (("a", "b"), "for want of the scopes a b: it answered 403"),
        (tuple(map(str, range(64))), "for want of the scopes 0 1 2 3 4 5 6 7 and 56 more: it answered 403"),
    ],
)
def test_a_scope_that_is_wanting_is_named(scopes: tuple[str, ...], said: str) -> None:
    """A person would not learn what to log in for; or read a page of names."""
    fault = fault_of_refusal(ORIGIN, Refusal(403, wanted_scopes=scopes), has_session=True)
    assert (fault.code, fault.delivery) == ("scope_needed", Delivery.NOT_SENT)
    assert fault.message == f"{ORIGIN} denies access {said}"
    assert "quarterdeck login SERVER" in REMEDIES["scope_needed"]


def test_without_a_session_404_is_a_request_that_was_refused() -> None:
    """A server without sessions would be greeted anew for a wrong path."""
    assert fault_of_refusal(ORIGIN, Refusal(404), has_session=False).code == "request_refused"


def test_a_page_is_said_to_be_one() -> None:
    """A user would report a proxy's page to the server's author."""
    fault = fault_of_refusal(ORIGIN, Refusal(200, "text/html", "Sign in"), has_session=True)
    assert (fault.code, fault.delivery) == ("web_page", Delivery.UNKNOWN)
    assert SIGN_IN in fault.message
    failed = fault_of_refusal(ORIGIN, Refusal(502, "text/html", "Bad Gateway"), has_session=True)
    assert failed.code == "server_unavailable"
    assert "begins 'Bad Gateway'" in failed.message


def test_a_page_is_shown_as_a_person_reads_it_without_secrets_and_short() -> None:
    """A fault would hold a page's script, a token out of it, or control characters for the terminal."""
    page = (
        b"<!doctype html><html><head><style>b{}</style><script>var a='<b>';</script><!-- inside --></head>"
        b"<body><h1>Sign\x1b in</h1>\n  token=ghp_0123456789abcdefghijklmnopqrstuvwxyzAB https://u:pw@x.example/k?q=1"
        + 1_000
        * b"x"
    )
    shown = first_words(page)
    assert shown.startswith("Sign")
    assert len(shown) <= MAX_SHOWN_CHARS
    for hidden in ("ghp_", "pw@", "inside", "var a", "\x1b", "<"):
        assert hidden not in shown


@pytest.mark.parametrize("page", [b"", b"<" * 16_384, b"<script>" * 2_000, b"\xff\xfe" * 8_000, b"<!--" * 4_000])
def test_a_page_that_is_none_is_read_at_once_all_the_same(page: bytes) -> None:
    """A hostile page would hold up the worker, or end it."""
    assert len(first_words(page)) <= MAX_SHOWN_CHARS


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("99999999999999999999", MAX_PAUSE_S),
        ("Mon, 23 Nov 2026 17:00:30 GMT", 30),
        ("Mon, 23 Nov 2026 16:00:00 GMT", 0),
        ("Mon, 23 Nov 2099 16:00:00 GMT", MAX_PAUSE_S),
        ("-5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
        ("Mon, 23 Nov 999999999 16:00:00 GMT", None),
    ],
)
def test_a_pause_is_taken_in_both_of_its_forms_and_bounded(value: str, seconds: int | None) -> None:
    """A server could shut itself off for ever by one header."""
    assert pause_asked(value, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "challenge", "wanted"),
    [
        (403, 'Bearer error="insufficient_scope", scope="write"', ("write",)),
        (403, 'Basic realm="x", Bearer scope="a b", error="insufficient_scope"', ("a", "b")),
        (403, "Bearer error=insufficient_scope", ()),
        (403, f'Bearer error="insufficient_scope", scope="{"x" * 100_000}"', ()),
        (403, 'Bearer error="invalid_token", scope="write"', None),
        (403, "", None),
        (401, 'Bearer error="insufficient_scope", scope="write"', None),
    ],
)
def test_scopes_are_wanted_where_a_403_says_so(status: int, challenge: str, wanted: tuple[str, ...] | None) -> None:
    """Any denial would be taken for one that a login mends, or this one for any other."""
    assert refusal_of(httpx2.Response(status, headers={"WWW-Authenticate": challenge})).wanted_scopes == wanted


def test_a_redirect_that_is_not_followed_is_named() -> None:
    """A user would not learn that the server has moved."""
    fault = fault_of_refusal(ORIGIN, Refusal(307, leads_to="https://other.example"), has_session=True)
    assert "it answered 307 and a redirect to https://other.example, which is not followed" in fault.message
