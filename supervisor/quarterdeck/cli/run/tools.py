"""`quarterdeck tools` and `quarterdeck call`: what can be called, and calling it."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, as_command_error
from quarterdeck.cli.output import Column, print_json, print_line, print_text, show, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import AskedWithNative, ask
from quarterdeck.common.tokens import TOKENIZER, tokens_of_tool
from quarterdeck.common.words import counted, one_line, size
from quarterdeck.daemon.control.protocol import Call, Fault, Result, ToolList, Tools, ToolView
from quarterdeck_protocol.names import server_of_qualified

from .servers import print_fault

NOT_SENT_SITES: Final = frozenset({"not_connected", "spawn_failed"})
"""Kinds of faults that say that the server is not there."""

MANY_TOOLS: Final = 40
"""More of them, and models choose a wrong one more often."""

MANY_TOKENS: Final = 10_000
"""More of them are a noticeable part of a context before it is used."""

NATIVE: Final = "native tools"
"""The name that stands for a server's id."""


def tools(
    source: AskedWithNative,
    server: Annotated[str | None, Argument(metavar="SERVER", help="Only of this server.")] = None,
    group: options.Group = None,
    tokens: Annotated[
        bool, Option(help="What each tool, server and group costs a model that is given it, in tokens.")
    ] = False,
    refresh: Annotated[bool, Option(help="Start servers that sleep, and compare what they list now.")] = False,
    json: options.Json = False,
) -> None:
    """List the tools that can be called: native ones, and those of every server that is ready; or of one server.

    When there are servers and all of them failed, or could not list their tools, it ends with 4.
    """
    answer = ask(source, Tools(tuple(group or ()), server or "", refresh), only=server)
    assert isinstance(answer, ToolList)
    if tokens:
        _show_tokens(answer, json=json)
    elif json:
        print_json({"tools": answer.tools, "absent": answer.absent, "held": answer.held, "notes": answer.notes})
    else:
        _print_tools(answer)
    if answer.absent and not answer.tools and not answer.held:
        raise SystemExit(ExitCode.NOT_READY)


def _print_tools(answer: ToolList) -> None:
    columns = [Column("TOOL", "name", "cyan")]
    if any(tool.alias for tool in answer.tools):
        columns.append(Column("CLIENTS SEE", "alias", "dim", ""))
    if any(tool.own for tool in answer.tools):
        columns.append(Column("THE SERVER'S NAME", "own", "dim", ""))
    if any(tool.cannot_write for tool in answer.tools):
        columns.append(Column("FILES", lambda tool: "may only read" if tool.cannot_write else "", "yellow", ""))
    show(answer.tools, [*columns, Column("DESCRIPTION", "description", "", "", one_line)], is_cut=True)
    _print_missing(answer)


def _print_missing(answer: ToolList) -> None:
    for line in (*answer.held, *answer.notes):
        warn(line)
    for server in answer.absent:
        why = server.fault.message if server.fault is not None else ""
        what = f"{server.id} is {server.phase} and offers nothing" + (f": {why}" if why else "")
        is_said = why.startswith(f"{server.id} ")
        warn(why if is_said else what, (server.fault.remedy or "") if server.fault is not None else "")


def _show_tokens(answer: ToolList, *, json: bool) -> None:
    report = token_report(answer)
    if json:
        print_json(report)
        return
    for header, costs in (("TOOL", report.tools), ("SERVER", report.servers), ("GROUP", report.groups)):
        if costs:
            columns = (
                Column(header, "name", "cyan"),
                Column("TOOLS", "tools"),
                Column("TOKENS", "tokens", form="{:,}".format),
            )
            show(costs, columns)
            print_line()
    total = report.total
    print_line(f"{counted(total.tools, 'tool')}, {counted(total.tokens, 'token')} ({report.tokenizer})", "bold")
    if report.warning:
        warn(f"warning: {report.warning}")
    _print_missing(answer)


