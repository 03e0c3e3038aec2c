"""The catalogue and what is derived from it."""

from support.tools.cards import PlayedCard

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.card_types import CapabilityCard, DeckContext, capability_id
from quarterdeck.tools.catalogue import (
    capability_cards,
    capability_ids,
    cards_for_profile,
    find_card,
)

BUILTIN_TITLES = {
    "read": "Read file",
    "ls": "List directory",
    "grep": "Search file contents",
    "find": "Find files by name",
    "websearch": "Web search",
    "webfetch": "Fetch URL",
    "todo_read": "Read checklist",
    "write": "Write file",
    "edit": "Edit file",
    "bash": "Run shell command",
    "process": "Manage background processes",
    "todo_set": "Update checklist",
}

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
    assert capability_ids() == [*BUILTIN_TITLES, *APP_TITLES]
    assert {str(card.id): card.title for card in capability_cards()[:12]} == BUILTIN_TITLES
    assert {str(card.id): card.title for card in capability_cards()[12:]} == APP_TITLES
    assert all(card.summary for card in capability_cards())


def test_it_is_made_once() -> None:
    """Every session would build it anew."""
    assert capability_cards() is capability_cards()


def test_no_id_stands_twice() -> None:
    """A later row could take a built-in's place."""
    assert len(set(capability_ids())) == len(capability_ids())


def test_a_row_is_found_by_its_id_or_not_at_all() -> None:
    """A misspelt name would raise, or find something."""
    found = find_card("bash")
    assert found is not None
    assert found.title == "Run shell command"
    assert find_card("bsh") is None
    assert find_card("") is None


def test_app_cards_are_in_all_alone() -> None:
    """A session that may only look would be handed cards that act."""
    assert {card.profiles for card in capability_cards() if card.id in APP_TITLES} == {(Profile.ALL,)}


def test_the_profiles_select_seven_twelve_and_nineteen() -> None:
    """`authoring` observes only, `survey` changes too: the names are inverted on purpose."""
    names = {profile: [str(card.id) for card in cards_for_profile(profile)] for profile in Profile}
    assert names[Profile.AUTHORING] == ["read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"]
    assert names[Profile.SURVEY] == [*BUILTIN_TITLES]
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
