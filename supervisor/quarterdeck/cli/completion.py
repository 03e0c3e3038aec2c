"""`quarterdeck completion`: what lets a shell complete commands and options."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from quarterdeck.cli.output import print_line


class Shell(StrEnum):
    """Those that can be told how."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.", show_default=False)],
) -> None:
    """Print the script that completes commands and options in your shell.

    It runs quarterdeck for each word that you complete.
    """
    from typer._completion_shared import get_completion_script

    from quarterdeck.cli.program import COMPLETE_VARIABLE

    print_line(get_completion_script(prog_name="quarterdeck", complete_var=COMPLETE_VARIABLE, shell=shell.value))


def complete(arguments: list[str]) -> int:
    """Answer a shell that asks for the completions of a word; the question stands in the environment."""
    from typer._completion_classes import completion_init

    from quarterdeck.cli.commands import BY_NAME, ENTRIES
    from quarterdeck.cli.program import COMPLETE_VARIABLE, make_program

    completion_init()
    # Of the command that is typed its options are completed, else the commands' names: the others' need not be known.
    typed = next((word for word in os.environ.get("COMP_WORDS", "").split()[1:] if word in BY_NAME), None)
    entries = (BY_NAME[typed],) if typed else ENTRIES
    make_program(entries).main(
        args=arguments, prog_name="quarterdeck", complete_var=COMPLETE_VARIABLE, standalone_mode=True
    )
    return 0
