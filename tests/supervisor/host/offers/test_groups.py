"""Clients that are shown some groups and no more: what they may use, and of which changes they are told."""

from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox

from quarterdeck.config.groups import Group
from quarterdeck.host.http.grants import Grant
from quarterdeck.host.http.token_clients import GrantedTools
from quarterdeck.host.offers.content import Content
from quarterdeck.host.offers.groups import LiveGroups
from quarterdeck.host.offers.views import ClientOffers
from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import Client

ADA = Client("ada", "ada")


def groups() -> LiveGroups:
    return LiveGroups({"a": Group(servers=("a",)), "reads": Group(tools=("*__read",), prompts=("b__p",))})


def test_without_a_choice_a_client_stays_who_it_is() -> None:
    """Every request would go the long way for nothing."""
    assert groups().narrow(ADA, (), ()) is ADA


def test_groups_of_one_choice_count_together_and_choices_within_one_another() -> None:
    """A token of one group would open another by its path."""
    both = groups().narrow(ADA, ("a", "reads"))
    assert [both.allows(name) for name in ("a__write", "b__read", "b__write")] == [True, True, False]
    nested = groups().narrow(ADA, ("a",), ("reads",))
    assert [nested.allows(name) for name in ("a__write", "a__read", "b__read")] == [False, True, False]
    assert (both.allows_some_of("c"), nested.allows_some_of("a"), nested.allows_some_of("c")) == (True, True, False)


def test_what_a_token_forbids_no_group_allows() -> None:
    """A path would widen what a token was made for."""
    token = Grant(name="ci", digest="d", created_at=0, tools=("a__read",), max_result_bytes=7)
    client = groups().narrow(Client("ci", "ci", GrantedTools(token)), ("a",))
    assert [client.allows(name) for name in ("a__read", "a__write")] == [True, False]
    assert client.allowance.max_result_bytes == 7
    assert client.refusal("it") == "the token 'ci' in the group 'a' does not allow it"


def test_a_group_that_there_is_not_any_more_has_nothing() -> None:
    """Taken out of the configuration, it would open everything."""
    live = groups()
    client = live.narrow(ADA, ("a",))
    assert client.allows("a__x")
    live.take({})
    assert (client.allows("a__x"), client.allows_some_of("a")) == (False, False)


def test_the_tools_of_a_client_are_those_of_its_groups_of_the_moment() -> None:
    """A door would keep what its group had when it opened; or its client not be told."""
    live, box = groups(), LiveBox()
    for name in ("a__x", "b__read", "b__write"):
        box.graft(name)
    content = Content(box=box, name="q", version="1", groups=live)
    seen, told = content.tools_for(live.narrow(ADA, ("reads",))), list[str]()
    assert [each.name for each in seen.descriptors()] == ["b__read"]
    unwatch = seen.watch(lambda: told.append("changed"))
    live.take({"reads": Group(tools=("b__write",))})
    assert [each.name for each in seen.descriptors()] == ["b__write"]
    live.take({"reads": Group(tools=("b__write",))})
    assert told == ["changed"]
    unwatch()
    live.take({})
    assert told == ["changed"]
    assert [each.name for each in content.tools_for(ADA).descriptors()] == ["a__x", "b__read", "b__write"]


async def test_a_client_is_told_of_the_lists_of_its_groups_alone() -> None:
    """A model would list anew for what it may not use; or never see what its group has got."""
    one, other = OfferServer("a", prompts=("p",)), OfferServer("b", prompts=("p", "q"))
    fleet, live, told = OfferFleet(one, other), groups(), list[Listing]()
    offers = ClientOffers(Router(fleet), live.narrow(ADA, ("reads",)), live)
    unwatch = offers.watch_listing(told.append)
    assert [each.qualified for each in offers.listed(Listing.PROMPTS)] == ["b__p"]
    one.prompts, other.prompts = ("p", "x"), ("p",)
    for server in (one, other):
        server.relist()
        fleet.changed(server.id)
    assert told == []
    other.prompts = ()
    other.relist()
    fleet.changed("b")
    assert told == [Listing.PROMPTS]
    live.take({"reads": Group(servers=("a",))})
    assert told == [Listing.PROMPTS] * 2
    assert [each.qualified for each in offers.listed(Listing.PROMPTS)] == ["a__p", "a__x"]
    unwatch()
