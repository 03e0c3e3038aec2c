"""What clients asked, for people to see."""

from quarterdeck.host.client_use import MAX_CLIENTS, ClientUses, RecentRate
from quarterdeck_protocol.tools import Client


def test_the_rate_is_that_of_the_last_minute() -> None:
    """A flood of yesterday would be shown as one of now; or one of now not at all."""
    now = [100.0]
    rate = RecentRate(lambda: now[0])
    for _ in range(5):
        rate.count()
    now[0] += 30
    rate.count()
    assert rate.last_minute() == 6
    now[0] += 29.5
    assert rate.last_minute() == 6
    now[0] += 1
    assert rate.last_minute() == 1
    now[0] += 10**6
    assert rate.last_minute() == 0
    rate.count()
    assert rate.last_minute() == 1


def test_what_is_refused_is_told_apart_and_kept_by_client() -> None:
    """A person would look for the client that is refused among those that are served."""
    uses = ClientUses()
    for client in ("a", "a", "b"):
        uses.count(client)
    uses.refused(Client(key="a"), "rate")
    uses.refused(Client("ci", "b"), "requests")
    uses.refused(Client("ci", "b/session"), "requests")
    uses.refused(Client(key="nobody"), "sessions")
    assert [uses.of(key) for key in ("a", "b", "nobody")] == [(2, 1), (1, 1), (0, 0)]
    assert uses.refusals == {"requests (token ci)": 2, "rate": 1, "sessions": 1}


def test_a_client_that_invents_sessions_takes_no_memory_and_no_active_client_out() -> None:
    """Each made-up session id would be kept for ever; or hide what the others ask."""
    uses = ClientUses()
    for number in range(2 * MAX_CLIENTS):
        uses.count("active")
        uses.count(f"made up {number}")
    assert uses.of("active")[0] > 0
    assert uses.of("made up 0") == (0, 0)
