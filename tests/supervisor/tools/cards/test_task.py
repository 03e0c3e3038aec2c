"""Work for sub-agents."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from support.cards import ask, text_of

from quarterdeck.tools.cards.task import task_card
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.deck.contract import DeckContext, DeckFramework, DelegateReport, Delegation


@dataclass
class Runner:
    """Reports what it is told to report."""

    report: DelegateReport = field(default_factory=lambda: DelegateReport(ok=True, text="done it"))
    agents: Sequence[str] = ()
    given: list[Delegation] = field(default_factory=list)

    def list_agents(self) -> Sequence[str]:
        """The agents."""
        return self.agents

    async def run(self, work: Delegation, ctx: ToolContext) -> DelegateReport:
        """Remember, report."""
        self.given.append(work)
        return self.report


def description(runner: Runner | None) -> str:
    return task_card().build(DeckContext("/work", DeckFramework(delegate=runner))).description


@pytest.mark.anyio
async def test_without_a_runner_the_card_says_what_is_missing() -> None:
    """A model would wait for work that nobody does."""
    result = await ask(task_card())(objective="dig")
    assert result.is_error
    assert "DeckFramework.delegate" in text_of(result)


@pytest.mark.anyio
async def test_the_work_arrives_and_the_report_comes_back_verbatim() -> None:
    """A sub-agent would do something else, or be misquoted."""
    runner = Runner()
    run = ask(task_card(), DeckFramework(delegate=runner))
    assert text_of(await run(objective="dig", agent="digger", context="here")) == "done it"
    await run(objective="fill")
    assert runner.given == [Delegation("dig", "digger", "here"), Delegation("fill")]


@pytest.mark.anyio
async def test_a_failed_report_is_an_error() -> None:
    """A model would build on work that was not done."""
    runner = Runner(DelegateReport(ok=False, text="hit rock"))
    result = await ask(task_card(), DeckFramework(delegate=runner))(objective="dig")
    assert (text_of(result), result.is_error) == ("hit rock", True)


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", [{}, {"objective": ""}, {"objective": 5}, {"objective": "x", "who": "y"}])
async def test_a_wrong_call_delegates_nothing(arguments: dict[str, object]) -> None:
    """An agent would be started without work."""
    runner = Runner()
    result = await ask(task_card(), DeckFramework(delegate=runner))(**arguments)
    assert result.is_error
    assert runner.given == []


def test_the_agents_are_named_in_the_description() -> None:
    """A model could not know whom to name."""
    assert description(Runner(agents=["digger", "filler"])).endswith("Agents: digger, filler.")
    assert "and 10 more" in description(Runner(agents=[f"a{n}" for n in range(60)]))
    assert description(Runner()) == description(None)
