"""`quarterdeck secret` and `token`: what a configuration names as `${keyring:NAME}`, and the token of HTTP clients.

A secret is typed without echo or piped in; it is never an argument, which other users could see, and never printed.
"""

import sys
from pathlib import Path
from typing import Annotated, Final

import click

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, UsageError, as_command_error
from quarterdeck.cli.output import Column, print_json, report, show, type_secret
from quarterdeck.cli.parameters import Argument, Group, Option
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir, state_dir
from quarterdeck.config.secrets.store import (
    MAX_SECRET_BYTES,
    MissingSecretError,
    SecretError,
    SecretStore,
    StoredSecret,
    check_name,
)
from quarterdeck.host.http.options import TokenFileError, load_or_create_token

from .client_tokens import create, list_, revoke

group: Final = Group("Keep secrets out of configuration files.")

PLACES: Final = {"keyring": "the system's keyring", "secret": "a file that only you can read"}

Name = Annotated[str, Argument(metavar="NAME", help="What ${keyring:NAME} calls it: letters, digits, _ and -.")]


@group.command("set")
def set_secret(
    name: Name,
    file: Annotated[bool, Option(help="Store it in a file (0600), even where there is a keyring.")] = False,
    client: options.OneClient = None,
    json: options.Json = False,
) -> None:
    """Keep a secret, in the system's keyring where there is one; it is typed without echo, or read from stdin."""
    with as_command_error(
        SecretError, remedy="see quarterdeck secret set --help; quarterdeck doctor says whether there is a keyring"
    ):
        check_name(name)
        whose = options.client_name(client)
        if sys.stdin.isatty():
            value = type_secret(f"{name}: ", "pipe the value in instead")
        else:
            data = sys.stdin.buffer.read(MAX_SECRET_BYTES + 3)
            try:
                value = data.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError:
                what = "the value is not UTF-8 text: nothing was changed"
                raise UsageError(what, "encode it first, with base64 for example") from None
        kept = SecretStore(client=whose).set(name, value, in_file=file)
    done = f"{_shown(kept)} is kept in {PLACES[kept.place]}: a configuration may say ${{keyring:{name}}}"
    report(_document(kept), done, "green", json=json)


@group.command("list")
def list_secrets(json: options.Json = False) -> None:
    """Show the names of all secrets, and where each is kept."""
    with as_command_error(SecretError, remedy="unlock the keyring, or correct that file"):
        kept = SecretStore().kept()
    columns = Column("NAME", _shown), Column("KEPT IN", lambda each: PLACES[each.place], "dim")
    document = [_document(each) for each in kept]
    none = "there are no secrets: store one with quarterdeck secret set NAME"
    show(kept, columns, json=json, document=document, none=none)


@group.command("remove")
def remove_secret(name: Name, client: options.OneClient = None, json: options.Json = False) -> None:
    """Forget a secret."""
    with (
        as_command_error(SecretError, remedy="unlock the keyring, or correct that file"),
        as_command_error(MissingSecretError, remedy="quarterdeck secret list shows them", code=ExitCode.NOT_FOUND),
    ):
        gone = SecretStore(client=options.client_name(client)).remove(name)
    done = f"{_shown(gone)} is removed from {PLACES[gone.place]}"
    report(_document(gone), done, "green", json=json)


def _shown(secret: StoredSecret) -> str:
    return f"{secret.name} of {secret.client}" if secret.client else secret.name


def _document(secret: StoredSecret) -> dict[str, str]:
    of_client = {"client": secret.client} if secret.client else {}
    return {"name": secret.name, "place": secret.place.name.lower(), **of_client}


TOKEN_NAME: Final = "token"  # noqa: S105 - a file's name

token_group: Final = Group("The bearer tokens of serve --http: yours, and those of single clients.")


@token_group.command("show")
def show_token(json: options.Json = False) -> None:
    """Print your own token, which opens everything; it is made when there is none yet."""
    path = token_path()
    token = read_token(path)
    if json:
        print_json({"token": token, "path": str(path)})
    else:
        click.echo(token)


token_group.command("create")(create)
token_group.command("list")(list_)
token_group.command("revoke")(revoke)


def token_path() -> Path:
    """Return the file of the user's own token, readable by its owner only."""
    return state_dir() / TOKEN_NAME


def read_token(path: Path) -> str:
    """Return the token in `path`, creating it if there is none; raise CommandError if the file cannot be used."""
    with as_command_error(
        TokenFileError,
        UnsafePathError,
        OSError,
        remedy="make it a file of your own that nobody else may read; or remove it, and a new one is made",
    ):
        make_private_dir(path.parent)
        return load_or_create_token(path)
