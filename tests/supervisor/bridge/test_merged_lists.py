"""The lists of several servers as one: names, URIs, order, and what is looked at anew."""

import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer

from quarterdeck.bridge.merged_lists import MergedLists
from quarterdeck.common.tool_names import NameBudget
from quarterdeck_protocol.offers import Listing


def merged(fleet: OfferFleet, *, alone: str = "", budget: NameBudget | None = None) -> MergedLists:
    lists = MergedLists(fleet, alone=alone, budget=budget)
    lists.refresh()
    return lists


def publics(lists: MergedLists, listing: Listing) -> list[str]:
    return [each.public for each in lists.shown(listing)]


def test_prompts_are_named_by_their_server_and_listed_in_configuration_order() -> None:
    """Two servers' prompts of one name would be one, or come in another order at each start."""
    lists = merged(OfferFleet(OfferServer("b", prompts=("two",)), OfferServer("a", prompts=("one", "more"))))
    assert publics(lists, Listing.PROMPTS) == ["b__two", "a__one", "a__more"]


def test_the_prompts_of_a_lone_server_keep_their_names() -> None:
    """`run` would show a server otherwise than it is."""
    lists = merged(OfferFleet(OfferServer("fs", prompts=("one",))), alone="fs")
    assert publics(lists, Listing.PROMPTS) == ["one"]


def test_a_name_beyond_the_budget_is_shortened_and_known_by_the_short_one() -> None:
    """A client that takes no longer names would refuse the whole list."""
    lists = merged(OfferFleet(OfferServer("fs", prompts=("p" * 60,))), budget=NameBudget(46))
    (name,) = publics(lists, Listing.PROMPTS)
    assert len(name) <= 46
    owner = lists.owner(Listing.PROMPTS, name)
    assert owner is not None
    assert owner.key == "p" * 60


def test_uris_stay_as_servers_write_them() -> None:
    """Links in results would lead nowhere."""
    lists = merged(OfferFleet(OfferServer("fs", resources=("file:///a",), templates=("file:///{x}",))))
    assert publics(lists, Listing.RESOURCES) == ["file:///a"]
    assert publics(lists, Listing.TEMPLATES) == ["file:///{x}"]
    assert lists.schemes == {"fs": {"file"}}


def test_a_uri_that_two_servers_have_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log would fill up at each change of a list; or a user not know why a URI is another one."""
    caplog.set_level("INFO")
    second = OfferServer("two", resources=("x:1",))
    fleet = OfferFleet(OfferServer("one", resources=("x:1",)), second)
    lists = merged(fleet)
    second.resources = ("x:1", "x:2")
    second.relist()
    lists.mark("two")
    lists.refresh()
    assert publics(lists, Listing.RESOURCES) == ["x:1", "quarterdeck+two:x:1", "x:2"]
    assert [record.getMessage() for record in caplog.records] == [
        "resources: x:1 is another server's, too: of two it is quarterdeck+two:x:1"
    ]


def test_a_list_is_the_same_until_one_of_its_servers_has_another() -> None:
    """Every phase of every server would tell all clients to list anew."""
    server, other = OfferServer("a", prompts=("one",)), OfferServer("b", prompts=("two",))
    lists = merged(OfferFleet(server, other))
    before = lists.shown(Listing.PROMPTS)
    lists.mark("b")
    assert lists.refresh() == ({"b"}, [])
    assert lists.shown(Listing.PROMPTS) is before
    server.prompts = ("one", "three")
    server.relist()
    lists.mark("a")
    assert lists.is_stale
    assert lists.refresh() == ({"a"}, [Listing.PROMPTS])
    assert publics(lists, Listing.PROMPTS) == ["a__one", "a__three", "b__two"]
    assert not lists.is_stale


def test_a_server_that_is_gone_offers_nothing() -> None:
    """A client would ask for what nobody has."""
    fleet = OfferFleet(OfferServer("a", resources=("x:1",)), OfferServer("b", resources=("x:2",)))
    lists = merged(fleet)
    assert len(lists.shown(Listing.RESOURCES)) == 2
    del fleet.servers[0]
    lists.mark("a")
    lists.refresh()
    assert publics(lists, Listing.RESOURCES) == ["x:2"]
    assert lists.owner(Listing.RESOURCES, "x:1") is None
