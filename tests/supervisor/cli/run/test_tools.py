"""`tools` and `call`: arguments in, results for people or programs out."""

import io
import json
import sys

import msgspec
import pytest
from support.command_line import Said

from quarterdeck.cli.program import run
from quarterdeck.cli.run import tools
from quarterdeck.cli.run.tools import Cost, token_report
from quarterdeck.common.tokens import tokens_of_tool
from quarterdeck.daemon.control.protocol import (
    Answer,
    Call,
    Fault,
    FaultView,
    Request,
    Result,
    ServerView,
    ToolList,
    Tools,
    ToolView,
)

DOWN = FaultView("spawn_failed", "command_not_found", "npx is not there", "install it", "not_sent")


class Asked:
    """Stands for whoever answers; keeps what was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.request: Request | None = None
        self.only: str | None = None

    def __call__(self, source: object, request: Request, *, only: str | None = None) -> Answer:
        """Answer."""
        self.request, self.only = request, only
        return self.answer


def answering(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> Asked:
    asked = Asked(answer)
    monkeypatch.setattr(tools, "ask", asked)
    monkeypatch.setenv("QUARTERDECK_CONFIG", "mcp.json")
    return asked


def result(value: object, *, is_error: bool = False) -> Result:
    return Result(msgspec.Raw(msgspec.json.encode(value)), is_error)


def test_tools_are_listed_and_the_absent_and_held_are_named(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A tool that is missing because its server is down, or held, would be looked for elsewhere."""
    view = ServerView("git", "faulted", "stdio", 0, None, None, None, None, 0, None, DOWN)
    tool = ToolView("fs__read", "fs", "Reads\x1b[2J a file.\nMore.", msgspec.Raw(b'{"name":"read"}'))
    answering(monkeypatch, ToolList((tool,), (view,)))
    out, err = said(0, "tools")
    assert out.splitlines() == ["TOOL      DESCRIPTION", "fs__read  Reads\\x1b[2J a file."]
    assert err == "git is faulted and offers nothing: npx is not there\n  fix: install it\n"
    listed = said.json(0, "tools", "--json")
    assert listed["tools"][0]["definition"] == {"name": "read"}
    assert listed["absent"][0]["fault"]["code"] == "command_not_found"
    asked = answering(monkeypatch, ToolList((), ()))
    assert run(["tools", "fs"]) == 0
    assert (asked.request, asked.only) == (Tools(server="fs"), "fs")
    why = "fs is not started: its command line was never approved"
    view = ServerView("fs", "faulted", "stdio", 0, None, None, None, None, 0, None, FaultView("k", "c", why, "r", "d"))
    answering(monkeypatch, ToolList((), (view,), ("git: 2 tools are held (2 new): see quarterdeck trust diff git",)))
    out, err = said(0, "tools")
    assert out == ""
    assert err.splitlines() == ["git: 2 tools are held (2 new): see quarterdeck trust diff git", why, "  fix: r"]


