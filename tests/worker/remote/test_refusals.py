"""What a bad status, a web page and a wish to be left alone mean for the request that met them."""

from datetime import UTC, datetime

import pytest

from quarterdeck_protocol.faults import REMEDIES, Delivery, FaultKind
from quarterdeck_worker.remote.refusals import (
    MAX_PAUSE_S,
    MAX_SHOWN_CHARS,
    Refusal,
    fault_of_refusal,
    first_words,
    pause_asked,
)

ORIGIN = "https://h.example"
NOW = datetime(2026, 11, 23, 17, 0, tzinfo=UTC).timestamp()


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
    assert "a web page (text/html) that begins 'Sign in'" in fault.message
    failed = fault_of_refusal(ORIGIN, Refusal(502, "text/html", "Bad Gateway"), has_session=True)
    assert failed.code == "server_unavailable"
    assert "begins 'Bad Gateway'" in failed.message


def test_a_page_is_shown_as_a_person_reads_it_without_secrets_and_short() -> None:
    """A fault would hold a page's script, a token out of it, or control characters for the terminal."""
    page = (
        b"<!doctype html><html><head><style>b{}</style><script>var a='<b>';</script><!-- inside --></head>"
        b"<body><h1>Sign\x1b in</h1>\n  token=ghp_0123456789abcdefghijklmnopqrstuvwxyzAB https://u:pw@x.example/k?q=1"
        + b"x"
        * 1_000
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
