"""What the end of a connection means, told without the URL that may be a key."""

import errno
import socket

import pytest

from quarterdeck_protocol.faults import REMEDIES, Delivery, FaultRecord, RemoteCause
from quarterdeck_worker.remote.faults import broken, refused_or_closed, unreachable
from quarterdeck_worker.remote.recorder import StatusRecorder
from quarterdeck_worker.remote.refusals import Refusal

URL = "https://me:s3cret@h.example:8443/s3cret/mcp?key=s3cret"

CAUSE = RuntimeError(f"Client error '500' for url '{URL}'")


def recorder(status: int | None, *, rejected: bool = False) -> StatusRecorder:
    """What HTTP has said."""
    found = StatusRecorder()
    found.refusal = None if status is None else Refusal(status)
    if rejected:
        found.rejected.set()
    return found


@pytest.mark.parametrize(
    "fault",
    [
        unreachable(URL, CAUSE, recorder(None)),
        unreachable(URL, CAUSE, recorder(401)),
        unreachable(URL, CAUSE, recorder(500)),
        broken(CAUSE),
    ],
)
def test_a_fault_names_the_origin_and_no_more(fault: FaultRecord) -> None:
    """A key in a server's URL would reach the ledger, the log and every client."""
    assert "https://h.example:8443" in fault.message
    assert fault.cause == RemoteCause("RuntimeError", "Client error '500' for url 'https://h.example:8443'")
    assert "s3cret" not in repr(fault)


@pytest.mark.anyio
async def test_an_end_names_the_origin_and_no_more() -> None:
    """A session that ends would publish its key."""
    for found in (recorder(None), recorder(401, rejected=True), recorder(404, rejected=True)):
        fault = refused_or_closed(URL, found)
        assert fault.message.startswith("https://h.example:8443 ")
        assert "s3cret" not in repr(fault)


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
        (
            Refusal(200, "text/html", "Sign in"),
            "web_page",
            "200 with a web page (text/html) that begins 'Sign in', as a proxy or a login page does",
        ),
    ],
)
def test_a_start_that_is_refused_has_the_code_of_its_status(refusal: Refusal, code: str, said: str) -> None:
    """A user would check a URL that is right, while the server is being restarted."""
    found = StatusRecorder()
    found.refusal = refusal
    fault = unreachable(URL, CAUSE, found)
    assert (fault.code, fault.message, fault.delivery) == (
        code,
        f"https://h.example:8443 answered {said}",
        Delivery.NOT_SENT,
    )
    assert code in REMEDIES


def test_a_session_that_the_server_forgot_is_told_so() -> None:
    """A user would look for a crash."""
    assert refused_or_closed(URL, recorder(404, rejected=True)).code == "session_gone"


def test_a_server_that_wants_a_login_says_so_once_and_the_remedy_works_today() -> None:
    """A user would look for other credentials than those that nobody gave, or for a command that is not there."""
    fault = unreachable(URL, CAUSE, recorder(401))
    assert fault.code == "auth_needed"
    assert fault.message == "https://h.example:8443 requires login: it answered 401"
    ended = refused_or_closed(URL, recorder(401, rejected=True))
    assert (ended.code, ended.message) == (
        "auth_needed",
        "https://h.example:8443 requires login again: it answered 401",
    )
    assert "quarterdeck secret set NAME" in REMEDIES["auth_needed"]
    assert '"headers": {"Authorization": "Bearer ${keyring:NAME}"}' in REMEDIES["auth_needed"]


def test_an_exception_without_words_is_told_by_its_type() -> None:
    """A fault would end in a colon."""
    said = unreachable(URL, LookupError(), recorder(None)).message
    assert said == "https://h.example:8443 cannot be reached: LookupError"


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
        message = unreachable(URL, cause, recorder(None)).message
        assert message.startswith(f"https://h.example:8443 cannot be reached: {said}")
        assert "Errno" not in message
