"""What the tools of a deck cost a model."""

import msgspec

from quarterdeck.cli.run.tool_tokens import Cost, token_report
from quarterdeck.common.tokens import tokens_of_tool
from quarterdeck.control.protocol import ToolList, ToolView


def view(name: str, *, alias: str = "", **definition: object) -> ToolView:
    own = {"name": "own", "inputSchema": {}, **definition}
    return ToolView(name, name.rpartition("__")[0], "", msgspec.Raw(msgspec.json.encode(own)), alias)


def test_tools_servers_and_groups_are_counted_dearest_first() -> None:
    """What fills a context could not be found, or a group be chosen by what it costs."""
    tools = (view("grep"), view("a__x"), view("b__y", description="long " * 50), view("b__z"))
    report = token_report(ToolList(tools, (), groups={"small": ("a__x", "b__z"), "none": (), "large": ("b__y",)}))
    assert [cost.name for cost in report.tools] == ["b__y", "a__x", "b__z", "grep"]
    assert [(cost.name, cost.tools) for cost in report.servers] == [("b", 2), ("a", 1), ("native tools", 1)]
    assert [(cost.name, cost.tools) for cost in report.groups] == [("large", 1), ("small", 2), ("none", 0)]
    assert report.total == Cost("all", 4, sum(cost.tokens for cost in report.tools))
    assert (report.tokenizer, report.warning) == ("an estimate, 1 token for 4.4 characters", "")


def test_a_tool_is_counted_under_the_name_and_words_that_models_are_given() -> None:
    """A renamed tool would cost what the server's own does."""
    tool = view("server__long_name", alias="s__long", description="Ours.")
    wanted = tokens_of_tool({"name": "s__long", "description": "Ours.", "inputSchema": {}})
    assert token_report(ToolList((tool,), ())).total.tokens == wanted


def test_a_deck_that_is_much_for_a_model_is_warned_of_with_what_helps() -> None:
    """Nobody would know why a model chooses badly."""
    many = token_report(ToolList(tuple(view(f"a__{number}") for number in range(41)), ()))
    dear = token_report(ToolList((view("a__x", description="x" * 50_000),), ()))
    few = token_report(ToolList(tuple(view(f"a__{number}") for number in range(40)), ()))
    assert (few.warning, few.total.tools) == ("", 40)
    for report in (many, dear):
        assert f" of {report.total.tokens:,} tokens: that is much" in report.warning
        assert all(word in report.warning for word in ("--search", "--group NAME", '"hide" in the row of a'))


def test_a_group_that_is_not_much_itself_is_named_as_what_helps() -> None:
    """Who has groups would be told to make one; or be told of one that is too large as well, or empty."""
    tools = tuple(view(f"a__{number}") for number in range(90))
    groups = {
        "most": tuple(tool.name for tool in tools[:50]),
        "some": tuple(tool.name for tool in tools[:9]),
        "few": tuple(tool.name for tool in tools[:2]),
        "none": (),
    }
    assert "serve --group some those of that group" in token_report(ToolList(tools, (), groups=groups)).warning
    natives = tuple(ToolView(f"n{number}", "", "", msgspec.Raw(b"{}")) for number in range(90))
    assert "hide" not in token_report(ToolList(natives, ())).warning
