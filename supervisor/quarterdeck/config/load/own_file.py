"""What only the user's own file, which is found, says: where the daemon listens, and how the ledger is kept."""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text
from quarterdeck.config.places.paths import state_dir

from .document import DocumentError, JsonObject, parse_document
from .file import MAX_CONFIG_BYTES, ConfigFileError
from .jsonc import to_plain
from .origin import home_of, mcp_config_paths
from .own_keys import AuditWish, read_audit
from .problems import RowError

_log = logging.getLogger("quarterdeck.config")
T = TypeVar("T")


def read_own(read: Callable[[JsonObject], T]) -> T | None:
    """Return what a key of the user's own file says, None without the file; blocks.

    Raises `ConfigFileError` if the file cannot be used, because of a `RowError` if it is the key.
    """
    path = mcp_config_paths(state_dir(), os.environ)[1]
    try:
        document = parse_document(to_plain(read_text(path, MAX_CONFIG_BYTES, is_own_word=True).text))
        return read(document) if isinstance(document, JsonObject) else None
    except MissingFileError:
        return None
    except (OSError, TextFileError, DocumentError, RowError) as error:
        raise ConfigFileError(path, str(error)) from error


def own_audit() -> AuditWish:
    """Return how the user wants the ledger kept; blocks.

    Raises `ConfigFileError` for a wish that cannot be met: to serve without it would leave no trace of calls.
    """
    try:
        return read_own(partial(read_audit, home=home_of(os.environ))) or AuditWish()
    except ConfigFileError as error:
        if isinstance(error.__cause__, RowError):
            raise
        _log.warning("nothing says how the ledger is to be kept: %s", error)
        return AuditWish()
