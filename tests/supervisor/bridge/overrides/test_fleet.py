"""A fleet as its servers' overrides show it, while they change."""

from support.fleet.memory_fleet import FakeEndpoint, FakeFleet

from quarterdeck.bridge.overrides.fleet import OverriddenFleet
from quarterdeck.bridge.tool_box import LiveBox
from quarterdeck.config.overrides import ServerOverrides


def said(**keys: object) -> ServerOverrides:
    return ServerOverrides.model_validate(keys)


def test_a_change_of_the_overrides_is_a_change_of_that_servers_list() -> None:
    """A client would see the old names until the server was restarted."""
    inner = FakeFleet(FakeEndpoint("a", "one", "two"), FakeEndpoint("b", "one"))
    fleet = OverriddenFleet(inner)
    box, told = LiveBox(fleet), list[str]()
    unwatch = fleet.watch_each(told.append)
    assert [each.name for each in box.descriptors()] == ["a__one", "a__two", "b__one"]
    fleet.override({"a": said(rename={"one": "uno"}, hide=["two"])})
    assert told == ["a"]
    first = box.descriptors()
    assert [each.name for each in first] == ["a__uno", "b__one"]
    fleet.override({"a": said(rename={"one": "uno"}, hide=["two"])})
    assert told == ["a"]
    assert box.descriptors() is first
    fleet.override({})
    assert [each.name for each in box.descriptors()] == ["a__one", "a__two", "b__one"]
    unwatch()
    fleet.override({"b": said(hide=["*"])})
    assert told == ["a", "a"]


def test_a_server_without_overrides_is_not_stood_in_front_of() -> None:
    """Every call of every server would pay for what one row says."""
    one = FakeEndpoint("a", "one")
    fleet = OverriddenFleet(FakeFleet(one))
    fleet.override({"b": said(hide=["*"])})
    assert fleet.endpoint("a") is one
    assert fleet.endpoint("b") is None


def test_what_cannot_be_carried_out_is_said_of_servers_that_offer_something() -> None:
    """A slip in the configuration would leave a tool away, and nobody know why."""
    fleet = OverriddenFleet(FakeFleet(FakeEndpoint("a", "one"), FakeEndpoint("b")))
    fleet.override({"a": said(arguments={"oen": {"x": 1}}), "b": said(arguments={"one": {"x": 1}})})
    assert fleet.notes() == ("a: 'arguments' names 'oen', which it does not offer: did you mean 'one'?",)
