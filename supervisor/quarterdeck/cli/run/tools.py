"""`quarterdeck tools` and `quarterdeck call`: what can be called, and calling it."""

import sys
from typing import Annotated, Final, NoReturn

import click
import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, as_command_error
from quarterdeck.cli.output import Cell, print_json, print_line, print_table, print_text
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import AskedWithNative, ask
from quarterdeck.common.words import counted, one_line, size
from quarterdeck.control.protocol import Call, Fault, FaultView, Result, ServerView, ToolList, Tools
from quarterdeck_protocol.names import server_of_qualified

from .servers import print_fault
from .tool_tokens import token_report

NOT_SENT_SITES: Final = frozenset({"not_connected", "spawn_failed"})
"""Kinds of faults that say that the server is not there."""


def tools(
    source: AskedWithNative,
    server: Annotated[str | None, Argument(metavar="SERVER", help="Only of this server.", show_default=False)] = None,
    group: options.Group = None,
    tokens: Annotated[
        bool, Option("--tokens", help="What each tool, server and group costs a model that is given it, in tokens.")
    ] = False,
    json: options.Json = False,
) -> None:
    """List the tools that can be called: native ones, and those of every server that is ready; or of one server.

    When there are servers and all of them failed, or could not list their tools, it ends with 4.
    """
    answer = ask(source, Tools(tuple(group or ()), server or ""), only=server)
    assert isinstance(answer, ToolList)
    if tokens:
        _show_tokens(answer, json=json)
    elif json:
        print_json({"tools": answer.tools, "absent": answer.absent, "held": answer.held, "notes": answer.notes})
    else:
        _print_tools(answer)
    if answer.absent and not answer.tools and not answer.held:
        raise click.exceptions.Exit(ExitCode.NOT_READY)


def _print_tools(answer: ToolList) -> None:
    has_aliases = any(tool.alias for tool in answer.tools)
    has_own_names = any(tool.own for tool in answer.tools)
    rows = [
        [
            Cell(tool.name, "cyan"),
            *([Cell(tool.alias, "dim")] if has_aliases else []),
            *([Cell(tool.own, "dim")] if has_own_names else []),
            Cell(one_line(tool.description)),
        ]
        for tool in answer.tools
    ]
    if rows:
        aliases, own_names = ["CLIENTS SEE"] if has_aliases else [], ["THE SERVER'S NAME"] if has_own_names else []
        print_table(["TOOL", *aliases, *own_names, "DESCRIPTION"], rows, is_cut=True)
    _print_missing(answer)


def _print_missing(answer: ToolList) -> None:
    """Say what is not among the tools, and why."""
    for line in (*answer.held, *answer.notes):
        print_line(line, "yellow", stderr=True)
    for server in answer.absent:
        print_line(_absence(server), "yellow", stderr=True)
        if server.fault is not None and server.fault.remedy is not None:
            print_line(f"  fix: {server.fault.remedy}", stderr=True)


def _show_tokens(answer: ToolList, *, json: bool) -> None:
    report = token_report(answer)
    if json:
        print_json(report)
        return
    for header, costs in (("TOOL", report.tools), ("SERVER", report.servers), ("GROUP", report.groups)):
        if costs:
            rows = [[Cell(cost.name, "cyan"), Cell(str(cost.tools)), Cell(f"{cost.tokens:,}")] for cost in costs]
            print_table([header, "TOOLS", "TOKENS"], rows)
            print_line()
    total = report.total
    print_line(f"{counted(total.tools, 'tool')}, {counted(total.tokens, 'token')} ({report.tokenizer})", "bold")
    if report.warning:
        print_line(f"warning: {report.warning}", "yellow", stderr=True)
    _print_missing(answer)


def call(
    source: AskedWithNative,
    name: Annotated[
        str, Argument(metavar="NAME", help="The tool: server__tool, or a native one's.", show_default=False)
    ],
    arguments: Annotated[str, Argument(metavar="JSON", help="Its arguments, one object; - reads stdin.")] = "{}",
    json: options.Json = False,
) -> None:
    """Call one tool and print what it answers; with --json the server's own result, whole."""
    request = Call(name, msgspec.Raw(_read_arguments(arguments)))
    answer = ask(source, request, only=server_of_qualified(name))
    if isinstance(answer, Fault):
        _fail(answer.fault, json=json)
    assert isinstance(answer, Result)
    if json:
        print_json(answer.body)
    else:
        _print_result(bytes(answer.body))
    if answer.is_error:
        if not json:
            print_line(f"{name} answered with an error", "red", stderr=True)
        raise click.exceptions.Exit(ExitCode.TOOL_ERROR)


def _absence(server: ServerView) -> str:
    """Why a server offers nothing."""
    why = server.fault.message if server.fault is not None else ""
    if why.startswith(f"{server.id} "):
        return why
    return f"{server.id} is {server.phase} and offers nothing" + (f": {why}" if why else "")


def _read_arguments(text: str) -> bytes:
    given = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    with as_command_error(
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        remedy="""quote them for the shell, for example: '{"text": "hello"}'""",
        what="the arguments are not a JSON object: ",
    ):
        given.decode()
        msgspec.json.decode(given, type=dict[str, msgspec.Raw])
    return given.strip()


def _fail(fault: FaultView, *, json: bool) -> NoReturn:
    if json:
        print_json({"fault": fault})
    else:
        print_fault(fault, stderr=True)
    raise click.exceptions.Exit(ExitCode.NOT_READY if fault.kind in NOT_SENT_SITES else ExitCode.FAULT)


def _print_result(body: bytes) -> None:
    """The content block by block; without any, the structured content."""
    result = msgspec.json.decode(body, type=dict[str, object])
    content = result.get("content")
    for block in content if isinstance(content, list) else []:
        print_text(describe_block(block))
    if not content and "structuredContent" in result:
        print_text(_pretty(result["structuredContent"]))


def describe_block(block: object) -> str:
    """One content block for people: texts as they are, the rest by what it is."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "mimeType": str(mime), "data": str(data)}:
            return f"[{kind} {mime}, {size(len(data) * 3 // 4)}: --json shows it]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[link to {uri}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri)}}:
            return f"[resource {uri}: --json shows it]"
        case _:
            return _pretty(block)


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
