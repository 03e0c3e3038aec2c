"""The promised names of the deck that the product does not use."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.tools.cards import text_of
from support.tools.contexts import inert_context

from quarterdeck.common.tool_names import Profile
from quarterdeck.embedding import deck
from quarterdeck.embedding.deck import (
    BuiltinCard,
    NativeCard,
    ToolRegistry,
    UnknownToolError,
    app_novel_cards,
    build_builtin,
    build_builtins_for_profile,
    builtin_bridge,
    builtin_cards,
    builtin_descriptors,
    builtin_ids,
    builtin_profiles,
    builtin_registry,
    capability_index,
    card_profiles,
    cards_for_deck_profile,
    daemon_card,
    enter_plan_mode_card,
    exit_plan_mode_card,
    has_capability,
    memory_card,
    saas_card,
    task_card,
    todo_card,
)
from quarterdeck.tools.card_types import CapabilityCard, DeckContext, DeckFault, DeckFaultKind, capability_id
from quarterdeck.tools.catalogue import build_card, capability_cards, capability_ids, cards_for_profile, find_card
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import BudgetKind, JsonContentBlock, OutputBudget, TextContentBlock, ToolResult
from quarterdeck.tools.spec import DefinedTool, ToolSpec, define_tool
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall, ToolHints, WireResult

CONTEXT = DeckContext("/work")
READ_ONLY_NAMES = ("read", "ls", "grep", "find", "websearch", "webfetch", "todo_read")

TITLES = {str(card.id): card.title for card in capability_cards()[:12]}
"""A test of the catalogue knows them one by one."""


def card_of(result: ToolResult | Exception, seen: list[ToolContext] | None = None) -> BuiltinCard:
    async def run(value: object, ctx: ToolContext) -> ToolResult:
        if seen is not None:
            seen.append(ctx)
        if isinstance(result, Exception):
            raise result
        return result

    tool = define_tool(ToolSpec("look", "Looks.", {"type": "object", "properties": {}}, run))
    return BuiltinCard(tool, "Look", read_only=True)


def test_the_table_has_twelve_rows_in_the_documented_order_with_their_titles() -> None:
    """A listing, or a client's menu, would change under its users."""
    assert {str(row.id): row.title for row in builtin_descriptors()} == TITLES
    assert builtin_ids() == list(TITLES)
    assert len(builtin_descriptors()) == 12
    assert all(row.summary for row in builtin_descriptors())


def test_each_row_makes_the_tool_of_its_name() -> None:
    """A model would call a name that no tool has."""
    assert [row.factory().name for row in builtin_descriptors()] == builtin_ids()


def test_what_observes_is_in_both_profiles_and_what_changes_in_survey_alone() -> None:
    """The inversion is deliberate: `authoring` would hand out tools that write."""
    for name, profiles in builtin_profiles().items():
        expected = (Profile.AUTHORING, Profile.SURVEY) if name in READ_ONLY_NAMES else (Profile.SURVEY,)
        assert profiles == expected, name


def test_flag_and_hint_of_every_tool_agree_with_its_profiles() -> None:
    """A permission gate and a client would be told different things of one tool."""
    for card in build_builtins_for_profile(Profile.ALL, CONTEXT):
        is_read_only = card.name in READ_ONLY_NAMES
        assert card.hints is not None, card.name
        assert (card.read_only, card.hints.read_only) == (is_read_only, is_read_only), card.name
        assert card.label == TITLES[card.name]


def test_the_views_are_of_one_table() -> None:
    """Two lists of the same tools would drift apart."""
    assert list(builtin_bridge().values()) == list(builtin_descriptors())
    for row, card in zip(builtin_descriptors(), builtin_cards(), strict=True):
        assert (card.id, card.title, card.summary, card.profiles) == (row.id, row.title, row.summary, row.profiles)


def test_building_shares_the_tool_and_not_the_card() -> None:
    """A session would wait for schemas that another has compiled already."""
    first, second = (build_builtin("todo_read", CONTEXT) for _ in range(2))
    assert first is not second
    assert first.parameters is second.parameters


