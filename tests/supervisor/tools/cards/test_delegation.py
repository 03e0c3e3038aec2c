"""Work for sub-agents and connected services, and plan mode's markers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from support.tools.cards import ask, text_of

from quarterdeck.tools.card_types import (
    Capability,
    DeckContext,
    DeckFramework,
    DelegateReport,
    Delegation,
    SaasAction,
    SaasReply,
)
from quarterdeck.tools.cards.delegation import enter_plan_mode_tool, exit_plan_mode_tool, saas_action_tool, task_tool
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock


@pytest.mark.parametrize(
    ("build", "arguments", "missing"),
    [
        (task_tool, {"objective": "dig"}, "DeckFramework.delegate"),
        (saas_action_tool, {"action": "discover"}, "DeckFramework.saas"),
        (saas_action_tool, {"action": "execute"}, "DeckFramework.saas"),
    ],
)
async def test_a_card_without_its_backend_says_what_is_missing(
    build: Callable[[DeckContext], Capability], arguments: dict[str, object], missing: str
) -> None:
    """A model would wait for work that nobody does, or take silence for success."""
    result = await ask(build)(**arguments)
    assert result.is_error
    assert missing in text_of(result)


@dataclass
class Runner:
    """Reports what it is told to report."""

    report: DelegateReport = field(default_factory=lambda: DelegateReport(ok=True, text="done it"))
    agents: Sequence[str] = ()
    given: list[Delegation] = field(default_factory=list)

    def list_agents(self) -> Sequence[str]:
        return self.agents

    async def run(self, work: Delegation, ctx: ToolContext) -> DelegateReport:
        self.given.append(work)
        return self.report


def description(runner: Runner | None) -> str:
    return task_tool(DeckContext("/work", DeckFramework(delegate=runner))).description


async def test_the_work_arrives_and_the_report_comes_back_verbatim_also_of_a_failure() -> None:
    runner = Runner()
    run = ask(task_tool, DeckFramework(delegate=runner))
    assert text_of(await run(objective="dig", agent="digger", context="here")) == "done it"
    runner.report = DelegateReport(ok=False, text="hit rock")
    failed = await run(objective="fill")
    assert (text_of(failed), failed.is_error) == ("hit rock", True)
    assert runner.given == [Delegation("dig", "digger", "here"), Delegation("fill")]


def test_the_agents_are_named_in_the_description() -> None:
    """A model could not know whom to name."""
    assert description(Runner(agents=["digger", "filler"])).endswith("Agents: digger, filler.")
    assert "and 10 more" in description(Runner(agents=[f"a{n}" for n in range(60)]))
    assert description(Runner()) == description(None)


@dataclass
class Gateway:
    """Answers as it is told."""

    actions: Sequence[SaasAction] = ()
    reply: SaasReply = field(default_factory=lambda: SaasReply(ok=True))
    asked: list[tuple[object, ...]] = field(default_factory=list)

    async def discover(self, query: str | None, toolkits: Sequence[str]) -> Sequence[SaasAction]:
        self.asked.append((query, *toolkits))
        return self.actions

    async def execute(self, slug: str, arguments: dict[str, object]) -> SaasReply:
        self.asked.append((slug, arguments))
        return self.reply


async def test_actions_are_listed_by_their_slugs() -> None:
    """A model could not tell what to execute."""
    gateway = Gateway([SaasAction("GITHUB_CREATE_ISSUE", "Creates\nan issue."), SaasAction("X", "")])
    run = ask(saas_action_tool, DeckFramework(saas=gateway))
    text = text_of(await run(action="discover", query="issue", toolkits=["github"]))
    assert text == "- GITHUB_CREATE_ISSUE — Creates an issue.\n- X — "
    gateway.actions = ()
    nothing = await run(action="discover")
    assert ("No action matches" in text_of(nothing), nothing.is_error) == (True, False)
    assert gateway.asked == [("issue", "github"), (None,)]


async def test_an_action_runs_with_its_slug_and_arguments_untouched() -> None:
    """A vendor would get another action than was asked for."""
    gateway = Gateway(reply=SaasReply(ok=True, data={"id": 7, "title": "ä"}))
    run = ask(saas_action_tool, DeckFramework(saas=gateway))
    text = text_of(await run(action="execute", slug="GITHUB_CREATE_ISSUE", arguments={"any": {"thing": [1]}}))
    assert text == '{\n  "id": 7,\n  "title": "ä"\n}'
    await run(action="execute", slug="X")
    assert gateway.asked == [("GITHUB_CREATE_ISSUE", {"any": {"thing": [1]}}), ("X", {})]
    refused = await run(action="execute")
    assert ("execute needs slug" in text_of(refused), refused.is_error, len(gateway.asked)) == (True, True, 2)


@pytest.mark.parametrize(("error", "said"), [("no rights", "no rights"), ("", "X failed, and")])
async def test_a_failed_action_is_an_error(error: str, said: str) -> None:
    """A model would build on an issue that was never made."""
    gateway = Gateway(reply=SaasReply(ok=False, error=error))
    result = await ask(saas_action_tool, DeckFramework(saas=gateway))(action="execute", slug="X")
    assert result.is_error
    assert said in text_of(result)


async def test_entering_is_marked_and_told() -> None:
    """A host could not see the wish, or a model would go on changing things."""
    result = await ask(enter_plan_mode_tool)()
    marker, prose = result.content
    assert marker == JsonContentBlock({"enterPlanMode": True, "applied": False})
    assert isinstance(prose, TextContentBlock)
    assert "only explore" in prose.text
    assert not result.is_error


async def test_leaving_carries_the_plan() -> None:
    """A host would have nothing to show its user."""
    result = await ask(exit_plan_mode_tool)(plan="# Dig\n1. dig")
    assert list(result.content) == [JsonContentBlock({"exitPlan": True, "plan": "# Dig\n1. dig"})]
