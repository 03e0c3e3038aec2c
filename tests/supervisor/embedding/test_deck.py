"""The promised names of the deck that the product does not use."""

import asyncio
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools.cards import text_of
from support.tools.contexts import inert_context

from quarterdeck.common.tool_names import Profile
from quarterdeck.embedding import deck
from quarterdeck.tools.card_types import CapabilityCard, DeckContext, DeckFault
from quarterdeck.tools.catalogue import capability_cards, capability_ids, cards_for_profile, find_card
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import BudgetKind, JsonContentBlock, OutputBudget, TextContentBlock, ToolResult
from quarterdeck.tools.spec import DefinedTool, ToolSpec, define_tool
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall, ToolHints, WireResult

CONTEXT = DeckContext("/work")
TITLES = {str(card.id): card.title for card in capability_cards()[:12]}
"""A test of the catalogue knows them one by one."""


def card_of(result: ToolResult | Exception, seen: list[ToolContext] | None = None) -> deck.BuiltinCard:
    async def run(value: object, ctx: ToolContext) -> ToolResult:
        if seen is not None:
            seen.append(ctx)
        if isinstance(result, Exception):
            raise result
        return result

    tool = define_tool(ToolSpec("look", "Looks.", {"type": "object", "properties": {}}, run))
    return deck.BuiltinCard(tool, "Look", read_only=True)


def test_the_builtins_are_the_catalogues_first_twelve_in_order() -> None:
    """A listing, or a client's menu, would change under its users; or two lists of the same tools drift apart."""
    rows = deck.builtin_descriptors()
    assert {str(row.id): row.title for row in rows} == TITLES
    assert deck.builtin_ids() == list(TITLES) == [row.factory().name for row in rows]
    assert list(deck.builtin_bridge().values()) == list(rows)
    assert deck.builtin_profiles() == {row.id: row.profiles for row in capability_cards()[:12]}
    for row, card in zip(rows, deck.builtin_cards(), strict=True):
        assert (card.id, card.title, card.summary, card.profiles) == (row.id, row.title, row.summary, row.profiles)


@pytest.mark.parametrize("profile", Profile)
def test_a_profile_selects_its_builtins_as_the_catalogue_tells_of_them(profile: Profile) -> None:
    """A session would have other tools than its profile says; a gate and a client be told different things of one."""
    rows = [row for row in cards_for_profile(profile) if row.id in TITLES]
    built = deck.build_builtins_for_profile(profile, CONTEXT)
    assert [(card.name, card.label) for card in built] == [(row.id, row.title) for row in rows]
    assert all(card.hints and card.hints.read_only is card.read_only for card in built)


def test_building_shares_the_tool_and_not_the_card() -> None:
    """A session would wait for schemas that another has compiled already."""
    first, second = (deck.build_builtin("todo_read", CONTEXT) for _ in range(2))
    assert first is not second
    assert first.parameters is second.parameters


def test_an_unknown_name_is_a_fault_with_the_nearest() -> None:
    """Whoever misspells a tool could not tell what is there."""
    with pytest.raises(DeckFault, match=r"no tool called 'wriet': did you mean 'write'\?") as caught:
        deck.build_builtin("wriet", CONTEXT)
    assert caught.value.kind == "unknown_capability"


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


def native_card_of(hints: ToolHints | None = None, label: str = "") -> deck.NativeCard:
    spec = ToolSpec("look", "Looks.", PARAMETERS, two_blocks, title="Look", hints=hints, output_schema=PARAMETERS)
    return deck.NativeCard(define_tool(spec), label)


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
    assert deck.capability_index() is deck.capability_index()
    assert [capability_cards()[position].id for position in deck.capability_index().values()] == capability_ids()


def test_the_catalogue_is_the_twelve_and_the_seven() -> None:
    """A listing of one kind would lack a tool, or hold one of the other kind."""
    assert [*deck.builtin_ids(), *(card.id for card in deck.app_novel_cards())] == capability_ids()
    assert deck.cards_for_deck_profile(Profile.SURVEY) == cards_for_profile(Profile.SURVEY)
    assert list(deck.card_profiles()) == capability_ids()
    assert deck.has_capability("memory")
    assert not deck.has_capability("")


