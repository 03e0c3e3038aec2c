"""The catalogue of native tools: one table of rows, every question about them, and the deck assembled from it.

A tool's module is imported when its card is first built.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Final, Self

from quarterdeck.common.tool_names import Profile

from .card_types import Capability, CapabilityCard, CapabilityId, DeckContext, DeckFault, DeckFaultKind, capability_id
from .context import Framework, ToolContext
from .runner import DeckToolBox, unknown_name_text
from .spec import DefinedTool

READ_ONLY: Final = (Profile.AUTHORING, Profile.SURVEY)  # profiles of tools that change nothing
MUTATING: Final = (Profile.SURVEY,)  # profiles of tools that may change something
_APP: Final = (Profile.ALL,)  # of the deck's own cards, besides the twelve built-in tools
PROFILE_NAMES: Final = {Profile.AUTHORING: "read-only", Profile.SURVEY: "workspace", Profile.ALL: "all"}
"""The names that people choose a profile by; the enum's values are the seeds' names."""

_TABLE: Final = (
    ("read", "Read file", "Show a file's lines, or an image.", READ_ONLY, "files.read:read_tool"),
    ("ls", "List directory", "Show what a directory holds.", READ_ONLY, "files.ls:ls_tool"),
    ("grep", "Search file contents", "Find lines that match a pattern.", READ_ONLY, "search.grep:grep_tool"),
    ("find", "Find files by name", "Find files and directories by name.", READ_ONLY, "search.find:find_tool"),
    ("websearch", "Web search", "Search the web.", READ_ONLY, "web.websearch:web_search_tool"),
    ("webfetch", "Fetch URL", "Show a page of the web as text.", READ_ONLY, "web.webfetch:web_fetch_tool"),
    ("todo_read", "Read checklist", "Show the session's checklist.", READ_ONLY, "cards.checklist:todo_read_tool"),
    ("write", "Write file", "Create or replace a file.", MUTATING, "files.edit:write_tool"),
    ("edit", "Edit file", "Replace a passage of a file.", MUTATING, "files.edit:edit_tool"),
    ("bash", "Run shell command", "Run a command and show its output.", MUTATING, "commands.bash:bash_tool"),
    (
        "process",
        "Manage background processes",
        "Start, watch and stop commands that run on.",
        MUTATING,
        "commands.process:process_tool",
    ),
    ("todo_set", "Update checklist", "Replace the session's checklist.", MUTATING, "cards.checklist:todo_set_tool"),
    ("todo", "Checklist", "Keep a checklist with states and weights.", _APP, "cards.checklist:todo_tool"),
    (
        "bg-process",
        "Background process",
        "Run commands in the background, and watch them.",
        _APP,
        "commands.process:bg_process_tool",
    ),
    ("task", "Delegate task", "Hand work to a sub-agent.", _APP, "cards.delegation:task_tool"),
    (
        "saas-action",
        "SaaS action",
        "Find and run actions of connected services.",
        _APP,
        "cards.delegation:saas_action_tool",
    ),
    ("memory", "Working memory", "Keep a working note.", _APP, "cards.memory:memory_tool"),
    (
        "enter_plan_mode",
        "Enter plan mode",
        "Explore and plan before changing anything.",
        _APP,
        "cards.delegation:enter_plan_mode_tool",
    ),
    ("exit_plan_mode", "Exit plan mode", "Show a plan for approval.", _APP, "cards.delegation:exit_plan_mode_tool"),
)
"""Each tool's id, title, summary, profiles, and `module:function` below `quarterdeck.tools`.

The function of a built-in tool takes nothing and is called once: the tool holds no state, what it keeps belongs to a
context's identity.  That of an app card takes the `DeckContext`.
"""


@cache
def capability_cards() -> tuple[CapabilityCard, ...]:
    """Return the twelve built-in tools, then the seven app cards; the same tuple each time."""
    return tuple(
        CapabilityCard(capability_id(name), title, summary, profiles, partial(_build, factory, title, profiles is _APP))
        for name, title, summary, profiles, factory in _TABLE
    )


def capability_ids() -> list[CapabilityId]:
    """Return the ids, in the catalogue's order."""
    return [card.id for card in capability_cards()]


