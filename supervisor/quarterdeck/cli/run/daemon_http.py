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
"""In the daemon's directory: where it listens, for the next one if it is killed."""

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


def first_wish(directory: Path) -> HttpWish | None:
    """Where a daemon listens that nobody told: where the one did that was killed here, or by the user's own file.

    Raises:
        ConfigFileError: that file cannot be used.
    """
    try:
        return msgspec.json.decode(read_text(directory / WISH_NAME, _MAX_WISH_BYTES, private=True).text, type=HttpWish)
    except (TextFileError, msgspec.DecodeError):
        pass
    path = mcp_config_paths(state_dir(), os.environ)[1]
    try:
        document = parse_document(to_plain(read_text(path, MAX_CONFIG_BYTES, is_own_word=True).text))
        return read_http(document) if isinstance(document, JsonObject) else None
    except MissingFileError:
        return None
    except (OSError, TextFileError, DocumentError, RowError) as error:
        raise ConfigFileError(path, str(error)) from error


def keep_wish(directory: Path, wish: HttpWish) -> None:
    """Have the next daemon listen there, if this one is killed."""
    replace_file(directory / WISH_NAME, msgspec.json.encode(wish), is_kept=False)