def test_what_tools_cost_is_shown_for_people_and_for_programs(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A deck that is too large, or a part of it that could not be counted, would not be seen to be."""
    view = ServerView("git", "faulted", "stdio", 0, None, None, None, None, 0, None, DOWN)
    tool = ToolView("fs__read", "fs", "", msgspec.Raw(b'{"name":"read","description":"%s"}' % (b"x" * 48_000)))
    answering(monkeypatch, ToolList((tool,), (view,), groups={"g\x1b[2J": ("fs__read",)}))
    out, err = said(0, "tools", "--tokens")
    assert [line.split() for line in out.splitlines() if line][:6] == [
        ["TOOL", "TOOLS", "TOKENS"],
        ["fs__read", "1", "10,918"],
        ["SERVER", "TOOLS", "TOKENS"],
        ["fs", "1", "10,918"],
        ["GROUP", "TOOLS", "TOKENS"],
        ["g\\x1b[2J", "1", "10,918"],
    ]
    assert out.splitlines()[-1] == "1 tool, 10,918 tokens (an estimate, 1 token for 4.4 characters)"
    assert err.startswith("warning: 1 tool of 10,918 tokens: that is much")
    assert "git is faulted" in err
    shown = said.json(0, "tools", "--tokens", "--json")
    assert shown["total"] == {"name": "all", "tools": 1, "tokens": 10_918}
    assert shown["tokenizer"] == "an estimate, 1 token for 4.4 characters"


def test_tools_ends_with_4_when_every_server_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script would take a deck without any tool for a deck that works."""
    git, fs = (ServerView(each, "faulted", "stdio", 0, None, None, None, None, 0, None, DOWN) for each in ("git", "fs"))
    tool = ToolView("fs__read", "fs", "Reads a file.", msgspec.Raw(b'{"name":"read"}'))
    for answer, code in (
        (ToolList((), (git, fs)), 4),
        (ToolList((tool,), (git,)), 0),
        (ToolList((), (git,), ("tool read of fs is held",)), 0),
        (ToolList((), ()), 0),
    ):
        answering(monkeypatch, answer)
        assert run(["tools"]) == code, answer
        assert run(["tools", "--json"]) == code, answer


def test_arguments_reach_the_server_as_they_were_typed_or_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers would change their form, or a file's content have to fit a command line."""
    asked = answering(monkeypatch, result({"content": []}))
    assert run(["call", "fs__read", ' {"b": 1.0, "a": 1e3} ']) == 0
    assert asked.request == Call("fs__read", msgspec.Raw(b'{"b": 1.0, "a": 1e3}'))
    assert asked.only == "fs"
    assert run(["call", "unqualified"]) == 0
    assert asked.request == Call("unqualified", msgspec.Raw(b"{}"))
    assert asked.only is None
    asked = answering(monkeypatch, result({"content": []}))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text":\n"piped"}\n')))
    assert run(["call", "fs__write", "-"]) == 0
    assert asked.request == Call("fs__write", msgspec.Raw(b'{"text":\n"piped"}'))


@pytest.mark.parametrize("arguments", ["", "[1]", "{", '{"a": }', "nonsense", '{"a": 1} {}', "null"])
def test_arguments_that_are_no_object_are_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    """A quoting mistake in a shell would be blamed on the server."""
    asked = answering(monkeypatch, result({"content": []}))
    assert run(["call", "fs__read", arguments]) == 2
    assert asked.request is None
    assert "not a JSON object" in capsys.readouterr().err


def test_a_result_is_shown_to_people_in_blocks_and_to_programs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """People would have to read JSON, scripts lose fields, or take an error's text for the result."""
    answering(monkeypatch, result({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}))
    assert said(0, "call", "fs__read").out == "one\ntwo\n"
    answering(monkeypatch, result({"content": [], "structuredContent": {"sum": 3}}))
    assert said.json(0, "call", "fs__read") == {"sum": 3}
    answering(monkeypatch, Result(msgspec.Raw(b'{"content": [], "x-own": 1.0}'), is_error=True))
    out, err = said(1, "call", "fs__read", "--json")
    assert (out, err) == ('{"content": [], "x-own": 1.0}\n', "")
    answering(monkeypatch, result({"content": [{"type": "text", "text": "no such file"}]}, is_error=True))
    out, err = said(1, "call", "fs__read")
    assert out == "no such file\n"
    assert "fs__read" in err


@pytest.mark.parametrize(
    ("kind", "code"), [("tool_error", 5), ("timeout", 5), ("not_connected", 4), ("spawn_failed", 4)]
)
def test_a_call_without_a_result_says_why(monkeypatch: pytest.MonkeyPatch, said: Said, kind: str, code: int) -> None:
    """A script could not tell a server that is down from a call that failed."""
    answering(monkeypatch, Fault(FaultView(kind, "some_code", "it broke", "mend it", "unknown")))
    out, err = said(code, "call", "fs__read")
    assert out == ""
    assert "error[some_code]: it broke\n  whether the call had an effect is not known\n  fix: mend it\n" in err
    assert said.json(code, "call", "fs__read", "--json")["fault"]["message"] == "it broke"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "a\x1b[2J"}, "a\\x1b[2J"),
        ({"type": "image", "mimeType": "image/png", "data": "A" * 4000}, "[image image/png, 2.9 KiB: --json shows it]"),
        ({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}, "[audio audio/wav, 3 B: --json shows it]"),
        ({"type": "resource_link", "uri": "file:///a\x07"}, "[link to file:///a\\x07]"),
        ({"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "x:y", "blob": "AA"}}, "[resource x:y: --json shows it]"),
        ({"type": "new", "a": 1}, '{\n  "type": "new",\n  "a": 1\n}'),
        (None, "null"),
    ],
)
def test_every_kind_of_block_is_shown(monkeypatch: pytest.MonkeyPatch, said: Said, block: object, shown: str) -> None:
    """A picture would fill the terminal with base64, a new kind would be an error, a server write to the terminal."""
    answering(monkeypatch, Result(msgspec.Raw(json.dumps({"content": [block]}).encode()), is_error=False))
    assert said(0, "call", "fs__read").out == f"{shown}\n"


