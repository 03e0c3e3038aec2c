"""Who wants to hear of which resources, and from which level on of the log."""

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.subscriptions import MAX_URIS, MAX_URIS_EACH, Subscriptions


def test_the_last_who_leaves_a_resource_is_told_so() -> None:
    """A server would tell for ever, or one client's leaving silence another."""
    wanted = Subscriptions()
    assert (wanted.add("a", "f:x"), wanted.add("a", "f:x"), wanted.add("b", "f:x")) == ("", "", "")
    assert wanted.uris == ("f:x",)
    assert not wanted.remove("a", "f:x")
    assert not wanted.remove("a", "f:x"), "only once"
    assert wanted.remove("b", "f:x")
    assert wanted.uris == ()


def test_a_client_that_leaves_takes_its_wishes_with_it() -> None:
    """What nobody wants any more would be told on."""
    wanted = Subscriptions()
    for uri in ("f:x", "f:y"):
        wanted.add("a", uri)
    wanted.add("b", "f:y")
    assert wanted.leave("a") == ["f:x"]
    assert wanted.leave("a") == []
    assert wanted.holders_of("f:y") == {"b"}


def test_a_resource_below_a_subscribed_one_is_heard_of_there() -> None:
    """The protocol lets a server name the part that changed."""
    wanted = Subscriptions()
    wanted.add("a", "file:///dir")
    wanted.add("b", "file:///dir/")
    wanted.add("c", "file:///dir/x")
    assert wanted.holders_of("file:///dir/x") == {"a", "b", "c"}
    assert wanted.holders_of("file:///dir") == {"a"}
    assert wanted.holders_of("file:///directory") == frozenset()


def test_subscriptions_are_bounded_for_each_client_and_for_all() -> None:
    """One that subscribes for ever would fill our memory and the server's."""
    wanted = Subscriptions()
    for number in range(MAX_URIS_EACH):
        assert not wanted.add("a", f"f:{number}")
    assert f"{MAX_URIS_EACH} resources" in wanted.add("a", "f:more")
    assert not wanted.add("a", "f:0"), "it has that"
    for number in range(MAX_URIS_EACH, MAX_URIS):
        assert not wanted.add(f"client {number // MAX_URIS_EACH}", f"f:{number}")
    assert "1,000" in wanted.add("z", "f:more")
    assert not wanted.add("z", "f:0"), "others have that"


def test_the_lowest_level_that_anybody_wants_is_told_when_it_changes() -> None:
    """A client that wants little would silence the log of one that wants all."""
    wanted = Subscriptions()
    assert wanted.level == ""
    assert wanted.set_level("a", "warning") == "warning"
    assert wanted.set_level("b", "error") is None
    assert wanted.set_level("b", "debug") == "debug"
    assert wanted.set_level("b", "nonsense") is None
    wanted.leave("b")
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
                assert wanted.add(client, uri) == ""
                pairs.add((client, uri))
            case "remove":
                was_there = (client, uri) in pairs
                pairs.discard((client, uri))
                assert wanted.remove(client, uri) == (was_there and uri not in {wish for _, wish in pairs})
            case "leave":
                pairs = {(whose, wish) for whose, wish in pairs if whose != client}
                assert set(wanted.leave(client)) == before - {wish for _, wish in pairs}
        assert set(wanted.uris) == {wish for _, wish in pairs}
        for each in ("f:x", "g:"):
            assert wanted.holders_of(each) == {whose for whose, wish in pairs if wish == each}
