"""`quarterdeck token`: what HTTP clients have to show."""

from pathlib import Path
from typing import Final

import click

from quarterdeck.cli.shared import options
from quarterdeck.cli.shared.exits import CommandError, ExitCode
from quarterdeck.cli.shared.output import print_json
from quarterdeck.cli.shared.parameters import Group
from quarterdeck_protocol.plain_words import plain_words

TOKEN_NAME: Final = "token"  # noqa: S105 - a file's name

group: Final = Group("The bearer token of serve --http.")


@group.command("show")
def show(json: options.Json = False) -> None:
    """Print the token; it is made when there is none yet."""
    path = token_path()
    token = read_token(path)
    if json:
        print_json({"token": token, "path": str(path)})
    else:
        click.echo(token)


def token_path() -> Path:
    """The file that keeps the token, readable by its owner only."""
    from quarterdeck.config.places.paths import state_dir

    return state_dir() / TOKEN_NAME


def read_token(path: Path) -> str:
    """The token in `path`, made when there is none.

    Raises:
        CommandError: the file or its directory cannot be used.
    """
    from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
    from quarterdeck.host.http.token import TokenFileError, load_or_create_token

    try:
        make_private_dir(path.parent)
        return load_or_create_token(path)
    except (TokenFileError, UnsafePathError, OSError) as error:
        raise CommandError(
            ExitCode.USAGE,
            plain_words(error),
            "make it a file of your own that nobody else may read; or remove it, and a new one is made",
        ) from error
