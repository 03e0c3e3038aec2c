"""`quarterdeck completion`: the script by which a shell completes commands and options."""

from enum import StrEnum
from typing import Annotated

from click.shell_completion import get_completion_class

from quarterdeck.cli.commands import PROGRAM
from quarterdeck.cli.output import print_line
from quarterdeck.cli.parameters import Argument
from quarterdeck.cli.program import COMPLETE_VARIABLE, make_program


class Shell(StrEnum):
    """The shells that are supported."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print the script that completes commands and options in your shell.

    It runs quarterdeck for each word that you complete.
    """
    made = get_completion_class(shell.value)
    assert made is not None
    print_line(made(make_program(()), {}, PROGRAM, COMPLETE_VARIABLE).source())
