"""What clients are shown of prompts, resources and templates: the server's own words, under their public names."""

import json
from typing import Any

import pytest

from quarterdeck.host.offers.offer_catalog import OfferCatalog
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import ANONYMOUS, Client

MEMBERS = {Listing.PROMPTS: "name", Listing.RESOURCES: "uri", Listing.TEMPLATES: "uriTemplate"}
KEYS = {Listing.PROMPTS: "plan", Listing.RESOURCES: "note://1", Listing.TEMPLATES: "file:///{path}"}
LISTS = pytest.mark.parametrize("listing", MEMBERS)


def offered(listing: Listing, public: str = "", *, server: str = "fs", **members: Any) -> Offered:
    """One of a server; clients know it by `public`, or as the server does."""
    key = KEYS[listing]
    definition = json.dumps({"name": "it", MEMBERS[listing]: key, **members}).encode()
    return Offered(server, listing, key, definition, public or key)


class Only:
    """An allowance for names that begin so."""

    max_result_bytes = None

    def __init__(self, start: str) -> None:
        self._start = start

    def allows(self, tool: str, listing: str = "tools") -> bool:
        """See `Allowance`."""
        return tool.startswith(self._start)


@LISTS
def test_a_definition_is_shown_as_it_came(listing: Listing) -> None:
    """A client would lose what its server says and we do not know."""
    item = offered(listing, own={"x": [1, None]}, _meta={"k": 1}, icons=[{"src": "data:,", "theme": "dark"}])
    assert OfferCatalog().publish(listing, [item], ANONYMOUS) == [item.definition]


@LISTS
def test_another_public_name_takes_the_place_of_the_servers_own(listing: Listing) -> None:
    """A client would ask for a name that leads to another server, or to none."""
    item = offered(listing, 'fs__"plan"', title="Plan", own=1)
    [shown] = OfferCatalog().publish(listing, [item], ANONYMOUS)
    assert json.loads(shown) == {**json.loads(item.definition), MEMBERS[listing]: 'fs__"plan"'}


@pytest.mark.parametrize(
    ("listing", "members"),
    [
        (Listing.PROMPTS, {"arguments": [{"title": "no name"}]}),
        (Listing.PROMPTS, {"arguments": [{"name": "day", "required": "yes"}]}),
        (Listing.PROMPTS, {"description": 7}),
        (Listing.PROMPTS, {"icons": [{"sizes": ["1x1"]}]}),
        (Listing.PROMPTS, {"_meta": []}),
        (Listing.RESOURCES, {"size": "7"}),
        (Listing.RESOURCES, {"annotations": {"audience": ["everybody"]}}),
        (Listing.RESOURCES, {"mimeType": 1}),
        (Listing.RESOURCES, {"name": None}),
        (Listing.TEMPLATES, {"annotations": {"priority": "high"}}),
        (Listing.TEMPLATES, {"title": ["a"]}),
    ],
)
def test_what_a_program_could_not_read_costs_itself_alone(
    listing: Listing, members: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A client's program refuses the whole list, and with it what all other servers have."""
    good = offered(listing, "good", server="other")
    shown = OfferCatalog().publish(listing, [offered(listing, **members), good], ANONYMOUS)
    assert [json.loads(each)[MEMBERS[listing]] for each in shown] == ["good"]
    assert f"{KEYS[listing]} of fs is not shown" in caplog.text


@pytest.mark.parametrize(
    "definition",
    [
        b'{"name":"plan",\n"title":"x"}',
        b'{"name":"plan",\r"title":"x"}',
        b'{"name":"plan","x":' + b"[" * 600 + b"]" * 600 + b"}",
        b'{"name":"pl',
    ],
)
@pytest.mark.parametrize("public", ["plan", "fs__plan"])
def test_what_could_end_a_line_or_a_program_is_left_out(definition: bytes, public: str) -> None:
    """One server could write messages of its own between those of all others."""
    item = Offered("fs", Listing.PROMPTS, "plan", definition, public)
    assert OfferCatalog().publish(Listing.PROMPTS, [item], ANONYMOUS) == []


@LISTS
def test_a_list_is_made_once_while_it_is_the_same(listing: Listing, caplog: pytest.LogCaptureFixture) -> None:
    """Each client's list would cost as much as the first, and each say again what is left out."""
    catalog, items = OfferCatalog(), (offered(listing, description=7), offered(listing, "b"))
    first = catalog.publish(listing, items, ANONYMOUS)
    assert catalog.publish(listing, items, ANONYMOUS) == first
    assert caplog.text.count("is not shown") == 1
    assert catalog.publish(listing, (offered(listing, "c"),), ANONYMOUS) != first, "another list is another"


def test_the_lists_do_not_stand_in_for_one_another() -> None:
    """Prompts would be shown as resources."""
    catalog = OfferCatalog()
    for listing in MEMBERS:
        assert len(catalog.publish(listing, [offered(listing)], ANONYMOUS)) == 1
    assert catalog.publish(Listing.PROMPTS, (), ANONYMOUS) == []


@LISTS
def test_a_client_with_an_allowance_sees_what_it_may_use(listing: Listing) -> None:
    """A token for one server would list what all others have."""
    mine, other = offered(listing, server="fs"), offered(listing, "other", server="git")
    catalog, client = OfferCatalog(), Client("ci", "token 1", Only(f"fs__{KEYS[listing]}"))
    assert catalog.publish(listing, items := [mine, other], client) == [mine.definition]
    assert len(catalog.publish(listing, items, ANONYMOUS)) == 2, "what one may not see, another may"
