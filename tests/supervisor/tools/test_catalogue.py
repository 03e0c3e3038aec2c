"""The catalogue, what is derived from it, and the decks assembled from it."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.tools.cards import PlayedCard
from support.tools.contexts import inert_context

from quarterdeck.common.tool_names import Profile
from quarterdeck.tools import catalogue
from quarterdeck.tools.card_types import (
    Capability,
    CapabilityCard,
    DeckContext,
    DeckFault,
    DeckFaultKind,
    DeckFramework,
    capability_id,
)
from quarterdeck.tools.catalogue import (
    ToolDeck,
    base_context,
    capability_cards,
    capability_ids,
    cards_for_profile,
    find_card,
    provision_deck,
)
from quarterdeck.tools.checkpoint.card import CheckpointingCard
from quarterdeck_protocol.tools import CancelToken, ToolBox, ToolCall

TABLE = Path(__file__).parents[3] / "docs" / "tools.md"


def test_a_row_is_found_by_its_id_or_not_at_all() -> None:
    """A misspelt name would raise, or find something."""
    found = find_card("bash")
    assert found is not None
    assert found.title == "Run shell command"
    assert find_card("bsh") is None
    assert find_card("") is None


def test_the_profiles_select_seven_twelve_and_nineteen() -> None:
    """`authoring` observes only, `survey` changes too: the names are inverted on purpose; their order never changes."""
    names = {profile: [str(card.id) for card in cards_for_profile(profile)] for profile in Profile}
    assert names[Profile.AUTHORING] == ["read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"]
    assert names[Profile.SURVEY] == BUILT_IN
    assert names[Profile.ALL] == capability_ids() == [*ARGUMENTS]


def test_every_card_of_the_catalogue_has_the_rows_name_and_title() -> None:
    """Help and session would speak of different tools."""
    for each in capability_cards():
        card = each.build(DeckContext("/work"))
        assert (card.name, card.label) == (each.id, each.title)
        assert each.summary
        assert card.description
        assert card.parameters["type"] == "object"
        assert card.parameters["additionalProperties"] is False
        assert card.hints is not None
        assert card.read_only == card.hints.read_only


ARGUMENTS = {
    "read": "path:string(1+) [offset:integer(>=1)] [limit:integer(>=1)]",
    "ls": "[path:string(1+)] [showHidden:boolean]",
    "grep": "pattern:string(1+) [path:string(1+)] [flags:string] [maxMatches:integer(>=1)]",
    "find": "query:string(1+) [path:string(1+)] [type:dir|file]",
    "websearch": "query:string(1+) [maxResults:integer(>=1)]",
    "webfetch": "url:string(1+) [maxBytes:integer(>=1)]",
    "todo_read": "",
    "write": "path:string(1+) content:string",
    "edit": "path:string(1+) oldText:string newText:string [replaceAll:boolean]",
    "bash": "command:string(1+) [timeoutMs:number(>0)] [cwd:string(1+)]",
    "process": "action:list|poll|start|stop [command:string] [id:string]",
    "todo_set": "items:array(id:string(1+) text:string(1+) status:active|done|pending)",
    "todo": "action:read|set [items:array(task:string(1+) state:active|done|dropped|pending weight:high|low|normal)]",
    "bg-process": "action:list|poll|start|stop [command:string] [id:string] [sinceLast:boolean]",
    "task": "objective:string(1+) [agent:string(1+)] [context:string]",
    "saas-action": "action:discover|execute [slug:string(1+)] [arguments:object] [toolkits:array(string)] "
    "[query:string]",
    "memory": "action:append|read|replace [content:string]",
    "enter_plan_mode": "",
    "exit_plan_mode": "plan:string(1+)",
}
"""What each tool takes; optional ones in brackets, each with its type and bounds."""

BUILT_IN = list(ARGUMENTS)[:12]


def signature_of(schema: Any) -> str:
    shown = {name: f"{name}:{type_of(each)}" for name, each in schema["properties"].items()}
    return " ".join(one if name in schema["required"] else f"[{one}]" for name, one in shown.items())


def type_of(schema: Any) -> str:
    bounds = {"minLength": "{}+", "minimum": ">={}", "exclusiveMinimum": ">{}"}
    match schema:
        case {"enum": choices}:
            return "|".join(choices)
        case {"type": "array", "items": {"properties": _} as items}:
            return f"array({signature_of(items)})"
        case {"type": "array", "items": {"type": kind}}:
            return f"array({kind})"
    bound = "".join(f"({form.format(schema[key])})" for key, form in bounds.items() if key in schema)
    return f"{schema['type']}{bound}"


def test_every_tool_takes_the_arguments_that_models_know_it_by() -> None:
    """A model that knows the tool from elsewhere, or from yesterday, would be refused."""
    built = {each.id: each.build(DeckContext("/work")) for each in capability_cards()}
    assert {name: signature_of(card.parameters) for name, card in built.items()} == ARGUMENTS


HINTS = ("read_only", "destructive", "idempotent", "open_world")


def test_the_documentation_says_what_each_tool_says_of_itself() -> None:
    """A user would allow a tool without a question for what it is not."""
    table = TABLE.read_text().partition("| open world |\n|---|---|---|---|---|\n")[2]
    documented = {}
    for line in table.partition("\n\n")[0].splitlines():
        tools, *answers = line.strip("|").split("|")
        for name in tools.split():
            documented[name.strip("`")] = dict(zip(HINTS, [answer.strip() == "yes" for answer in answers], strict=True))
    said = {each.id: asdict(hints) for each in capability_cards() if (hints := each.build(DeckContext("/work")).hints)}
    assert documented == said


class NoStore:
    """A checkpoint store that keeps nothing."""

    async def record(self, path: str, previous: bytes | None) -> None:
        """Nothing."""


def names(deck: ToolDeck) -> list[str]:
    return [card.name for card in deck.tools()]


def deck_of(*cards: Capability) -> ToolDeck:
    return ToolDeck(cards, DeckContext("/work", base=inert_context()))


async def say(box: ToolBox, name: str, **arguments: object) -> object:
    outcome = await box.runner.run(ToolCall("1", name, arguments), CancelToken())
    assert not outcome.is_error, outcome.output
    return outcome.output


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (OSError("no disk"), DeckFaultKind.BUILD_FAILED, "look could not be built: no disk"),
        (DeckFault(DeckFaultKind.BACKEND, "no gateway"), DeckFaultKind.BACKEND, "no gateway"),
    ],
)
def test_a_card_that_cannot_be_built_is_a_fault_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: DeckFaultKind, said: str
) -> None:
    """A session would end with a traceback that names no tool; or a missing backend be told as a broken tool."""

    def build(_: DeckContext) -> Capability:
        raise raised

    row = CapabilityCard(capability_id("look"), "Look", "", (Profile.ALL,), build)
    monkeypatch.setattr(catalogue, "cards_for_profile", lambda _: [row])
    with pytest.raises(DeckFault, match=said) as caught:
        provision_deck(Profile.ALL, DeckContext("/work"))
    assert caught.value.kind is kind
    assert raised in (caught.value, caught.value.cause)


def test_with_a_store_only_write_and_edit_keep_checkpoints() -> None:
    """A command's changes would seem undoable, or a write's would not be."""
    framework = DeckFramework(checkpoint=NoStore())
    deck = provision_deck(Profile.ALL, DeckContext("/work", framework))
    assert [card.name for card in deck.tools() if isinstance(card, CheckpointingCard)] == ["write", "edit"]
    plain = provision_deck(Profile.ALL, DeckContext("/work"))
    assert not any(isinstance(card, CheckpointingCard) for card in plain.tools())


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda deck: deck.graft([PlayedCard("s__b"), PlayedCard("s__c")]), ["d", "a", "s__b", "s__c"]),
        (lambda deck: deck.map_capabilities(lambda card: PlayedCard(card.name.upper())), ["D", "A"]),
        (lambda deck: deck.retain(lambda card: card.name in {"a", "d"}), ["d", "a"]),
    ],
    ids=["server tools come last", "every card can be wrapped", "a selection keeps the order"],
)
def test_a_deck_is_changed_in_place(change: Callable[[ToolDeck], ToolDeck], left: list[str]) -> None:
    """Server tools would push the built-ins down a client's list, `--tools` rearrange it, or a wrapper miss calls."""
    deck = deck_of(PlayedCard("d"), PlayedCard("a"))
    assert change(deck) is deck
    assert names(deck) == left