@pytest.mark.parametrize(
    ("profile", "names"),
    [(Profile.AUTHORING, list(TITLES)[:7]), (Profile.SURVEY, list(TITLES)), (Profile.ALL, list(TITLES))],
)
def test_a_profile_selects_its_builtins(profile: Profile, names: list[str]) -> None:
    """A session would have more or fewer tools than its profile says."""
    assert [card.name for card in build_builtins_for_profile(profile, CONTEXT)] == names


def test_an_unknown_name_is_a_fault_with_the_nearest() -> None:
    """Whoever misspells a tool could not tell what is there."""
    with pytest.raises(DeckFault, match=r"no tool called 'wriet': did you mean 'write'\?") as caught:
        build_builtin("wriet", CONTEXT)
    assert caught.value.kind == "unknown_capability"


def test_a_build_that_raises_is_a_fault_with_its_cause() -> None:
    """A broken tool would end a session with a traceback."""
    cause = LookupError("no such module")

    def build(_: DeckContext) -> BuiltinCard:
        raise cause

    row = CapabilityCard(capability_id("look"), "Look", "", (Profile.SURVEY,), build)
    with pytest.raises(DeckFault, match="look could not be built: no such module") as caught:
        build_card(row, CONTEXT)
    assert (caught.value.kind, caught.value.cause) == ("build_failed", cause)
    assert caught.value.__cause__ is cause


def test_a_fault_of_a_build_stays_what_it_is() -> None:
    """A missing backend would be reported as a broken tool."""
    fault = DeckFault(DeckFaultKind.BACKEND, "no gateway")

    def build(_: DeckContext) -> BuiltinCard:
        raise fault

    with pytest.raises(DeckFault) as caught:
        build_card(CapabilityCard(capability_id("look"), "Look", "", (Profile.SURVEY,), build), CONTEXT)
    assert caught.value is fault


@pytest.mark.parametrize(
    ("result", "block"),
    [
        (ToolResult.of_text("seen"), TextContentBlock("seen")),
        (ToolResult((JsonContentBlock({"a": 1}),)), JsonContentBlock({"a": 1})),
        (ToolResult((JsonContentBlock("a"),)), TextContentBlock("a")),
        (ToolResult(()), JsonContentBlock([])),
        (
            ToolResult((TextContentBlock("a"), JsonContentBlock(1))),
            JsonContentBlock([{"type": "text", "text": "a"}, {"type": "json", "value": 1}]),
        ),
    ],
)
async def test_an_outcome_becomes_one_block(result: ToolResult, block: object) -> None:
    """A part of a result would be lost between kernel and deck."""
    assert await card_of(result).run({}, inert_context()) == ToolResult((block,))


async def test_an_error_stays_one_and_nothing_is_raised() -> None:
    """A failure would look like a success, or end the session."""
    told = await card_of(ToolResult.of_error("no")).run({}, inert_context())
    assert (text_of(told), told.is_error) == ("no", True)
    raised = await card_of(ValueError("broken")).run({}, inert_context())
    assert (text_of(raised), raised.is_error) == ("look did not finish: broken", True)


async def test_the_wire_form_and_the_structure_go_along() -> None:
    """An image would reach its client as JSON about an image, and a program would miss what it was promised."""
    wire, structured = WireResult(b'{"content":[]}', "2025-11-25"), {"n": 1}
    given = ToolResult((TextContentBlock("a"),), wire=wire, structured=structured)
    result = await card_of(given).run({}, inert_context())
    assert (result.wire, result.structured) == (wire, structured)


async def test_token_and_progress_reach_the_tool() -> None:
    """A command could neither be stopped nor watched."""
    seen: list[ToolContext] = []
    notes: list[ProgressNote] = []
    token = CancelToken()
    base = inert_context().with_cancel(token)
    context = ToolContext(base.cwd, base.fs, base.shell, token, report=notes.append)
    await card_of(ToolResult.of_text("a"), seen).run({}, context)
    assert seen[0].cancel is token
    seen[0].tell(1)
    assert notes == [ProgressNote(1)]


