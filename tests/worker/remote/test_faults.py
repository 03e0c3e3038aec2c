"""What the end of a connection means, told without the URL that may be a key."""

import errno
import socket

import pytest

from quarterdeck_protocol.faults import REMEDIES, FaultRecord, RemoteCause
from quarterdeck_worker.remote.connection import StatusRecorder
from quarterdeck_worker.remote.faults import broken, refused_or_closed, unreachable

URL = "https://me:s3cret@h.example:8443/s3cret/mcp?key=s3cret"

CAUSE = RuntimeError(f"Client error '500' for url '{URL}'")


def recorder(status: int | None, *, rejected: bool = False) -> StatusRecorder:
    """What HTTP has said."""
    found = StatusRecorder()
    found.status = status
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


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_login_says_so_once_and_the_remedy_works_today(status: int) -> None:
    """A user would look for other credentials than those that nobody gave, or for a command that is not there."""
    fault = unreachable(URL, CAUSE, recorder(status))
    assert fault.code == "auth_needed"
    assert fault.message == f"https://h.example:8443 requires login: it answered {status}"
    ended = refused_or_closed(URL, recorder(status, rejected=True))
    assert (ended.code, ended.message) == (
        "auth_needed",
        f"https://h.example:8443 requires login again: it answered {status}",
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