def test_a_box_holds_the_cards_of_its_making() -> None:
    """A session's tools would change under it without a notice."""
    deck = deck_of(PlayedCard("a"))
    box = deck.into_tool_box()
    deck.graft([PlayedCard("b")])
    assert [descriptor.name for descriptor in box.descriptors()] == ["a"]


async def test_a_box_has_one_store_for_each_checklist_and_shares_none(tmp_path: Path) -> None:
    """A list would be lost between two calls, or be seen by another session in the same directory."""
    ours, theirs = (provision_deck(Profile.ALL, DeckContext(str(tmp_path))).into_tool_box() for _ in range(2))
    await say(ours, "todo_set", items=[{"id": "1", "text": "dig", "status": "active"}])
    await say(ours, "todo", action="set", items=[{"task": "fill", "state": "pending", "weight": "high"}])
    await say(ours, "memory", action="append", content="found it")
    assert "dig" in str(await say(ours, "todo_read"))
    assert "fill" in str(await say(ours, "todo", action="read"))
    assert "found it" in str(await say(ours, "memory", action="read"))
    assert await say(theirs, "todo_read") == "The checklist is empty."
    assert await say(theirs, "todo", action="read") == "The checklist is empty."
    assert "(empty)" in str(await say(theirs, "memory", action="read"))


def test_the_decks_read_state_reaches_the_tools_without_a_new_identity() -> None:
    """The read-before-edit gate would never see what was read, or lose the session's stores."""
    state, base = object(), inert_context()
    for given in (base, None):
        ctx = base_context(DeckContext("/work", DeckFramework(read_state=state), base=given))
        assert ctx.framework.read_state is state
        assert (ctx == base) is (given is base)
