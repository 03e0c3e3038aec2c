"""Typer's commands and groups, with our help in place of theirs."""

from typing import TYPE_CHECKING

import typer.core

from quarterdeck.cli.helping import PROGRAM, describe_command

if TYPE_CHECKING:
    from typer._click import Context
    from typer._click.formatting import HelpFormatter


class HelpfulCommand(typer.core.TyperCommand):
    """A command."""

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write its help."""
        formatter.write(describe_command(self, *_usage(ctx, self.collect_usage_pieces(ctx))))


class HelpfulGroup(typer.core.TyperGroup):
    """A group of commands."""

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write its help."""
        formatter.write(describe_command(self, *_usage(ctx, ["COMMAND [OPTIONS]"])))


def _usage(ctx: "Context", pieces: list[str]) -> tuple[str, str]:
    return ctx.command_path.removeprefix(PROGRAM).strip(), " ".join(piece.strip("{}") for piece in pieces)
