"""`enter_plan_mode` and `exit_plan_mode`: marks that a host watches for, and the files that keep approved plans.

The tools change nothing: whoever runs the session sees their markers and switches the mode.
"""

import re
import time
import unicodedata
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.common.files.replace import replace_file
from quarterdeck.config.native_names import Profile
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.deck.contract import Capability, CapabilityCard, DeckContext, JsonSchema, capability_id
from quarterdeck.tools.deck.native_card import NativeCard
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.spec import Arguments, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

ENTER: Final = capability_id("enter_plan_mode")
ENTER_TITLE: Final = "Enter plan mode"

EXIT: Final = capability_id("exit_plan_mode")
EXIT_TITLE: Final = "Exit plan mode"

PLANS_DIRNAME: Final = "plans"
"""Within a session's directory."""

MAX_SLUG_CHARS: Final = 48
"""Long enough to tell plans apart, short enough for a listing."""

MAX_PLAN_BYTES: Final = 1024 * 1024
"""Of a plan that is read back; one that a person approved is far shorter."""

EXPLORE: Final = (
    "Plan mode is asked for. Until a plan is approved only explore: read, search, look things up; change nothing and "
    "run nothing that changes something. Then call exit_plan_mode with the plan."
)

_HINTS: Final = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class EnterArguments(Arguments, frozen=True):
    """Nothing."""


class ExitArguments(Arguments, frozen=True):
    """The plan."""

    plan: Annotated[str, Meta(min_length=1, description="The whole plan as Markdown, its first line a title.")]


def enter_plan_mode_card() -> CapabilityCard:
    """The catalogue's row."""
    return CapabilityCard(ENTER, ENTER_TITLE, "Explore and plan before changing anything.", (Profile.ALL,), _enter)


def exit_plan_mode_card() -> CapabilityCard:
    """The catalogue's row."""
    return CapabilityCard(EXIT, EXIT_TITLE, "Show a plan for approval.", (Profile.ALL,), _exit)


def _enter(_: DeckContext) -> Capability:
    return NativeCard(
        define_tool(
            ToolSpec(
                ENTER,
                "Mark that you plan first: from then on only explore, until the user has approved a plan. Use it "
                "before work of several steps or with choices that are the user's. Nothing is locked by it.",
                _enter_parameters(),
                typed(EnterArguments, _run_enter),
                title=ENTER_TITLE,
                hints=_HINTS,
            )
        )
    )


def _exit(_: DeckContext) -> Capability:
    return NativeCard(
        define_tool(
            ToolSpec(
                EXIT,
                "Mark the plan as finished, to leave plan mode. A client that knows this mark asks the user for "
                "approval; most do not, so put the plan to the user yourself and wait for the answer.",
                _exit_parameters(),
                typed(ExitArguments, _run_exit),
                title=EXIT_TITLE,
                hints=_HINTS,
            )
        )
    )


async def _run_enter(_: EnterArguments, __: ToolContext) -> ToolResult:
    return ToolResult((JsonContentBlock({"enterPlanMode": True, "applied": False}), TextContentBlock(EXPLORE)))


async def _run_exit(arguments: ExitArguments, _: ToolContext) -> ToolResult:
    return ToolResult((JsonContentBlock({"exitPlan": True, "plan": arguments.plan}),))


@cache
def _enter_parameters() -> JsonSchema:
    return schema_of(EnterArguments)


@cache
def _exit_parameters() -> JsonSchema:
    return schema_of(ExitArguments)


def plan_slug(plan: str) -> str:
    """A name for the plan's file: its first line that says something, as lower-case ASCII words joined by `-`.

    At most `MAX_SLUG_CHARS` long, never beginning or ending in `-`; `plan` when nothing is left.
    """
    title = next((line for line in plan.splitlines() if line.strip()), "")
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:MAX_SLUG_CHARS].rstrip("-") or "plan"


def plan_file_path(session_dir: Path | str, slug: str) -> Path:
    """Where the plan of this name is kept."""
    return Path(session_dir) / PLANS_DIRNAME / f"{slug}.md"


def write_plan(session_dir: Path | str, plan: str) -> Path:
    """Keep a plan, beside all earlier ones; its file, named `<time in base 36>-<slug>.md`.

    Raises:
        OSError: it cannot be written.
    """
    milliseconds, slug = time.time_ns() // 1_000_000, plan_slug(plan)
    while True:
        path = plan_file_path(session_dir, f"{_base36(milliseconds)}-{slug}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            replace_file(path, plan.encode("utf-8", "replace"), must_be_new=True)
        except FileExistsError:
            milliseconds += 1  # two plans in one millisecond
            continue
        return path


def read_plan(path: Path | str) -> str | None:
    """The plan in a file; None when it is missing, unreadable, or too large to be one."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PLAN_BYTES + 1)
        return data.decode() if len(data) <= MAX_PLAN_BYTES else None
    except (OSError, ValueError):
        return None


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"
