"""The daemon on HTTP: what it is wished to listen at, in whose file, and with which tokens."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.cli.configure.client_tokens import tokens_path
from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.text_file import TextFileError, read_text
from quarterdeck.config.load.own_file import read_own
from quarterdeck.config.load.own_keys import NO_TELEMETRY, TelemetryKey, read_http, read_telemetry
from quarterdeck.host.http.options import HttpOptions, split_address

WISH_NAME: Final = "http.json"
"""The file in the daemon's directory with its HTTP address, for the next daemon if this one is killed or replaced."""

_MAX_WISH_BYTES: Final = 64 * 1024


def make_options(withhold: Callable[[Collection[str]], None], wish: HttpWish) -> HttpOptions:
    """Return how the daemon listens; blocks.

    Raise ValueError for a wrong address, CommandError if there is no token and none can be made.
    """
    bind, port = split_address(wish.address)
    token = read_token(token_path())
    withhold((token,))
    return HttpOptions(
        bind=bind, port=port, token=token, tokens=tokens_path(), allow_remote=wish.allow_remote, hosts=wish.allow_hosts
    )


class KeptWish(msgspec.Struct, frozen=True):
    """The HTTP address for the next daemon of a directory; if one `was_there`, its clients may hold its socket."""

    wish: HttpWish
    was_there: bool = False


def kept_wish(directory: Path) -> KeptWish | None:
    """Return where a killed or replaced daemon listened, or where a command wants the next one to listen; or None."""
    try:
        return msgspec.json.decode(read_text(directory / WISH_NAME, _MAX_WISH_BYTES, private=True).text, type=KeptWish)
    except (TextFileError, msgspec.DecodeError):
        return None


def own_wishes() -> tuple[HttpWish | None, TelemetryKey]:
    """Return the HTTP address in the user's own file, None for no HTTP, and what it says of telemetry; raise
    ConfigFileError if it cannot be used.
    """
    own = read_own(lambda document: (read_http(document), read_telemetry(document)))
    return own or (None, NO_TELEMETRY)


def keep_wish(directory: Path, wish: HttpWish, *, was_there: bool = True) -> None:
    """Have the next daemon listen where this one does if this one is killed or replaced."""
    kept = KeptWish(wish, was_there)
    replace_file(directory / WISH_NAME, msgspec.json.encode(kept), is_kept=False)


def ask_for(directory: Path, wish: HttpWish) -> None:
    """Have the next daemon to start listen there; call this only while no daemon runs."""
    before = kept_wish(directory)
    was_there = before is not None and before.was_there and before.wish.address == wish.address
    keep_wish(directory, wish, was_there=was_there)
