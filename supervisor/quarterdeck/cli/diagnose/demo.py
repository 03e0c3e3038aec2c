"""`quarterdeck demo`: the main job on real processes, reported as it happens."""

from typing import Final, assert_never

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, as_command_error
from quarterdeck.cli.output import Cell, print_json, print_line, print_paragraph, print_table
from quarterdeck.cli.process import run
from quarterdeck.cli.run.servers import describe_dossier
from quarterdeck.common.words import printable
from quarterdeck.demo.run import AnyEvent, Death, DemoError, End, Fact, Promise, Quote, Scene, Table, run_demo

INDENT: Final = "    "

INTRODUCTION: Final = (
    "Quarterdeck runs MCP servers that you do not trust, each behind its own worker process, and\n"
    "publishes their tools as one MCP server.  Here are three: one behaves, one hangs, one crashes."
)


def demo(json: options.Json = False) -> None:
    """Start a server that behaves, one that hangs and one that crashes; kill one; see what becomes of the others."""
    if not json:
        print_line(INTRODUCTION)
    with as_command_error(DemoError, remedy="quarterdeck doctor says what this machine lacks", code=ExitCode.NO_ANSWER):
        is_kept = run(lambda: run_demo(print_json if json else _Printer().tell))
    if not is_kept:
        raise SystemExit(ExitCode.TOOL_ERROR)


class _Printer:
    def __init__(self) -> None:
        self._scenes = 0

    def tell(self, event: AnyEvent) -> None:
        match event:
            case Scene(title):
                self._scenes += 1
                print_line()
                print_line(f"{self._scenes:2}  {title}", "bold")
            case Fact(text):
                print_line(INDENT + text)
            case Quote(text):
                _quote(printable(text).splitlines())
            case Death(server, dossier):
                print_line(f"{INDENT}the dossier of {server}'s death:")
                _quote(describe_dossier(dossier))
            case Table(headers, rows):
                print_table(headers, [[Cell(text) for text in row] for row in rows], indent=INDENT)
            case Promise(text, True):
                print_line(f"{INDENT}✓ {text}", "green")
            case Promise(text, _):
                print_line(f"{INDENT}✗ {text}", "bold red")
            case End(kept, broken, took_s):
                print_line()
                verdict = f"{kept} of {kept + broken} promises were kept, in {took_s:.1f} s."
                print_line(verdict, "bold green" if not broken else "bold red")
            case _:
                assert_never(event)


def _quote(lines: list[str]) -> None:
    for line in lines:
        print_paragraph(line, "dim", lead=Cell(f"{INDENT}│ ", "dim"))