def find_card(name: str) -> CapabilityCard | None:
    """Return the row of this id, or None."""
    return next((card for card in capability_cards() if card.id == name), None)


def cards_for_profile(profile: Profile) -> list[CapabilityCard]:
    """Return the rows of `profile`, in the catalogue's order. No other code selects by profile."""
    wanted = Profile(profile)
    return [card for card in capability_cards() if card.in_profile(wanted)]


def check_tools(profile: Profile, names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set, all of which are tools of `profile`.

    Raise `DeckFault` (`unknown_capability`) with the nearest names, or the profiles that have the tool.
    """
    wanted = frozenset(names)
    known = [str(card.id) for card in cards_for_profile(profile)]
    for name in sorted(wanted.difference(known)):
        if (card := find_card(name)) is None:
            why = f"{unknown_name_text(name, known)} The profile {PROFILE_NAMES[profile]!r} has {', '.join(known)}."
        else:
            having = " and ".join(repr(PROFILE_NAMES[each]) for each in Profile if card.in_profile(each))
            why = f"{name!r} is not in the profile {PROFILE_NAMES[profile]!r}, but in {having}."
        raise DeckFault(DeckFaultKind.UNKNOWN_CAPABILITY, why)
    return wanted


def build_card(card: CapabilityCard, ctx: DeckContext) -> Capability:
    """Return the live capability of a row. Raise `DeckFault` (`build_failed`) with its cause."""
    try:
        return card.build(ctx)
    except DeckFault:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DeckFault(DeckFaultKind.BUILD_FAILED, f"{card.id} could not be built: {reason}", error) from error


def _build(factory: str, title: str, is_app: bool, ctx: DeckContext) -> Capability:
    return _made(factory, title, ctx) if is_app else _made_once(factory, title)


def _made(factory: str, title: str, *ctx: DeckContext) -> Capability:
    module, _, name = factory.partition(":")
    tool: DefinedTool = getattr(import_module(f"quarterdeck.tools.{module}"), name)(*ctx)
    return tool.titled(title)


_made_once: Final = cache(_made)


class ToolDeck:
    """The capabilities of one session, before its box is made."""

    def __init__(self, capabilities: Iterable[Capability], ctx: DeckContext) -> None:
        self._capabilities = list(capabilities)
        self._ctx = ctx

    def tools(self) -> list[Capability]:
        """Return the capabilities, in order, as a new list."""
        return list(self._capabilities)

    def graft(self, extra: Iterable[Capability]) -> Self:
        """Append capabilities. Return the deck itself, for chaining."""
        self._capabilities.extend(extra)
        return self

    def map_capabilities(self, wrap: Callable[[Capability], Capability]) -> Self:
        """Replace every capability by `wrap` of it. Return the deck itself."""
        self._capabilities = [wrap(capability) for capability in self._capabilities]
        return self

    def retain(self, keep: Callable[[Capability], bool]) -> Self:
        """Keep the capabilities that `keep` admits, in order. Return the deck itself."""
        self._capabilities = [capability for capability in self._capabilities if keep(capability)]
        return self

    def into_tool_box(self) -> DeckToolBox:
        """Make the box of the present capabilities, for one session only, as it shares the cards and their stores."""
        return DeckToolBox(self._capabilities, base_context(self._ctx))


def provision_deck(profile: Profile, ctx: DeckContext) -> ToolDeck:
    """Return the deck of `profile`. Raise `DeckFault` (`build_failed`) with its cause."""
    from .checkpoint.card import maybe_wrap_checkpoint

    store = ctx.framework.checkpoint
    built = (build_card(card, ctx) for card in cards_for_profile(profile))
    return ToolDeck((maybe_wrap_checkpoint(card, store) for card in built), ctx)


def base_context(ctx: DeckContext) -> ToolContext:
    """Return the context that every call of a deck starts from: the host's own, else a plain local one in `ctx.cwd`.

    In both, the file tools see the deck's read state.
    """
    framework = Framework(read_state=ctx.framework.read_state)
    if ctx.base is None:
        # What follows a path and judges it: most hosts bring their own.
        from .files.local_files import make_local_context

        return make_local_context(ctx.cwd, framework=framework)
    return ctx.base if framework.read_state is None else replace(ctx.base, framework=framework)