def test_the_names_that_clients_see_have_a_column_where_they_differ(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A user could not tell which tool an agent talks about."""
    tools_ = (
        ToolView("fs__read", "fs", "Reads.", msgspec.Raw(b"{}")),
        ToolView("fs__long.name", "fs", "Long.", msgspec.Raw(b"{}"), "fs__long_name_ab12"),
    )
    answering(monkeypatch, ToolList(tools_, ()))
    assert [line.split() for line in said(0, "tools").out.splitlines()] == [
        ["TOOL", "CLIENTS", "SEE", "DESCRIPTION"],
        ["fs__read", "Reads."],
        ["fs__long.name", "fs__long_name_ab12", "Long."],
    ]
    assert [each["alias"] for each in said.json(0, "tools", "--json")["tools"]] == ["", "fs__long_name_ab12"]


def view(name: str, *, alias: str = "", **definition: object) -> ToolView:
    own = {"name": "own", "inputSchema": {}, **definition}
    return ToolView(name, name.rpartition("__")[0], "", msgspec.Raw(msgspec.json.encode(own)), alias)


def test_tools_servers_and_groups_are_counted_dearest_first_as_models_are_given_them() -> None:
    """What fills a context could not be found, or a group be chosen by what it costs."""
    tools = (view("grep"), view("a__x"), view("b__y", description="long " * 50), view("b__z"))
    report = token_report(ToolList(tools, (), groups={"small": ("a__x", "b__z"), "none": (), "large": ("b__y",)}))
    assert [cost.name for cost in report.tools] == ["b__y", "a__x", "b__z", "grep"]
    assert [(cost.name, cost.tools) for cost in report.servers] == [("b", 2), ("a", 1), ("native tools", 1)]
    assert [(cost.name, cost.tools) for cost in report.groups] == [("large", 1), ("small", 2), ("none", 0)]
    assert report.total == Cost("all", 4, sum(cost.tokens for cost in report.tools))
    assert (report.tokenizer, report.warning) == ("an estimate, 1 token for 4.4 characters", "")
    tool = view("server__long_name", alias="s__long", description="Ours.")
    wanted = tokens_of_tool({"name": "s__long", "description": "Ours.", "inputSchema": {}})
    assert token_report(ToolList((tool,), ())).total.tokens == wanted


def test_a_deck_that_is_much_for_a_model_is_warned_of_with_what_helps() -> None:
    """A user would not know why a model chooses wrong tools."""
    many = token_report(ToolList(tuple(view(f"a__{number}") for number in range(41)), ()))
    dear = token_report(ToolList((view("a__x", description="x" * 50_000),), ()))
    few = token_report(ToolList(tuple(view(f"a__{number}") for number in range(40)), ()))
    assert (few.warning, few.total.tools) == ("", 40)
    for report in (many, dear):
        assert f" of {report.total.tokens:,} tokens: that is much" in report.warning
        assert all(word in report.warning for word in ("--search", "--group NAME", '"hide" in the row of a'))
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
