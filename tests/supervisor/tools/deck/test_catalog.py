"""The catalogue and what is derived from it."""

from support.cards import PlayedCard

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.deck.builtin_tools import builtin_ids
from quarterdeck.tools.deck.catalog import (
    capability_cards,
    capability_ids,
    capability_index,
    card_profiles,
    cards_for_profile,
    find_card,
    has_capability,
    index_of,
)
from quarterdeck.tools.deck.contract import CapabilityCard, DeckContext, capability_id

APP_TITLES = {
    "todo": "Checklist",
    "bg-process": "Background process",
    "task": "Delegate task",
    "saas-action": "SaaS action",
    "memory": "Working memory",
    "enter_plan_mode": "Enter plan mode",
    "exit_plan_mode": "Exit plan mode",
}


def row(name: str, title: str) -> CapabilityCard:
    return CapabilityCard(capability_id(name), title, "", (), lambda _: PlayedCard())


def test_it_holds_the_twelve_then_the_seven() -> None:
    """Clients would list the tools in an order of the day."""
    assert capability_ids() == [*builtin_ids(), *APP_TITLES]
    assert {str(card.id): card.title for card in capability_cards()[12:]} == APP_TITLES
    assert all(card.summary for card in capability_cards())


def test_it_is_made_once() -> None:
    """Every session would build it anew."""
    assert capability_cards() is capability_cards()
    assert capability_index() is capability_index()


def test_the_index_says_where_each_stands() -> None:
    """A tool asked for by name would be another one."""
    assert [capability_cards()[position].id for position in capability_index().values()] == capability_ids()


def test_of_two_rows_with_one_id_the_first_counts() -> None:
    """A later row could take a built-in's place."""
    assert index_of([row("a", "first"), row("b", ""), row("a", "second")]) == {"a": 0, "b": 1}


def test_a_row_is_found_by_its_id_or_not_at_all() -> None:
    """A misspelt name would raise, or find something."""
    found = find_card("bash")
    assert found is not None
    assert found.title == "Run shell command"
    assert has_capability("memory")
    assert find_card("bsh") is None
    assert not has_capability("")


def test_app_cards_are_in_all_alone() -> None:
    """A session that may only look would be handed cards that act."""
    assert list(card_profiles()) == capability_ids()
    assert {profiles for name, profiles in card_profiles().items() if name in APP_TITLES} == {(Profile.ALL,)}


def test_the_profiles_select_seven_twelve_and_nineteen() -> None:
    """`authoring` observes only, `survey` changes too: the names are inverted on purpose."""
    names = {profile: [str(card.id) for card in cards_for_profile(profile)] for profile in Profile}
    assert names[Profile.AUTHORING] == ["read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"]
    assert names[Profile.SURVEY] == builtin_ids()
    assert names[Profile.ALL] == capability_ids()
    assert len(names[Profile.ALL]) == 19


def test_a_row_without_profiles_is_catalogued_and_never_selected() -> None:
    """A grafted tool would be provisioned as if it were the deck's."""
    assert not any(row("fs__read", "").in_profile(profile) for profile in Profile)


def test_every_card_of_the_catalogue_has_the_rows_name_and_title() -> None:
    """Help and session would speak of different tools."""
    for each in capability_cards():
        card = each.build(DeckContext("/work"))
        assert (card.name, card.label) == (each.id, each.title)
        assert card.description
        assert card.parameters["type"] == "object"
        assert card.parameters["additionalProperties"] is False
        assert card.hints is not None
        assert card.read_only == card.hints.read_only
