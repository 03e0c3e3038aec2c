"""Look at what the settings name, as trust sees it at this moment: the same for who runs it and for who approves it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quarterdeck.config.paths import state_dir
from quarterdeck.ledger.opening import secrets_key
from quarterdeck_protocol.configs import ServerConfig

from .exposure import read_exposure
from .rows import Locks, NativeRow, Row, Surroundings, native_row, row_of, writable_places

if TYPE_CHECKING:
    from quarterdeck.settings import Settings


@dataclass(frozen=True, slots=True)
class Configured:
    """What is configured.

    Attributes:
        rows: every server that can be started.
        native: what is said of native tools.
    """

    rows: tuple[Row, ...]
    native: NativeRow


def configured(settings: "Settings", lock: Locks | None = None) -> Configured:
    """What these settings name.  Blocking: looks where files lie, and what could be written.

    Args:
        settings: what to look at.
        lock: a `deck.lock` that servers are held to.
    """
    state = state_dir()
    before = read_exposure(state)
    now = before.along_with(places_of(settings, settings.servers))
    # Where nothing is to be hidden, no key is made.
    around = Surroundings(lock, secrets_key(state) if settings.servers else b"", before, now)
    rows = tuple(row_of(config, settings.origins.get(config.id), around) for config in settings.servers)
    named = () if settings.is_found else settings.config_paths
    return Configured(rows, native_row(settings.native_settings, settings.native_files, named, before))


def places_of(settings: "Settings", servers: Iterable[ServerConfig]) -> tuple[str | Path, ...]:
    """What these servers, and the native tools beside them, may change."""
    native = settings.native.writable if settings.native is not None else ()
    return (*writable_places(servers), *native)
