"""Who wants to hear of which resources, and from which level on of the log."""

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.subscriptions import MAX_URIS, MAX_URIS_EACH, Subscriptions
from quarterdeck_protocol.tools import Client


def of(key: str, part: str = "") -> Client:
    return Client(key=key, part=part)


def test_the_last_who_leaves_a_resource_is_told_so() -> None:
    """A server would tell for ever, or one client's leaving silence another."""
    wanted = Subscriptions()
    assert (wanted.add(of("a"), "f:x"), wanted.add(of("a"), "f:x"), wanted.add(of("b"), "f:x")) == ("", "", "")
    assert wanted.uris == ("f:x",)
    assert not wanted.remove(of("a"), "f:x")
    assert not wanted.remove(of("a"), "f:x"), "only once"
    assert wanted.remove(of("b"), "f:x")
    assert wanted.uris == ()


def test_a_client_that_leaves_takes_its_wishes_with_it() -> None:
    """What nobody wants any more would be told on."""
    wanted = Subscriptions()
    for uri in ("f:x", "f:y"):
        wanted.add(of("a"), uri)
    wanted.add(of("b"), "f:y")
    assert wanted.leave(of("a")) == ["f:x"]
    assert wanted.leave(of("a")) == []
    assert wanted.holders_of("f:y") == {"b"}


def test_a_resource_below_a_subscribed_one_is_heard_of_there() -> None:
    """The protocol lets a server name the part that changed."""
    wanted = Subscriptions()
    wanted.add(of("a"), "file:///dir")
    wanted.add(of("b"), "file:///dir/")
    wanted.add(of("c"), "file:///dir/x")
    assert wanted.holders_of("file:///dir/x") == {"a", "b", "c"}
    assert wanted.holders_of("file:///dir") == {"a"}
    assert wanted.holders_of("file:///directory") == frozenset()


def test_subscriptions_are_bounded_for_each_client_and_for_all() -> None:
    """One that subscribes for ever would fill our memory and the server's."""
    wanted = Subscriptions()
    for number in range(MAX_URIS_EACH):
        assert not wanted.add(of("a"), f"f:{number}")
    assert f"{MAX_URIS_EACH} resources" in wanted.add(of("a"), "f:more")
    assert not wanted.add(of("a"), "f:0"), "it has that"
    for number in range(MAX_URIS_EACH, MAX_URIS):
        assert not wanted.add(of(f"greedy/{number // MAX_URIS_EACH}"), f"f:{number}")
    assert "1,000" in wanted.add(of("greedy/more"), "f:more")
    assert not wanted.add(of("greedy/more"), "f:0"), "others have that"
    assert not wanted.add(of("calm"), "f:more"), "however many sessions of another token have filled the places"


def test_streams_of_one_client_have_wishes_of_their_own_within_its_bound() -> None:
    """One stream's end would silence another, or a client have more than its share by opening streams."""
    wanted = Subscriptions()
    for number in range(MAX_URIS_EACH):
        assert not wanted.add(of("a", f"stream {number % 3}"), f"f:{number}")
    assert f"{MAX_URIS_EACH} resources" in wanted.add(of("a", "stream 9"), "f:more")
    assert not wanted.add(of("a", "stream 9"), "f:0"), "another of its streams has that"
    assert wanted.holders_of("f:0") == {"a stream 0", "a stream 9"}
    assert "f:0" not in wanted.leave(of("a", "stream 0"))
    assert wanted.leave(of("a", "stream 9")) == ["f:0"]
    for number in (1, 2):
        wanted.leave(of("a", f"stream {number}"))
    assert wanted.uris == ()
    assert not wanted.add(of("a"), "f:more")


def test_a_stream_that_ends_leaves_its_clients_level() -> None:
    """A client's log would end with one of its streams."""
    wanted = Subscriptions()
    wanted.set_level(of("a"), "debug")
    wanted.leave(of("a", "stream 1"))
    assert wanted.level == "debug"
    wanted.leave(of("a"))
    assert wanted.level == ""


def test_the_lowest_level_that_anybody_wants_is_told_when_it_changes() -> None:
    """A client that wants little would silence the log of one that wants all."""
    wanted = Subscriptions()
    assert wanted.level == ""
    lowest = []
    for client, level in (("a", "warning"), ("b", "error"), ("b", "debug"), ("b", "nonsense")):
        wanted.set_level(of(client), level)
        lowest.append(wanted.level)
    assert lowest == ["warning", "warning", "debug", "debug"]
    wanted.leave(of("b"))
    assert wanted.level == "warning"


CLIENTS = st.sampled_from("abc")
URIS = st.sampled_from(["f:x", "f:x/y", "g:"])


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "leave"]), CLIENTS, URIS), max_size=40))
def test_it_says_what_is_wanted_whatever_happened(steps: list[tuple[str, str, str]]) -> None:
    """Against a set of pairs."""
    wanted, pairs = Subscriptions(), set[tuple[str, str]]()
    for what, client, uri in steps:
        before = {wish for _, wish in pairs}
        match what:
            case "add":
                assert wanted.add(of(client), uri) == ""
                pairs.add((client, uri))
            case "remove":
                was_there = (client, uri) in pairs
                pairs.discard((client, uri))
                assert wanted.remove(of(client), uri) == (was_there and uri not in {wish for _, wish in pairs})
            case "leave":
                pairs = {(whose, wish) for whose, wish in pairs if whose != client}
                assert set(wanted.leave(of(client))) == before - {wish for _, wish in pairs}
        assert set(wanted.uris) == {wish for _, wish in pairs}
        for each in ("f:x", "g:"):
            assert wanted.holders_of(each) == {whose for whose, wish in pairs if wish == each}