def call(
    source: AskedWithNative,
    name: Annotated[str, Argument(metavar="NAME", help="The tool: server__tool, or a native one's.")],
    arguments: Annotated[str, Argument(metavar="JSON", help="Its arguments, one object; - reads stdin.")] = "{}",
    json: options.Json = False,
) -> None:
    """Call one tool and print what it answers; with --json the server's own result, whole."""
    request = Call(name, msgspec.Raw(_read_arguments(arguments)))
    answer = ask(source, request, only=server_of_qualified(name))
    if isinstance(answer, Fault):
        if json:
            print_json({"fault": answer.fault})
        else:
            print_fault(answer.fault, stderr=True)
        raise SystemExit(ExitCode.NOT_READY if answer.fault.kind in NOT_SENT_SITES else ExitCode.FAULT)
    assert isinstance(answer, Result)
    if json:
        print_json(answer.body)
    else:
        result = msgspec.json.decode(answer.body, type=dict[str, object])
        content = result.get("content")
        for block in content if isinstance(content, list) else []:
            print_text(describe_block(block))
        if not content and "structuredContent" in result:
            print_text(_pretty(result["structuredContent"]))
        if answer.is_error:
            print_line(f"{name} answered with an error", "red", stderr=True)
    if answer.is_error:
        raise SystemExit(ExitCode.TOOL_ERROR)


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


def describe_block(block: object) -> str:
    """Return one content block for people: texts as they are, the rest by kind."""
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


class Cost(msgspec.Struct, frozen=True):
    """The number of tools of one name (a tool's, a server's or a group's), and their tokens."""

    name: str
    tools: int
    tokens: int


class TokenReport(msgspec.Struct, frozen=True):
    """The cost of all tools, counted by `tokenizer`, the dearest first; `warning` is empty if it is not much."""

    tokenizer: str
    total: Cost
    servers: tuple[Cost, ...]
    groups: tuple[Cost, ...]
    tools: tuple[Cost, ...]
    warning: str = ""


def token_report(answer: ToolList) -> TokenReport:
    """Return the cost of the tools of an answer."""
    costs = {tool.name: tokens_of_tool(_as_shown(tool)) for tool in answer.tools}
    by_server: dict[str, list[str]] = {}
    for tool in answer.tools:
        by_server.setdefault(tool.server or NATIVE, []).append(tool.name)
    total = _cost("all", costs, costs)
    by_group = _sorted(_cost(group, names, costs) for group, names in answer.groups.items())
    servers = _sorted(_cost(server, names, costs) for server, names in by_server.items())
    return TokenReport(
        tokenizer=TOKENIZER,
        total=total,
        servers=servers,
        groups=by_group,
        tools=_sorted(_cost(name, (name,), costs) for name in costs),
        warning=_warning(total, servers, by_group),
    )


def _as_shown(tool: ToolView) -> Mapping[str, object]:
    try:
        definition = msgspec.json.decode(tool.definition, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        definition = {}
    return {**definition, "name": tool.alias or tool.name}


def _cost(name: str, tools: Iterable[str], costs: Mapping[str, int]) -> Cost:
    counted = [costs[tool] for tool in tools]
    return Cost(name, len(counted), sum(counted))


def _sorted(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    return tuple(sorted(costs, key=lambda cost: (-cost.tokens, cost.name)))


def _is_much(cost: Cost) -> bool:
    return cost.tools > MANY_TOOLS or cost.tokens > MANY_TOKENS


def _warning(total: Cost, servers: Sequence[Cost], groups: Sequence[Cost]) -> str:
    """Return why it is much and what helps: the largest fitting group, and the dearest server."""
    if not _is_much(total):
        return ""
    fitting = [group for group in groups if group.tools and not _is_much(group)]
    part = f"serve --group {fitting[0].name} those of that group" if fitting else "serve --group NAME a group of them"
    dearest = next((server for server in servers if server.name != NATIVE), None)
    hide = f', and "hide" in the row of {dearest.name} takes out what nobody needs' if dearest is not None else ""
    return (
        f"{counted(total.tools, 'tool')} of {total.tokens:,} tokens: that is much for a model (more "
        f"than {MANY_TOOLS} tools or {MANY_TOKENS:,} tokens): serve --search shows it two tools "
        f"that find and call the others, {part}{hide}"
    )
