"""What the command line says of tools' names, checked.

For `serve`: how long they may be, by a number or by what the client puts before them.
"""

from typing import TYPE_CHECKING, Annotated, Final

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.parameters import Option

if TYPE_CHECKING:
    from quarterdeck.host.names import NameBudget

NO_BUDGET: Final = 0
"""Said for leaving names as they are: some clients, and programs of one's own, take any."""

Budget = Annotated[
    int | None,
    Option(
        "--name-budget",
        metavar="N",
        help="Show tools under names of at most N characters; 0 leaves them as they are. Without it 46, which every "
        "known client takes.",
        show_default=False,
    ),
]

Prefix = Annotated[
    str | None,
    Option(
        "--client-prefix",
        metavar="PREFIX",
        help="What the client puts before a tool's name, for example mcp__deck__: names keep to the 64 characters "
        "less these.",
        show_default=False,
    ),
]


def name_budget(limit: int | None, prefix: str | None) -> "NameBudget | None":
    """What names keep to; None for leaving them as they are.

    Raises:
        CommandError: both are given, or too little is left for a name.
    """
    from quarterdeck.host.names import MAX_NAME_CHARS, MIN_LIMIT, NameBudget

    if limit is not None and prefix is not None:
        raise CommandError(
            ExitCode.USAGE,
            "--name-budget and --client-prefix set the same thing in two ways",
            f"give one of them; behind {prefix!r} {MAX_NAME_CHARS - len(prefix)} characters are left",
        )
    if limit == NO_BUDGET:
        return None
    try:
        if prefix is not None:
            return NameBudget.behind(prefix)
        return NameBudget() if limit is None else NameBudget(limit)
    except ValueError as error:
        if prefix is None:
            raise CommandError(
                ExitCode.USAGE, f"--name-budget: {error}", "or give 0, to leave names as they are"
            ) from None
        raise CommandError(
            ExitCode.USAGE,
            f"--client-prefix: of {MAX_NAME_CHARS} characters {len(prefix)} are its own: {error}",
            f"give our entry in the client's configuration a shorter name, {MAX_NAME_CHARS - MIN_LIMIT} characters "
            "with all that the client adds",
        ) from None
