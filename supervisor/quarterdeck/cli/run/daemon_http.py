"""The daemon on HTTP: what it is wished to listen at, in whose file, and with which tokens."""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.cli.configure.client_tokens import tokens_path
from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text
from quarterdeck.config.load.document import DocumentError, JsonObject, parse_document
from quarterdeck.config.load.file import MAX_CONFIG_BYTES, ConfigFileError
from quarterdeck.config.load.http_key import read_http
from quarterdeck.config.load.jsonc import to_plain
from quarterdeck.config.load.origin import mcp_config_paths
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.places.paths import state_dir
from quarterdeck.host.http.options import HttpOptions, split_address

WISH_NAME: Final = "http.json"
"""In the daemon's directory: where it listens, for the next one if it is killed or replaced."""

_MAX_WISH_BYTES: Final = 64 * 1024


def make_options(withhold: Callable[[Collection[str]], None], wish: HttpWish) -> HttpOptions:
    """How the daemon listens; blocking.

    Raises:
        ValueError: the address is none.
        CommandError: there is no token, and none can be made.
    """
    bind, port = split_address(wish.address)
    token = read_token(token_path())
    withhold((token,))
    return HttpOptions(
        bind=bind,
        port=port,
        token=token,
        tokens=tokens_path(),
        allow_remote=wish.allow_remote,
        hosts=wish.allow_hosts,
    )


class KeptWish(msgspec.Struct, frozen=True):
    """Where the next daemon of a directory is to listen.

    Attributes:
        was_there: whether a daemon listened there, whose socket its doors may hold.
    """

    wish: HttpWish
    was_there: bool = False


def kept_wish(directory: Path) -> KeptWish | None:
    """Return where the daemon listened that was killed or replaced here, or where a command wants the next one to."""
    try:
        return msgspec.json.decode(read_text(directory / WISH_NAME, _MAX_WISH_BYTES, private=True).text, type=KeptWish)
    except (TextFileError, msgspec.DecodeError):
        return None


def own_wish() -> HttpWish | None:
    """Return where a daemon listens that no command told, by the user's own file; None for nowhere.

    Raises:
        ConfigFileError: that file cannot be used.
    """
    path = mcp_config_paths(state_dir(), os.environ)[1]
    try:
        document = parse_document(to_plain(read_text(path, MAX_CONFIG_BYTES, is_own_word=True).text))
        return read_http(document) if isinstance(document, JsonObject) else None
    except MissingFileError:
        return None
    except (OSError, TextFileError, DocumentError, RowError) as error:
        raise ConfigFileError(path, str(error)) from error


def keep_wish(directory: Path, wish: HttpWish) -> None:
    """Have the next daemon listen where this one does, if this one is killed or replaced."""
    _write_wish(directory, KeptWish(wish, was_there=True))


def ask_for(directory: Path, wish: HttpWish) -> None:
    """Have the daemon that is started next listen there; no other one runs."""
    before = kept_wish(directory)
    was_there = before is not None and before.was_there and before.wish.address == wish.address
    _write_wish(directory, KeptWish(wish, was_there))


def _write_wish(directory: Path, kept: KeptWish) -> None:
    replace_file(directory / WISH_NAME, msgspec.json.encode(kept), is_kept=False)