async def test_cancellation_of_the_task_passes() -> None:
    """A client that gives up would wait for a result nobody wants."""
    started = asyncio.Event()

    async def hang(value: object, ctx: ToolContext) -> ToolResult:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    tool = define_tool(ToolSpec("look", "Looks.", {"type": "object", "properties": {}}, hang))
    task = asyncio.ensure_future(BuiltinCard(tool).run({}, inert_context()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_call_is_named_after_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of calls could not tell the deck's own from a client's."""
    made: list[str] = []
    original = deck.ToolCall

    def make(*args: object) -> object:
        made.append(str(args[0]))
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(deck, "ToolCall", make)
    asyncio.run(card_of(ToolResult.of_text("a")).run({}, inert_context()))  # type: ignore[arg-type]
    assert made == ["look-builtin"]


PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


async def two_blocks(value: object, ctx: ToolContext) -> ToolResult:
    return ToolResult((TextContentBlock("x" * 100), JsonContentBlock({"given": value})))


def native_card_of(hints: ToolHints | None = None, label: str = "") -> NativeCard:
    spec = ToolSpec("look", "Looks.", PARAMETERS, two_blocks, title="Look", hints=hints, output_schema=PARAMETERS)
    return NativeCard(define_tool(spec), label)


def test_a_card_says_what_its_tool_says() -> None:
    """A model or a client would be told something else than what runs."""
    hints = ToolHints(read_only=True)
    card = native_card_of(hints)
    assert (card.name, card.label, card.description, card.parameters) == ("look", "Look", "Looks.", PARAMETERS)
    assert (card.hints, card.read_only, card.definition, card.output_schema) == (hints, True, None, PARAMETERS)


def test_the_decks_own_words_win_for_people() -> None:
    """The catalogue and the session would call one tool by two names."""
    assert native_card_of(label="Look around").label == "Look around"


def test_a_tool_without_hints_is_not_taken_for_harmless() -> None:
    """A permission that is needed would not be asked for."""
    assert not native_card_of().read_only


async def test_every_block_of_a_result_stays() -> None:
    """A marker beside a text would be lost to whoever watches for it."""
    result = await native_card_of().run({"path": "a"}, inert_context())
    assert [block.kind for block in result.content] == ["text", "json"]


async def test_input_is_judged_and_texts_are_cut_as_for_any_native_tool() -> None:
    """An app card would raise on wrong input, or flood a model."""
    wrong = await native_card_of().run({}, inert_context())
    assert wrong.is_error
    assert "path is missing" in text_of(wrong)
    narrow = replace(inert_context(), budget=OutputBudget(BudgetKind.HEAD, 10))
    text = (await native_card_of().run({"path": "a"}, narrow)).content[0]
    assert isinstance(text, TextContentBlock)
    assert text.text == f"{'x' * 10}\n[90 bytes left out]\n"


def test_the_index_says_where_each_stands() -> None:
    """A tool asked for by name would be another one."""
    assert capability_index() is capability_index()
    assert [capability_cards()[position].id for position in capability_index().values()] == capability_ids()


def test_the_catalogue_is_the_twelve_and_the_seven() -> None:
    """A listing of one kind would lack a tool, or hold one of the other kind."""
    assert [*builtin_ids(), *(card.id for card in app_novel_cards())] == capability_ids()
    assert cards_for_deck_profile(Profile.SURVEY) == cards_for_profile(Profile.SURVEY)
    assert list(card_profiles()) == capability_ids()
    assert has_capability("memory")
    assert not has_capability("")


@pytest.mark.parametrize(
    ("card", "name"),
    [
        (todo_card, "todo"),
        (daemon_card, "bg-process"),
        (task_card, "task"),
        (saas_card, "saas-action"),
        (memory_card, "memory"),
        (enter_plan_mode_card, "enter_plan_mode"),
        (exit_plan_mode_card, "exit_plan_mode"),
    ],
)
def test_each_app_card_has_its_row(card: Callable[[], CapabilityCard], name: str) -> None:
    """An embedder would be given another card than the one that was asked for."""
    assert card() is find_card(name)


def tool(name: str, description: str = "", seen: list[ToolContext] | None = None) -> DefinedTool:
    async def run(arguments: object, ctx: ToolContext) -> ToolResult:
        if seen is not None:
            seen.append(ctx)
        return ToolResult.of_text(f"{name} ran")

    return define_tool(ToolSpec(name, description, {"type": "object", "properties": {}}, run))


def registry_of(*names: str) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_all(map(tool, names))
    return registry


def test_a_second_registration_replaces_and_keeps_the_position() -> None:
    """A list of tools would change its order when one is replaced."""
    registry = registry_of("a", "b")
    registry.register(tool("a", "newer"))
    assert registry.names() == ("a", "b")
    assert registry.get("a").description == "newer"
    assert registry.has("a")
    assert not registry.has("c")


def test_an_unknown_tool_is_named() -> None:
    """A caller could not tell what was missing."""
    with pytest.raises(UnknownToolError, match="no tool called 'x'") as caught:
        ToolRegistry().get("x")
    assert caught.value.missing == "x"


def test_a_box_holds_the_tools_of_its_making() -> None:
    """A session's tools would change under it without a notice."""
    registry = registry_of("a", "b")
    box = registry.to_tool_box(inert_context)
    registry.register(tool("c"))
    assert [descriptor.name for descriptor in box.descriptors()] == ["a", "b"]


async def test_all_calls_of_a_box_share_one_identity_and_none_a_token() -> None:
    """A checklist set by one call would be empty for the next; or one cancelled call would stop all."""
    seen: list[ToolContext] = []
    made: list[ToolContext] = []

    def make_context() -> ToolContext:
        made.append(inert_context())
        return made[-1]

    registry = ToolRegistry()
    registry.register(tool("a", seen=seen))
    box = registry.to_tool_box(make_context)
    tokens = [CancelToken(), CancelToken()]
    for token in tokens:
        await box.runner.run(ToolCall("1", "a", {}), token)
    assert len(made) == 1
    assert seen == [made[0], made[0]]
    assert [context.cancel for context in seen] == tokens


async def test_a_call_runs_the_named_tool() -> None:
    """Calls would go to another tool."""
    outcome = await registry_of("a", "b").to_tool_box(inert_context).runner.run(ToolCall("9", "b", {}), CancelToken())
    assert (outcome.id, outcome.output, outcome.is_error) == ("9", "b ran", False)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("reed", "There is no tool called 'reed': did you mean 'read'?"),
        ("xyz", "There is no tool called 'xyz'."),
        ("x" * 1000, f"There is no tool called '{'x' * 162}'."),
    ],
)
async def test_an_unknown_name_is_an_outcome_with_suggestions(asked: str, text: str) -> None:
    """A model could not correct a slip, or would be sent back a name of any length."""
    box = registry_of("read", "write").to_tool_box(inert_context)
    outcome = await box.runner.run(ToolCall("1", asked, {}), CancelToken())
    assert (outcome.id, outcome.output, outcome.is_error) == ("1", text, True)


def test_the_registry_holds_the_twelve_in_order() -> None:
    """Whoever uses the tools without a deck would miss one."""
    registry = builtin_registry()
    names = [
        *("read", "ls", "grep", "find", "websearch", "webfetch", "write", "edit", "bash"),
        *("todo_set", "todo_read", "process"),
    ]
    assert registry.names() == tuple(names)
    assert [registry.get(name).name for name in names] == names


def test_registries_share_their_tools_and_nothing_else() -> None:
    """One session's registration would change another's tools."""
    first, second = builtin_registry(), builtin_registry()
    first.register(second.get("todo_read"))
    assert first is not second
    assert first.get("todo_read") is second.get("todo_read")