@pytest.mark.parametrize(
    ("card", "name"),
    [
        (deck.todo_card, "todo"),
        (deck.daemon_card, "bg-process"),
        (deck.task_card, "task"),
        (deck.saas_card, "saas-action"),
        (deck.memory_card, "memory"),
        (deck.enter_plan_mode_card, "enter_plan_mode"),
        (deck.exit_plan_mode_card, "exit_plan_mode"),
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


def registry_of(*names: str) -> deck.ToolRegistry:
    registry = deck.ToolRegistry()
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
    with pytest.raises(deck.UnknownToolError, match="no tool called 'x'") as caught:
        deck.ToolRegistry().get("x")
    assert caught.value.missing == "x"


async def test_a_box_runs_the_tools_of_its_making_over_one_context() -> None:
    """A session's tools would change under it; or a checklist set by one call be empty for the next."""
    seen: list[ToolContext] = []
    made: list[ToolContext] = []

    def make_context() -> ToolContext:
        made.append(inert_context())
        return made[-1]

    registry = registry_of("a")
    registry.register(tool("b", seen=seen))
    box = registry.to_tool_box(make_context)
    registry.register(tool("c"))
    assert [descriptor.name for descriptor in box.descriptors()] == ["a", "b"]
    outcomes = [await box.runner.run(ToolCall("9", "b", {}), CancelToken()) for _ in range(2)]
    assert [(each.id, each.output, each.is_error) for each in outcomes] == [("9", "b ran", False)] * 2
    assert seen == made * 2


def test_the_registry_holds_the_twelve_in_order() -> None:
    """Whoever uses the tools without a deck would miss one."""
    registry = deck.builtin_registry()
    names = [
        *("read", "ls", "grep", "find", "websearch", "webfetch", "write", "edit", "bash"),
        *("todo_set", "todo_read", "process"),
    ]
    assert registry.names() == tuple(names)
    assert [registry.get(name).name for name in names] == names


def test_registries_share_their_tools_and_nothing_else() -> None:
    """One session's registration would change another's tools."""
    first, second = deck.builtin_registry(), deck.builtin_registry()
    first.register(second.get("todo_read"))
    assert first is not second
    assert first.get("todo_read") is second.get("todo_read")


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Add a cache", "add-a-cache"),
        ("\n  \n# Plan: fix *all* bugs!\nsecond", "plan-fix-all-bugs"),
        ("Ünïcode Straße ½", "unicode-strae-12"),
        ("日本語", "plan"),
        ("", "plan"),
        ("---", "plan"),
        ("../../etc/passwd", "etc-passwd"),
        ("x" * 60, "x" * 48),
        ("a" * 47 + " b", "a" * 47),
        ("ﬁle", "file"),
    ],
)
def test_a_slug_says_what_the_plan_is_about(text: str, slug: str) -> None:
    """A directory of plans could not be read, or a plan's title would name a file elsewhere."""
    assert deck.plan_slug(text) == slug


@given(st.text())
def test_any_text_has_a_slug_that_is_a_name(text: str) -> None:
    """Some plan could not be kept, or would be kept outside of its directory."""
    slug = deck.plan_slug(text)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug)
    assert len(slug) <= deck.MAX_SLUG_CHARS
    assert deck.plan_slug(slug) == slug


@given(st.text())
def test_a_slug_is_that_of_a_naive_reading(text: str) -> None:
    """The rule in the documentation would be another."""
    lines = [line for line in text.splitlines() if line.strip()]
    words, word = [], ""
    for character in unicodedata.normalize("NFKD", lines[0]) if lines else "":
        if not character.isascii():
            continue
        if character.lower() in "abcdefghijklmnopqrstuvwxyz0123456789":
            word += character.lower()
        elif word:
            words.append(word)
            word = ""
    words += [word] if word else []
    naive = "-".join(words)[:48]
    assert deck.plan_slug(text) == (naive.removesuffix("-") or "plan")


def test_a_plan_is_written_beside_earlier_ones_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second plan of the same title would replace the first."""
    monkeypatch.setattr(deck.time, "time_ns", lambda: 36**8 * 1_000_000)
    first, second = deck.write_plan(tmp_path, "# Dig\nä"), deck.write_plan(str(tmp_path), "# Dig\ndeeper")
    assert first == deck.plan_file_path(tmp_path, "100000000-dig") == tmp_path / deck.PLANS_DIRNAME / "100000000-dig.md"
    assert second.name == "100000001-dig.md"
    assert (deck.read_plan(first), deck.read_plan(str(second))) == ("# Dig\nä", "# Dig\ndeeper")
    assert first.stat().st_mode & 0o777 == 0o600


def test_names_sort_by_time(tmp_path: Path) -> None:
    """The newest plan would have to be guessed."""
    assert deck.write_plan(tmp_path, "b").name < deck.write_plan(tmp_path, "b").name


def test_what_cannot_be_read_is_no_plan(tmp_path: Path) -> None:
    """A missing or broken file would end whoever looks for a plan."""
    assert deck.read_plan(tmp_path / "missing.md") is None
    assert deck.read_plan(tmp_path) is None
    (tmp_path / "binary.md").write_bytes(b"\xff")
    assert deck.read_plan(tmp_path / "binary.md") is None
    (tmp_path / "large.md").write_bytes(b"x" * (deck.MAX_PLAN_BYTES + 1))
    assert deck.read_plan(tmp_path / "large.md") is None
    assert deck.read_plan("a\0b") is None


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (35, "z"), (36, "10"), (1_700_000_000_000, "loyw3v28")])
def test_a_time_is_written_in_base_36(number: int, text: str) -> None:
    """Files of other editions could not be sorted among ours."""
    assert deck._base36(number) == text
    assert int(text, 36) == number
